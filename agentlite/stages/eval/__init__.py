"""models + recorded dialogs, or an environment -> answers, metrics of each, and a comparison."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from agentlite.config.settings import EvalSettings, default
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.report import write_report
from agentlite.report.headline import headline
from agentlite.scoring.metrics.figures import (
    HEADLINE,
    as_printed,
    failures,
    figure_name,
    means,
    parse_gate,
)
from agentlite.scoring.rewards.user_functions import UserFunctions
from agentlite.stages.eval.evaluation import EvaluatedModel, Evaluation
from agentlite.stages.eval.live import LiveEvaluation
from agentlite.stages.eval.recorded import RecordedEvaluation
from agentlite.stages.eval.side_by_side import compare_ratings, score_kagent
from agentlite.workspace import stage_folder
from agentlite.workspace.stage_folder import Result, RunTarget, longer_rows


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
        if settings.ratings:
            return compare_ratings(settings, gate)
        if settings.kagent:
            return score_kagent(settings, gate)
    with (
        console.stdout_to_stderr(),
        UserFunctions(
            settings.rewards, settings.reward_seconds, settings.reward_memory
        ) as user_functions,
    ):
        evaluation: Evaluation
        if settings.env:
            evaluation = LiveEvaluation(settings, target, user_functions)
        else:
            evaluation = RecordedEvaluation(settings, target)
        if target.dry_run:
            return _dry_run(evaluation, target)
        models = {}
        for name, plan in evaluation.plans.items():
            folder = evaluation.folder(name)
            with stage_folder.open_stage(
                folder, plan, force=target.force, typed=target.typed("eval")
            ) as stage:
                metrics, scores = evaluation.measure(name, stage)
                models[name] = EvaluatedModel(
                    folder, metrics, scores, stage.outcome, stage.done.seconds
                )
        evaluation.conclude(models)
        with (
            console.waiting("eval: comparing the models, writing the report"),
            stage_folder.in_turn(target.run),
        ):
            comparison = evaluation.compare(models, settings.seed)
            write_report(target.run)
    *_, last = models.values()  # the gate is for the last model
    folders = [model.folder.relative_to(target.folder) for model in models.values()]
    return Result(
        command="eval",
        status="done" if any(model.status == "done" for model in models.values()) else "up to date",
        folder=str(target.folder),
        figures={
            name: as_printed(model.metrics, settings.metrics) for name, model in models.items()
        },
        outputs=[str(folder / "metrics.json") for folder in folders],
        seconds=round(sum(model.seconds for model in models.values()), 1),
        next=target.next("agentlite report"),
        failed=failures(gate, means(last.metrics)),
        sentences=headline(
            {model.folder.name: msgspec.to_builtins(model.metrics) for model in models.values()},
            msgspec.to_builtins(comparison.differences) if comparison else [],
        ),
    )


def key_figure(figures: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{words} {100 * figures[name]:.0f} %"
        for name, words in HEADLINE.items()
        if name in figures
    )


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


def _dry_run(evaluation: Evaluation, target: RunTarget) -> Result:
    """How much each model would still be asked, and the memory that it takes."""
    figures = {}
    for name, plan in evaluation.plans.items():
        if not target.force:
            stage_folder.status_for(evaluation.folder(name), plan)
        figures[name] = evaluation.missing(name, target.force)
    return Result("eval", "dry run", str(evaluation.base), figures, [], 0.0)
