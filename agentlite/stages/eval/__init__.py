"""models + recorded dialogs, or an environment -> answers, metrics of each, and a comparison."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from agentlite.config.settings import EvalSettings, default
from agentlite.core import console
from agentlite.core.conditions import Condition
from agentlite.core.row_files import write_json
from agentlite.engine.refusals import Mistakes, refuse
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
from agentlite.scoring.rewards.user_functions import UserFunctions
from agentlite.stages.eval.live import LiveEvaluation
from agentlite.stages.eval.recorded import RecordedEvaluation
from agentlite.stages.frame import run_stage
from agentlite.workspace import stage_folder
from agentlite.workspace.digests import file_digest
from agentlite.workspace.stage_folder import Result, RunTarget, longer_rows

# what evaluations on recorded dialogs have and rollouts have not
OF_RECORDS = (
    *("predictions", "retrieve", "protocol", "general", "judge", "sheet", "ratings", "kagent"),
)


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
    refuse("eval", _mistakes(settings, gate))
    if not settings.env:
        names = tuple(figure_name(name, "--metrics") for name in settings.metrics)
        settings = replace(settings, metrics=names)
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
                model.plan,
                model.target,
                evaluation.work(name),
                next_command="",
                again=True,
                keep=["*.jsonl"],
            )
            for name, model in evaluation.models.items()
        }
        folders = {name: Path(result.folder) for name, result in results.items()}
        if target.dry_run:
            base = str(next(iter(folders.values())).parent)
            figures = {name: result.figures for name, result in results.items()}
            return Result("eval", "dry run", base, figures, [], 0.0)
        evaluation.conclude()
        with (
            console.waiting("eval: comparing the models, writing the report"),
            stage_folder.in_turn(target.run),
        ):
            differences = _compare(evaluation, settings.seed)
            write_report(target.run)
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


def _mistakes(settings: EvalSettings, gate: Sequence[Condition]) -> Mistakes:
    """Settings that would fail only after the models were asked, or be ignored."""
    if settings.env:
        for key in OF_RECORDS:
            if getattr(settings, key):
                problem = "is for recorded dialogs, and --env has none."
                yield key, problem, "Leave one of the two out."
        return
    if settings.rewards:
        fix = "Add --env, or leave it out: `agentlite pairs` and grpo take them for single answers."
        yield "rewards", "gives figures of rollouts, and there is no --env.", fix
    if settings.ratings:
        if gate:
            problem = "looks at what eval measures, not at sheets."
            yield "gate", problem, "Leave one of the two out."
        if not settings.sheet:
            problem = "needs the sheet, whose key names the models."
            yield "ratings", problem, "Add --sheet FILE, as it was written."
    elif settings.kagent:
        stems = [Path(file).stem for file in dict.fromkeys(settings.predictions)]
        if not stems:
            fix = "Add --predictions FILE: its rows with model_predict."
            yield "kagent", "there is nothing to score.", fix
        if len({*stems}) < len(stems):
            problem = f"two files are called {max(stems, key=stems.count)}."
            yield "predictions", problem, "Score them one by one, or rename one."
    else:
        yield from _of_records(settings)


def _of_records(settings: EvalSettings) -> Mistakes:
    if settings.split == "all":
        yield "split", "all is for the tasks of --env.", "Name one of train, dev and test."
    if settings.max_new_tokens >= settings.max_length:
        problem = f"leaves no room for a prompt: max_length is {settings.max_length}."
        yield "max_new_tokens", problem, "Lower it, or raise --max-length."
    if settings.sheet and Path(settings.sheet).exists():
        problem = f"{settings.sheet} is there already: somebody may have scored it."
        yield "sheet", problem, "Name another file, or remove that one."
    if settings.endpoint and not settings.model:
        yield "endpoint", "which of its models?", "Add --model NAME, as the server calls it."
    if settings.endpoint and settings.protocol:
        problem = "is for models that agentlite prompts itself: a server writes its own prompts."
        yield "protocol", problem, "Leave it out, or leave --endpoint out."
    if settings.endpoint and (settings.general or settings.num_samples):
        key = "general" if settings.general else "num_samples"
        yield key, "needs the model itself.", "Leave it out, or leave --endpoint out."
    if settings.retrieve and settings.predictions:
        fix = f"Prepare these, agentlite prep --retrieve {settings.retrieve}, and evaluate that."
        yield "predictions", "have prompts without the tools that are retrieved now.", fix


def _score_files(settings: EvalSettings, gate: Sequence[Condition]) -> Result:
    """What people said of the models in a sheet, or KAgentBench's own scores."""
    if settings.ratings:
        found = read_ratings(Path(settings.sheet), [*map(Path, settings.ratings)], settings.seed)
        return Result("eval", "compared", settings.sheet, found, [], 0.0)
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


def _compare(evaluation: LiveEvaluation | RecordedEvaluation, seed: int) -> list[Difference]:
    """Writes compare.json, of the models side by side; one alone has none beside it."""
    if len(evaluation.models) < 2:
        return []
    folders = {name: model.target.folder for name, model in evaluation.models.items()}
    scores = {folder.name: evaluation.scores[name] for name, folder in folders.items()}
    compared = compare(scores, seed)
    digests = {one.name: file_digest(one / evaluation.scored) for one in folders.values()}
    base = next(iter(folders.values())).parent
    # of the predictions that were compared
    write_json(base / "compare.json", {**compared, "predictions": digests})
    return list(compared["differences"])


def key_figure(figures: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{TITLES[name]} {100 * figures[name]:.0f} %" for name in HEADLINE if name in figures
    )
