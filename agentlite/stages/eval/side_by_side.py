"""Finished evaluations, filled-in sheets, or rows of KAgentBench -> figures side by side."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentlite.config.settings import EvalSettings
from agentlite.core.conditions import Condition
from agentlite.core.errors import UserError
from agentlite.scoring.judge.human_ratings import read_ratings
from agentlite.scoring.metrics import kagentbench
from agentlite.scoring.metrics.figures import as_printed, failures, means, read_metrics
from agentlite.scoring.metrics.summarize import compare
from agentlite.scoring.predictions import read_scores
from agentlite.workspace import run_folder
from agentlite.workspace.run_folder import Result


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


def _compare_folders(settings: EvalSettings, run: Path, gate: Sequence[Condition]) -> Result:
    """Sets finished folders side by side, as they are."""
    folders = [folder for given in settings.compare for folder in _finished(Path(given), run)]
    names = _short_names(folders)
    digests = {name: run_folder.read_plan(folder).inputs["data"] for name, folder in names.items()}
    first = next(iter(digests))
    for other, digest in digests.items():
        if digest != digests[first]:
            raise UserError(
                f"{first} and {other} answered different questions.",
                "Compare models on the same prep.",
                location="--compare",
            )
    metrics = {name: read_metrics(folder / "metrics.json") for name, folder in names.items()}
    scores = {name: read_scores(folder) for name, folder in names.items()}
    differences = [
        difference
        for difference in compare(scores, settings.seed).differences
        if not settings.metrics or difference.metric in settings.metrics
    ]
    figures = {
        "models": {name: as_printed(one, settings.metrics) for name, one in metrics.items()},
        "differences": msgspec.to_builtins(differences),
    }
    *_, last = metrics.values()
    failed = failures(gate, means(last))
    return Result("eval", "compared", str(folders[0]), figures, [], 0.0, failed=failed)


def _finished(given: Path, run: Path) -> list[Path]:
    """The folder of a model, or those of all models under it."""
    here = given if given.exists() else run / given
    folders = [
        folder
        for folder in ([here] if run_folder.is_stage(here) else run_folder.stages_in(here, "**"))
        if run_folder.read_plan(folder).command == "eval" and run_folder.is_finished(folder)
    ]
    if not folders:
        raise UserError(
            "holds no finished evaluation.",
            "Name a folder that eval wrote, as runs/a/eval/prep/sft.",
            location=f"--compare {given}",
        )
    for folder in folders:
        run_folder.finished(folder, "eval")
    return folders


def _short_names(folders: Sequence[Path]) -> dict[str, Path]:
    """By the name of the model, with as much before it as tells them apart."""
    for parts in range(1, 8):
        names = {"/".join(folder.resolve().parts[-parts:]): folder for folder in folders}
        if len(names) == len({folder.resolve() for folder in folders}):
            return names
    return {str(folder): folder for folder in folders}


SIDE_BY_SIDE: dict[str, Callable[[EvalSettings, Path, Sequence[Condition]], Result]] = {
    "compare": _compare_folders,
    "ratings": _read_sheets,
    "kagent": _score_kagent,
}
