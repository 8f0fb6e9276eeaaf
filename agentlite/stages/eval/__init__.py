"""models + recorded dialogs, or an environment -> answers, metrics of each, and a comparison."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentlite.config.settings import EvalSettings, default
from agentlite.core import console
from agentlite.core.conditions import Condition
from agentlite.core.row_files import write_json
from agentlite.engine.refusals import EITHER, Case, refuse
from agentlite.report import write_report
from agentlite.report.headline import headline
from agentlite.scoring.judge.human_ratings import read_ratings
from agentlite.scoring.metrics import kagentbench
from agentlite.scoring.metrics.confidence import Difference
from agentlite.scoring.metrics.figures import (
    HEADLINE,
    TITLES,
    failures,
    figure_name,
    means,
    parse_gate,
    read_metrics,
    select_figures,
)
from agentlite.scoring.metrics.summarize import compare
from agentlite.scoring.rewards.scorer import UserFunctions
from agentlite.stages.eval.live import LiveEvaluation
from agentlite.stages.eval.recorded import RecordedEvaluation
from agentlite.stages.frame import run_stage
from agentlite.workspace import lookup, stage_folder
from agentlite.workspace.input_files import file_digest
from agentlite.workspace.lookup import Result, RunTarget, max_length_of

# what evaluations on recorded dialogs have and rollouts have not
RECORDED_SETTINGS = (
    *("predictions", "retrieve", "protocol", "general", "judge", "sheet", "ratings", "kagent"),
)


def inherit(settings: EvalSettings, run: Path) -> dict[str, tuple[object, str]]:
    """The length of prep's rows, and twice its longest answer; with --env, that of a rollout."""
    if settings.env:
        return {"max_length": (default("rollout", "max_length"), "--env")}
    origins = max_length_of("eval", settings.data, run)
    prep = lookup.read_stage(lookup.find_stage(settings.data, run)).done
    if prep and (longest := prep.figures.get("longest_answer")):
        answer_tokens = min(default("eval", "max_new_tokens"), max(64, 2 * longest))
        origins["max_new_tokens"] = (answer_tokens, settings.data)
    return origins


def run(settings: EvalSettings, target: RunTarget) -> Result:
    """Evaluates every model in turn, and compares them. Answers that are there are kept; each is
    read and scored anew, so that a new metric needs no new one.
    """
    gate = parse_gate(settings.gate, own_scores=bool(settings.env))
    stage_folder.refuse_other_command(target.folder, "eval")
    refuse("eval", _mistakes(settings, gate))
    if not settings.env:
        names = tuple(figure_name(name, "--metrics") for name in settings.metrics)
        settings = msgspec.structs.replace(settings, metrics=names)
    if settings.ratings or settings.kagent:
        return _score_files(settings, gate)
    functions = UserFunctions(settings.rewards, settings.reward_seconds, settings.reward_memory)
    with console.stdout_to_stderr(), functions as user_functions:
        evaluation = (
            LiveEvaluation(settings, target, user_functions)
            if settings.env
            else RecordedEvaluation(settings, target)
        )
        results = {
            name: run_stage(
                subject.plan,
                subject.target,
                evaluation.work(name),
                next_command="",
                works_when_done=True,
                keep=["*.jsonl"],
            )
            for name, subject in evaluation.subjects.items()
        }
        folders = {name: Path(result.folder) for name, result in results.items()}
        if target.dry_run:
            base = str(next(iter(folders.values())).parent)
            figures = {name: result.figures for name, result in results.items()}
            return Result("eval", "dry run", base, figures, [], 0.0)
        if isinstance(evaluation, RecordedEvaluation):
            evaluation.conclude()
        with (
            console.waiting("eval: comparing the models, writing the report"),
            stage_folder.in_turn(target.run),
        ):
            differences = _compare(evaluation, settings.seed)
            write_report(target.run)
    metrics = {name: read_metrics(folder / "metrics.json") for name, folder in folders.items()}
    *_, last_metrics = metrics.values()  # the gate is for the last model
    is_done = any(result.status == "done" for result in results.values())
    return Result(
        command="eval",
        status="done" if is_done else "up to date",
        folder=str(target.folder),
        figures={name: select_figures(m, settings.metrics) for name, m in metrics.items()},
        outputs=[f"{path.relative_to(target.folder)}/metrics.json" for path in folders.values()],
        seconds=round(sum(result.seconds for result in results.values()), 1),
        next=target.next("agentlite report"),
        failed=failures(gate, means(last_metrics)),
        sentences=headline(
            {folders[name].name: msgspec.to_builtins(m) for name, m in metrics.items()},
            msgspec.to_builtins(differences),
        ),
    )


def _mistakes(settings: EvalSettings, gate: Sequence[Condition]) -> list[Case]:
    """Settings that would fail only after the models were asked, or be ignored."""
    if settings.env:
        problem, fix = "is for recorded dialogs, and --env has none.", EITHER
        return [(getattr(settings, key), key, problem, fix) for key in RECORDED_SETTINGS]
    problem = "gives figures of rollouts, and there is no --env."
    fix = "Add --env, or leave it out: `agentlite pairs` and grpo take them for single answers."
    asks_models = not (settings.ratings or settings.kagent)
    return [
        (settings.rewards, "rewards", problem, fix),
        *(_record_mistakes(settings) if asks_models else _file_mistakes(settings, gate)),
    ]


def _file_mistakes(settings: EvalSettings, gate: Sequence[Condition]) -> list[Case]:
    """Mistakes where people's ratings, or KAgentBench's answers, are scored."""
    kagent = settings.kagent and not settings.ratings
    stems = [Path(file).stem for file in dict.fromkeys(settings.predictions)] if kagent else []
    return [
        (settings.ratings and gate, "gate", "looks at what eval measures, not at sheets.", EITHER),
        (
            settings.ratings and not settings.sheet,
            "ratings",
            "needs the sheet, whose key names the models.",
            "Add --sheet FILE, as it was written.",
        ),
        (
            kagent and not stems,
            "kagent",
            "there is nothing to score.",
            "Add --predictions FILE: its rows with model_predict.",
        ),
        (
            len({*stems}) < len(stems),
            "predictions",
            f"two files are called {max(stems, key=stems.count, default='')}.",
            "Score them one by one, or rename one.",
        ),
    ]


def _record_mistakes(settings: EvalSettings) -> list[Case]:
    """Mistakes where models are asked."""
    return [
        (
            settings.split == "all",
            "split",
            "all is for the tasks of --env.",
            "Name one of train, dev and test.",
        ),
        (
            settings.max_new_tokens >= settings.max_length,
            "max_new_tokens",
            f"leaves no room for a prompt: max_length is {settings.max_length}.",
            "Lower it, or raise --max-length.",
        ),
        (
            settings.sheet and Path(settings.sheet).exists(),
            "sheet",
            f"{settings.sheet} is there already: somebody may have scored it.",
            "Name another file, or remove that one.",
        ),
        (
            settings.endpoint and not settings.model,
            "endpoint",
            "which of its models?",
            "Add --model NAME, as the server calls it.",
        ),
        (
            settings.endpoint and settings.protocol,
            "protocol",
            "is for models that agentlite prompts itself: a server writes its own prompts.",
            "Leave it out, or leave --endpoint out.",
        ),
        (
            settings.endpoint and (settings.general or settings.num_samples),
            "general" if settings.general else "num_samples",
            "needs the model itself.",
            "Leave it out, or leave --endpoint out.",
        ),
        (
            settings.retrieve and settings.predictions,
            "predictions",
            "have prompts without the tools that are retrieved now.",
            f"Prepare these, agentlite prep --retrieve {settings.retrieve}, and evaluate that.",
        ),
    ]


def _score_files(settings: EvalSettings, gate: Sequence[Condition]) -> Result:
    """What people said of the models in a sheet, or KAgentBench's own scores."""
    if settings.ratings:
        ratings = read_ratings(Path(settings.sheet), [*map(Path, settings.ratings)], settings.seed)
        return Result("eval", "compared", settings.sheet, ratings, [], 0.0)
    models: dict[str, dict[str, Any]] = {}
    overall: dict[str, float | None] = {}
    for file in dict.fromkeys(settings.predictions):
        rows = kagentbench.read(Path(settings.kagent), Path(file))
        metrics = kagentbench.score(rows, settings.seed)
        models[Path(file).stem] = {"prompts": len(rows), "metrics": msgspec.to_builtins(metrics)}
        # a gate looks at the last file
        overall = {key: figure.mean if figure else None for key, figure in metrics.items()}
    figures = {"models": models, "differences": []}
    failed = failures(gate, overall)
    return Result("eval", "compared", settings.kagent, figures, [], 0.0, failed=failed)


def _compare(evaluation: LiveEvaluation | RecordedEvaluation, seed: int) -> list[Difference]:
    """Writes compare.json, of the models side by side; one alone has none beside it."""
    if len(evaluation.subjects) < 2:
        return []
    folders = {name: subject.target.folder for name, subject in evaluation.subjects.items()}
    scores = {folder.name: evaluation.scores[name] for name, folder in folders.items()}
    comparison = compare(scores, seed)
    digests = {path.name: file_digest(path / evaluation.scored_file) for path in folders.values()}
    base = next(iter(folders.values())).parent
    # of the predictions that were compared
    write_json(base / "compare.json", {**comparison, "predictions": digests})
    return list(comparison["differences"])


def key_figure(figures: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{TITLES[name]} {100 * figures[name]:.0f} %" for name in HEADLINE if name in figures
    )
