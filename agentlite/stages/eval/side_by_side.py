"""Finished evaluations, filled-in sheets, or rows of KAgentBench -> figures side by side."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentlite.config.settings import EvalSettings
from agentlite.core.conditions import Condition
from agentlite.core.errors import UserError
from agentlite.scoring.gates import failures
from agentlite.scoring.judge.rate_answers import read_ratings
from agentlite.scoring.metrics import kagentbench
from agentlite.scoring.metrics.model_metrics import as_printed, means, read_metrics
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
    """KAgentBench's own scores, as they are published and with its known defects corrected."""
    if not settings.predictions:
        raise UserError(
            "there is nothing to score.",
            "Add --predictions FILE: its rows with model_predict.",
            location="--kagent",
        )
    files = [*dict.fromkeys(settings.predictions)]
    called = [Path(file).stem for file in files]
    if len(set(called)) < len(called):
        raise UserError(
            f"two files are called {max(called, key=called.count)}.",
            "Score them one by one, or rename one.",
            location="--predictions",
        )
    figures: dict[str, dict[str, Any]] = {}
    overall: dict[str, float | None] = {}
    for file in files:
        rows = kagentbench.read(Path(settings.kagent), Path(file))
        for rules in kagentbench.RULES:
            scored = kagentbench.score(rows, rules, settings.seed)
            name = f"{Path(file).stem} {rules}"
            figures[name] = {"prompts": len(rows), "metrics": msgspec.to_builtins(scored)}
            # a gate looks at the last file, by the last rules
            overall = {key: figure.mean if figure else None for key, figure in scored.items()}
    return Result(
        "eval",
        "compared",
        settings.kagent,
        {"models": figures, "differences": []},
        [],
        0.0,
        failed=failures(gate, overall),
    )


def _compare_folders(settings: EvalSettings, run: Path, gate: Sequence[Condition]) -> Result:
    """Sets finished folders side by side, as they are. Raises UserError 2 for one that is not, or
    of other data.
    """
    folders = [folder for given in settings.compare for folder in _finished(Path(given), run)]
    names = _short_names(folders)
    digests = {name: run_folder.read_plan(folder).inputs["data"] for name, folder in names.items()}
    if len(set(digests.values())) > 1:
        first, other = next(
            (one, name) for one in digests for name in digests if digests[one] != digests[name]
        )
        raise UserError(
            f"{first} and {other} answered different questions.",
            "Compare models on the same prep.",
            location="--compare",
        )
    metrics = {name: read_metrics(folder / "metrics.json") for name, folder in names.items()}
    comparison = compare(
        {name: read_scores(folder) for name, folder in names.items()}, settings.seed
    )
    return Result(
        "eval",
        "compared",
        str(folders[0]),
        {
            "models": {name: as_printed(one, settings.metrics) for name, one in metrics.items()},
            "differences": msgspec.to_builtins(
                [
                    one
                    for one in comparison.differences
                    if not settings.metrics or one.metric in settings.metrics
                ]
            ),
        },
        [],
        0.0,
        failed=failures(gate, means(metrics[[*names][-1]])),
    )


def _finished(given: Path, run: Path) -> list[Path]:
    """The folder of a model, or those of all models under it."""
    here = given if given.exists() else run / given
    found = [here] if run_folder.is_stage(here) else run_folder.stages_in(here, "**")
    found = [
        folder
        for folder in found
        if run_folder.read_plan(folder).command == "eval" and run_folder.is_finished(folder)
    ]
    if not found:
        raise UserError(
            "holds no finished evaluation.",
            "Name a folder that eval wrote, as runs/a/eval/prep/sft.",
            location=f"--compare {given}",
        )
    for folder in found:
        run_folder.finished(folder, "eval")
    return found


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
