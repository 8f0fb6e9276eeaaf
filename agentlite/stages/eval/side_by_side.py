"""Filled-in sheets, or rows of KAgentBench -> figures side by side."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentlite.config.settings import EvalSettings
from agentlite.core.conditions import Condition
from agentlite.core.errors import UserError
from agentlite.scoring.judge.human_ratings import read_ratings
from agentlite.scoring.metrics import kagentbench
from agentlite.scoring.metrics.figures import failures
from agentlite.workspace.stage_folder import Result


def _read_sheets(settings: EvalSettings, run: Path, gate: Sequence[Condition]) -> Result:
    if gate:
        raise UserError(
            "looks at what eval measures, not at sheets.",
            "Leave one of the two out.",
            location="--gate",
        )
    if not settings.sheet:
        raise UserError(
            "needs the sheet, whose key names the models.",
            "Add --sheet FILE, as it was written.",
            location="--ratings",
        )
    found = read_ratings(
        Path(settings.sheet), [Path(path) for path in settings.ratings], settings.seed
    )
    return Result("eval", "compared", settings.sheet, found, [], 0.0)


def _score_kagent(settings: EvalSettings, run: Path, gate: Sequence[Condition]) -> Result:
    """KAgentBench's own scores."""
    if not settings.predictions:
        raise UserError(
            "there is nothing to score.",
            "Add --predictions FILE: its rows with model_predict.",
            location="--kagent",
        )
    files = {Path(file).stem: file for file in settings.predictions}
    if len(files) < len({*settings.predictions}):
        called = [Path(file).stem for file in dict.fromkeys(settings.predictions)]
        raise UserError(
            f"two files are called {max(called, key=called.count)}.",
            "Score them one by one, or rename one.",
            location="--predictions",
        )
    models: dict[str, dict[str, Any]] = {}
    overall: dict[str, float | None] = {}
    for stem, file in files.items():
        rows = kagentbench.read(Path(settings.kagent), Path(file))
        scored = kagentbench.score(rows, settings.seed)
        models[stem] = {"prompts": len(rows), "metrics": msgspec.to_builtins(scored)}
        # a gate looks at the last file
        overall = {key: figure.mean if figure else None for key, figure in scored.items()}
    figures = {"models": models, "differences": []}
    failed = failures(gate, overall)
    return Result("eval", "compared", settings.kagent, figures, [], 0.0, failed=failed)


SIDE_BY_SIDE: dict[str, Callable[[EvalSettings, Path, Sequence[Condition]], Result]] = {
    "ratings": _read_sheets,
    "kagent": _score_kagent,
}
