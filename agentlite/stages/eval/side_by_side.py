"""Filled-in sheets, or rows of KAgentBench -> figures side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentlite.config.settings import EvalSettings
from agentlite.core.conditions import Condition
from agentlite.engine.refusals import Mistakes, refuse
from agentlite.scoring.judge.human_ratings import read_ratings
from agentlite.scoring.metrics import kagentbench
from agentlite.scoring.metrics.figures import failures
from agentlite.workspace.stage_folder import Result


def compare_ratings(settings: EvalSettings, gate: Sequence[Condition]) -> Result:
    """What people said of the models in a sheet."""
    refuse("eval", _mistakes(settings, gate))
    files = [Path(path) for path in settings.ratings]
    found = read_ratings(Path(settings.sheet), files, settings.seed)
    return Result("eval", "compared", settings.sheet, found, [], 0.0)


def score_kagent(settings: EvalSettings, gate: Sequence[Condition]) -> Result:
    """KAgentBench's own scores."""
    refuse("eval", _mistakes(settings, gate))
    models: dict[str, dict[str, Any]] = {}
    overall: dict[str, float | None] = {}
    for file in dict.fromkeys(settings.predictions):
        rows = kagentbench.read(Path(settings.kagent), Path(file))
        scored = kagentbench.score(rows, settings.seed)
        models[Path(file).stem] = {"prompts": len(rows), "metrics": msgspec.to_builtins(scored)}
        # a gate looks at the last file
        overall = {key: figure.mean if figure else None for key, figure in scored.items()}
    figures = {"models": models, "differences": []}
    failed = failures(gate, overall)
    return Result("eval", "compared", settings.kagent, figures, [], 0.0, failed=failed)


def _mistakes(settings: EvalSettings, gate: Sequence[Condition]) -> Mistakes:
    if settings.ratings and gate:
        yield "gate", "looks at what eval measures, not at sheets.", "Leave one of the two out."
    if settings.ratings and not settings.sheet:
        problem = "needs the sheet, whose key names the models."
        yield "ratings", problem, "Add --sheet FILE, as it was written."
    if settings.ratings:
        return
    if not settings.predictions:
        fix = "Add --predictions FILE: its rows with model_predict."
        yield "kagent", "there is nothing to score.", fix
    stems = [Path(file).stem for file in dict.fromkeys(settings.predictions)]
    if len({*stems}) < len(stems):
        problem = f"two files are called {max(stems, key=stems.count)}."
        yield "predictions", problem, "Score them one by one, or rename one."
