"""models + recorded dialogs, or an environment -> answers, metrics of each, and a comparison."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from agentlite.config.settings import EvalSettings, default
from agentlite.core import console
from agentlite.core.conditions import Condition
from agentlite.core.errors import UserError
from agentlite.core.row_files import write_json
from agentlite.engine.refusals import Mistakes, refuse
from agentlite.report import write_report
from agentlite.report.headline import headline
from agentlite.scoring.judge.human_ratings import read_ratings
from agentlite.scoring.metrics import kagentbench
from agentlite.scoring.metrics.figures import (
    HEADLINE,
    TITLES,
    ModelDifference,
    failures,
    figure_name,
    means,
    parse_gate,
    read_metrics,
    select_figures,
)
from agentlite.scoring.metrics.summarize import compare
from agentlite.scoring.rewards.user_functions import UserFunctions
from agentlite.stages.eval.live import LiveEvaluation
from agentlite.stages.eval.recorded import RecordedEvaluation
from agentlite.stages.frame import run_stage
from agentlite.workspace import stage_folder
from agentlite.workspace.digests import file_digest
from agentlite.workspace.stage_folder import Result, RunTarget, longer_rows

Evaluation = LiveEvaluation | RecordedEvaluation


def inherit(settings: EvalSettings, run: Path) -> dict[str, tuple[object, str]]:
    """The length of prep's rows, and twice its longest answer; with --env, that of a rollout."""
    if settings.env:
        return {"max_length": (default("rollout", "max_length"), "--env")}
    origins = longer_rows("eval", settings.data, run)
    prep = stage_folder.read(stage_folder.find_stage(settings.data, run)).done
    if prep and (longest := prep.figures.get("longest_answer")):
        enough = min(default("eval", "max_new_tokens"), max(64, 2 * longest))
        origins["max_new_tokens"] = (enough, settings.data)
    return origins


def run(settings: EvalSettings, target: RunTarget) -> Result:
    """Evaluates every model in turn, and compares them. Answers that are there are kept; each is
    read and scored anew, so that a new metric needs no new one.
    """
    gate = parse_gate(settings.gate, own_scores=bool(settings.env))
    stage_folder.refuse_other_command(target.folder, "eval")
    if not settings.env:
        settings = _with_figures(settings)
        if settings.ratings or settings.kagent:
            refuse("eval", _mistakes(settings, gate))
            return _compare_ratings(settings) if settings.ratings else _score_kagent(settings, gate)
    functions = UserFunctions(settings.rewards, settings.reward_seconds, settings.reward_memory)
    with console.stdout_to_stderr(), functions as user_functions:
        evaluation: Evaluation
        if settings.env:
            evaluation = LiveEvaluation(settings, target, user_functions)
        else:
            evaluation = RecordedEvaluation(settings, target)
        results = {
            name: run_stage(
                model.plan,
                model.target,
                evaluation.work(name),
                next_command="",
                again=True,
                keep=["*.jsonl"],
            )
            for name, model in evaluation.models.items()
        }
        base = target._replace(inside=evaluation.inside).folder
        if target.dry_run:
            figures = {name: result.figures for name, result in results.items()}
            return Result("eval", "dry run", str(base), figures, [], 0.0)
        evaluation.conclude()
        with (
            console.waiting("eval: comparing the models, writing the report"),
            stage_folder.in_turn(target.run),
        ):
            differences = _compare(evaluation, base, settings.seed)
            write_report(target.run)
    folders = {name: Path(result.folder) for name, result in results.items()}
    metrics = {name: read_metrics(folder / "metrics.json") for name, folder in folders.items()}
    *_, last = metrics.values()  # the gate is for the last model
    is_done = any(result.status == "done" for result in results.values())
    return Result(
        command="eval",
        status="done" if is_done else "up to date",
        folder=str(target.folder),
        figures={name: select_figures(one, settings.metrics) for name, one in metrics.items()},
        outputs=[f"{one.relative_to(target.folder)}/metrics.json" for one in folders.values()],
        seconds=round(sum(result.seconds for result in results.values()), 1),
        next=target.next("agentlite report"),
        failed=failures(gate, means(last)),
        sentences=headline(
            {folders[name].name: msgspec.to_builtins(one) for name, one in metrics.items()},
            msgspec.to_builtins(differences),
        ),
    )


def _compare_ratings(settings: EvalSettings) -> Result:
    """What people said of the models in a sheet."""
    files = [Path(path) for path in settings.ratings]
    found = read_ratings(Path(settings.sheet), files, settings.seed)
    return Result("eval", "compared", settings.sheet, found, [], 0.0)


def _score_kagent(settings: EvalSettings, gate: Sequence[Condition]) -> Result:
    """KAgentBench's own scores."""
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


def key_figure(figures: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{TITLES[name]} {100 * figures[name]:.0f} %" for name in HEADLINE if name in figures
    )


def _compare(evaluation: Evaluation, base: Path, seed: int) -> list[ModelDifference]:
    """Writes compare.json, of the models side by side; one alone has none beside it."""
    if len(evaluation.models) < 2:
        return []
    folders = {name: model.target.folder for name, model in evaluation.models.items()}
    scores = {folder.name: evaluation.scores[name] for name, folder in folders.items()}
    comparison = compare(scores, seed)
    digests = {one.name: file_digest(one / evaluation.scored) for one in folders.values()}
    write_json(base / "compare.json", replace(comparison, predictions=digests))
    return comparison.differences


def _with_figures(settings: EvalSettings) -> EvalSettings:
    """With each figure by its own name. Raises UserError 2 for one that is not of answers."""
    if settings.rewards:
        raise UserError(
            "gives figures of rollouts, and there is no --env.",
            "Add --env, or leave it out: `agentlite pairs` and grpo take rewards for single "
            "answers.",
            location="--rewards",
        )
    names = tuple(figure_name(name, "--metrics") for name in settings.metrics)
    return replace(settings, metrics=names)
