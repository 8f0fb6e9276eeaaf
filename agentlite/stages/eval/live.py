"""models + an environment -> what each does in the tasks, live: metrics of each, a comparison."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from agentlite.config import resolve
from agentlite.config.pipeline import TRAINED
from agentlite.config.settings import EvalSettings, RolloutSettings
from agentlite.core import console
from agentlite.core.conditions import Condition
from agentlite.core.errors import UserError
from agentlite.core.records import Step
from agentlite.core.row_files import write_json
from agentlite.environments.rollout_rewards import RolloutScorer
from agentlite.environments.trajectories import (
    TRAJECTORIES,
    ModelTurn,
    Trajectory,
    read_trajectories,
)
from agentlite.report import write_report
from agentlite.report.bfcl_scores import bfcl_table
from agentlite.report.headline import headline
from agentlite.report.read_run import read_run
from agentlite.scoring.gates import failures
from agentlite.scoring.metrics.confidence import Summary, summary
from agentlite.scoring.metrics.model_metrics import (
    DONE,
    ENDINGS,
    Comparison,
    Metrics,
    SamplingOfPasses,
    as_printed,
    means,
    read_metrics,
)
from agentlite.scoring.metrics.pass_hat_k import passes
from agentlite.scoring.metrics.summarize import Scores, by_slice, compare, summaries
from agentlite.scoring.rewards.scorer import Tally
from agentlite.scoring.rewards.user_functions import UserFunctions
from agentlite.stages.agent import Agent, act, prepare
from agentlite.stages.eval.subjects import slug
from agentlite.workspace import folder_lock, run_folder
from agentlite.workspace.digests import file_digest
from agentlite.workspace.run_folder import Plan, Result, RunTarget

SAMPLES = "samples.jsonl"
LONGEST_NAME = 100  # characters of a folder's
# they change which tasks are done and how often, not what a model does in one of them
OF_THE_SAMPLES = ("limit", "num_samples", "temperature")  # no part of the plan
# what every rollout is measured by, beside what its world says
MEASURED = ("tool_errors", "repeated_calls", "timeout", "extra_calls", "progress", "user_errors")
OF_CALLS = ("tool_errors", "repeated_calls")  # shares, of a rollout with a call
# options of evaluations on recorded dialogs
OF_RECORDS = ("predictions", "retrieve", "protocol", "general", "judge", "sheet", "kagent")


class LiveModel(NamedTuple):
    """A model that has acted in every task."""

    folder: Path
    metrics: Metrics
    scores: Scores
    status: str
    seconds: float


class RolloutScore(NamedTuple):
    """The figures of a rollout, the rewards of the user's among them, or of what followed on a turn
    of the user's.
    """

    metrics: Mapping[str, float]
    slices: Mapping[str, str]


def evaluate_live(settings: EvalSettings, target: RunTarget, gate: Sequence[Condition]) -> Result:
    """Lets each model act once in every task of the split, greedily, and `num_samples` times more
    for pass^k. Raises UserError 2, 3, 4, 5, 7, 74 or 75; what was done is kept.
    """
    _refuse_options(settings)
    base = target.folder / environment_folder(settings.env)
    begun = target.begun and target.begun / base.name
    models = {
        name: prepare(_rollouts(settings, name), target.run, begun and begun / slug(name))
        for name in dict.fromkeys(settings.model or (TRAINED,))
    }
    if target.dry_run:
        figures = {name: _missing(base / slug(name), one) for name, one in models.items()}
        return Result("eval", "dry run", str(base), figures, [], 0.0)
    with (
        console.stdout_to_stderr(),
        UserFunctions(
            settings.rewards, settings.reward_seconds, settings.reward_memory
        ) as user_functions,
    ):
        tasks = next(iter(models.values())).tasks  # all models have the same
        scorer = RolloutScorer((task.kept for task in tasks), user_functions)
        done = {
            name: _evaluated(settings, acting, base / slug(name), target.force, scorer)
            for name, acting in models.items()
        }
        with folder_lock.in_turn(target.run):
            comparison = _write_comparison(base, done, settings.seed, scorer)
            write_report(target.run)
            measured = _with_bfcl(done, target.run)
    return Result(
        "eval",
        "done" if any(one.status == "done" for one in done.values()) else "up to date",
        str(target.folder),
        {name: as_printed(one, settings.metrics) for name, one in measured.items()},
        [str(one.folder.relative_to(target.folder) / "metrics.json") for one in done.values()],
        round(sum(one.seconds for one in done.values()), 1),
        target.next("agentlite report"),
        failures(gate, means(list(measured.values())[-1])),
        headline(
            {one.folder.name: msgspec.to_builtins(one.metrics) for one in done.values()},
            msgspec.to_builtins(comparison.differences) if comparison else [],
        ),
    )


def environment_folder(env: str) -> str:
    """`bfcl:multi_turn_base` -> bfcl-multi_turn_base; `worlds/shop.py:Shop` -> shop.py-Shop. Of
    other kinds the whole name, if it is not too long.
    """
    return slug(env if env.startswith(("mcp:", "mock:")) else Path(env).name)[:LONGEST_NAME]


def _refuse_options(settings: EvalSettings) -> None:
    given = next((name for name in OF_RECORDS if getattr(settings, name)), None)
    if given:
        raise UserError(
            "is for recorded dialogs, and --env has none.",
            "Leave one of the two out.",
            location=f"--{given}",
        )


def _rollouts(settings: EvalSettings, model: str) -> RolloutSettings:
    """One greedy rollout of each task, with everything else as the user set it."""
    shared = {
        name: getattr(settings, name)
        for name in RolloutSettings.__struct_fields__
        if name in EvalSettings.__struct_fields__
    }
    return RolloutSettings(**{**shared, "model": model, "num_samples": 1, "temperature": 0.0})


def _with_bfcl(done: Mapping[str, LiveModel], run: Path) -> dict[str, Metrics]:
    """The metrics of each model, with v4's groups over all categories that were measured in this
    run, if there are any.
    """
    table = bfcl_table(read_run(run))
    measured = {name: one.metrics for name, one in done.items()}
    for name, one in done.items() if table else ():
        digest = run_folder.read_plan(one.folder).inputs["model"]
        if table and (of_model := table.find(one.folder.name, digest)):
            measured[name] = replace(
                one.metrics,
                bfcl=msgspec.convert(of_model.figures, dict[str, Summary | None]),
                bfcl_is=of_model.scores.name,
                bfcl_not_measured=of_model.scores.not_measured,
            )
    return measured


def _missing(folder: Path, acting: Agent) -> dict[str, Any]:
    known = {one.key for one in read_trajectories(folder / TRAJECTORIES)}
    missing = sum((task.id, 0) not in known for task in acting.tasks)
    return {"tasks": len(acting.tasks), "missing": missing}


def _evaluated(
    settings: EvalSettings, acting: Agent, folder: Path, force: bool, scorer: RolloutScorer
) -> LiveModel:
    protocol = acting.setup.protocol.name
    planned = resolve.plan_settings("rollout", acting.settings) | {"protocol": protocol}
    plan = Plan(
        "eval",
        {key: value for key, value in planned.items() if key not in OF_THE_SAMPLES},
        acting.inputs,
        run_folder.versions(),
    )
    with run_folder.open_stage(folder, plan, force=force) as stage:
        done = act(acting, stage, f"eval {acting.settings.model}")
        sampled: list[Trajectory] = []
        if settings.num_samples:
            often = replace(
                acting.settings,
                num_samples=settings.num_samples,
                temperature=settings.temperature,
            )
            sampling = acting._replace(settings=often, file=SAMPLES)
            sampled = act(
                sampling, stage, f"eval {acting.settings.model}, {settings.num_samples} samples"
            )
            sampling.forget_turns(folder)
        acting.forget_turns(folder)
        scored = _scored(settings, folder, done, scorer)
        metrics = live_metrics(done, scored, sampled, settings)
        path = folder / "metrics.json"
        if stage.status != "done" or read_metrics(path) != metrics:
            stage.outcome = "done"
            write_json(path, metrics)
            outputs = [TRAJECTORIES, path.name, *([SAMPLES] if sampled else [])]
            figures = {name: one.mean for name, one in metrics.metrics.items() if one}
            stage.finish(outputs, {"tasks": len(done), **figures})
        both = zip(done, scored, strict=True)
        scores = {Step(one.task, one.sample): score.metrics for one, score in both}
        return LiveModel(folder, metrics, scores, stage.outcome, stage.done.seconds)


def live_metrics(
    done: Sequence[Trajectory],
    scored: Sequence[RolloutScore],
    sampled: Sequence[Trajectory],
    settings: EvalSettings,
) -> Metrics:
    """A rollout whose world was lost has no score, and is measured by none. `sampled`: the rollouts
    for pass^k, which asks for a score that says whether the task is done.
    """
    right: dict[Step, list[bool]] = {}
    for one in sampled:
        if (name := next((name for name in DONE if name in one.scores), None)) is not None:
            right.setdefault(Step(one.task, 0), []).append(one.scores[name] >= 1)
    problems = Counter(turn.problem for one in done for turn in one.turns if turn.problem)
    by_turn = [turn for one in done for turn in _turn_scores(one)]
    return Metrics(
        prompts=len(done),
        metrics={**summaries(scored, settings.seed)},
        dialogs={},
        dialogs_are="live",
        endings=_endings(done, settings.seed),
        by=by_slice([*scored, *by_turn], [], settings.seed),
        problems=dict(sorted(problems.items())),
        passes=passes(right, settings.seed) if right else UNSET,
        passes_are=SamplingOfPasses(settings.temperature) if right else UNSET,
    )


def _scored(
    settings: EvalSettings, folder: Path, done: Sequence[Trajectory], scorer: RolloutScorer
) -> list[RolloutScore]:
    """Raises UserError 4 where the user's functions fail for more rollouts than may be."""
    fix = "The rollouts are kept. Fix the function; the same command scores them again."
    tally = Tally(settings.max_failures, folder, fix, "rollouts")
    scored = []
    for one in done:
        score, error = score_rollout(one, scorer)
        tally.count(error)
        scored.append(score)
    tally.refuse()
    return scored


def score_rollout(one: Trajectory, scorer: RolloutScorer) -> tuple[RolloutScore, str]:
    """With why one of the user's functions gave nothing; "" if none failed. A share of calls, or of
    the replies of a simulated user, is not measured where a rollout has none.
    """
    components, _, error = scorer(one)
    missing = [] if one.calls else [*OF_CALLS]
    missing += [] if one.simulated_user and one.simulated_user.replies else ["user_errors"]
    names = [*one.scores, *MEASURED, *scorer.user_functions]
    figures = {
        name: components[name] for name in names if name in components and name not in missing
    }
    return RolloutScore(figures, {"ended": one.ended}), error


def _turn_scores(one: Trajectory) -> Iterator[RolloutScore]:
    """Of each turn of the user's: what the world says of it, its calls, and the share of them that
    failed. A turn that a rollout did not reach has what the world says, and no calls.
    """
    turns = zip_longest(one.by_turn, one.user_turns, fillvalue=())
    for number, (scores, followed) in enumerate(turns, 1):
        figures = {**dict(scores), **_tool_errors(followed)}
        if followed:
            figures["calls_made"] = float(sum(len(turn.results) for turn in followed))
        yield RolloutScore(figures, {"user_turn": str(number)})


def _tool_errors(turns: Sequence[ModelTurn]) -> dict[str, float]:
    """{} where there is no call."""
    failed = [failed for turn in turns for _, failed in turn.results]
    return {"tool_errors": sum(failed) / len(failed)} if failed else {}


def _endings(done: Sequence[Trajectory], seed: int) -> dict[str, Summary]:
    """How often each thing ended a rollout, also if it never did."""
    return {
        f"ended_by_{name}": summary([float(one.ended == name) for one in done], seed)
        for name in ENDINGS
    }


def _write_comparison(
    base: Path, done: Mapping[str, LiveModel], seed: int, scorer: RolloutScorer
) -> Comparison | None:
    """compare.json: these models and those that have acted in the same tasks before. None for one
    model alone.
    """
    now = {one.folder.name: one.scores for one in done.values()}
    first = run_folder.read_plan(next(iter(done.values())).folder)
    by_model = {**_earlier(base, first, now, scorer), **now}
    if len(by_model) < 2:
        return None
    comparison = compare(by_model, seed)
    digests = {name: file_digest(base / name / TRAJECTORIES) for name in by_model}
    write_json(base / "compare.json", replace(comparison, predictions=digests))
    return comparison


def _earlier(
    base: Path, plan: Plan, now: Mapping[str, Scores], scorer: RolloutScorer
) -> dict[str, Scores]:
    """The other finished models in `base`, in the same environment, that have done all tasks that
    those of `now` have done.
    """

    def world(one: Plan) -> list[Any]:
        names = (
            "env",
            "split",
            "extra_tools",
            "max_turns",
            "tool_model",
            "user_model",
            "user_turns",
        )
        files = [one.inputs.get(name) for name in ("env", "tools", "tasks")]
        return [*files, *(one.settings.get(name) for name in names)]

    wanted = set().union(*now.values())
    found: dict[str, Scores] = {}
    for folder in run_folder.stages_in(base):
        other = run_folder.read(folder)
        if folder.name in now or not other.done or not other.plan or other.trusted().changed():
            continue
        if world(other.plan) == world(plan):
            rollouts = read_trajectories(folder / TRAJECTORIES)
            scores = {
                step: score_rollout(one, scorer)[0].metrics
                for one in rollouts
                if (step := Step(one.task, one.sample)) in wanted
            }
            if wanted <= scores.keys():
                found[folder.name] = scores
    return found
