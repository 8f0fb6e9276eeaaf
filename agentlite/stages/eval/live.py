"""Models that act in an environment: each does every task, and is measured by what it did."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import UNSET
from msgspec.structs import replace

from agentlite.config import resolve
from agentlite.config.pipeline import DEFAULT_MODEL
from agentlite.config.settings import EvalSettings
from agentlite.core.records import Step
from agentlite.core.row_files import write_json
from agentlite.environments.rollout_rewards import RolloutScorer
from agentlite.environments.trajectories import TRAJECTORIES, Trajectory
from agentlite.scoring.metrics.confidence import summary
from agentlite.scoring.metrics.dialogs import Dialog
from agentlite.scoring.metrics.figures import DONE_SCORES, ENDINGS, Metrics
from agentlite.scoring.metrics.summarize import Scores, figures_by_slice, passes, summaries
from agentlite.scoring.rewards import Component
from agentlite.scoring.rewards.scorer import Tally
from agentlite.stages.eval.subjects import ASCII, EvalSubject, slug
from agentlite.stages.frame import Work
from agentlite.stages.rollout import act, find_actor, prepare, rollout_settings
from agentlite.workspace import stage_folder
from agentlite.workspace.lookup import Plan, RunTarget

SAMPLES = "samples.jsonl"
LONGEST_NAME = 100  # characters of a folder's
# they change which tasks are done and how often, not what a model does in one of them
OF_THE_SAMPLES = ("limit", "num_samples", "temperature")  # no part of the plan
# what every rollout is measured by, beside what its world says
MEASURED = ("tool_errors", "repeated_calls", "timeout", "extra_calls", "progress")
OF_CALLS = ("tool_errors", "repeated_calls")  # shares, of a rollout with a call


class LiveEvaluation:
    """Lets each model act once in every task of the split, greedily, and `num_samples` times more
    for pass^k. Its parts are those of RecordedEvaluation, but for the conclusion.
    """

    scored = TRAJECTORIES

    def __init__(
        self, settings: EvalSettings, target: RunTarget, user_functions: Mapping[str, Component]
    ):
        self.settings = settings
        # bfcl:multi_turn_base -> bfcl-multi_turn_base; worlds/shop.py:Shop -> shop.py-Shop
        env = settings.env if settings.env.startswith("mcp:") else Path(settings.env).name
        inside = slug(env, ASCII)[:LONGEST_NAME]
        self.scores: dict[str, Scores] = {}
        self.models: dict[str, EvalSubject] = {}
        for name in dict.fromkeys(settings.model or (DEFAULT_MODEL,)):
            own = rollout_settings(settings, model=name, num_samples=1, temperature=0.0)
            place = target._replace(subfolder=f"{inside}/{slug(name)}")
            agent = prepare(own, find_actor(own, target.run, place.old_plan), target.run)
            planned = resolve.plan_settings("rollout", own)
            kept = {key: value for key, value in planned.items() if key not in OF_THE_SAMPLES}
            kept["protocol"] = agent.setup.protocol.name
            plan = Plan("eval", kept, agent.inputs, stage_folder.package_versions())
            self.models[name] = EvalSubject(name, plan, place, agent.source, agent=agent)
        self.scorer = RolloutScorer(agent.tasks, user_functions)  # all models have the same tasks

    def work(self, name: str) -> Work:
        settings, agent = self.settings, self.models[name].agent
        assert agent
        stage = yield {"tasks": len(agent.tasks)}
        done = act(agent, stage, f"eval {name}")
        sampled: list[Trajectory] = []
        if count := settings.num_samples:
            often = replace(agent.settings, num_samples=count, temperature=settings.temperature)
            sampling = agent._replace(settings=often, file=SAMPLES)
            sampled = act(sampling, stage, f"eval {name}, {count} samples")
        fix = "The rollouts are kept. Fix the function; the same command scores them again."
        tally = Tally(settings.max_failures, stage.folder, fix, "rollouts")
        scored = []
        for rollout in done:
            score, error = score_rollout(rollout, self.scorer)
            tally.count(error)
            scored.append(score)
        tally.refuse()
        metrics = live_metrics(done, scored, sampled, settings)
        write_json(stage.folder / "metrics.json", metrics)
        self.scores[name] = {
            Step(rollout.task, rollout.sample): score.metrics
            for rollout, score in zip(done, scored, strict=True)
        }
        means = {name: figure.mean for name, figure in metrics.metrics.items() if figure}
        outputs = [TRAJECTORIES, "metrics.json", *([SAMPLES] if sampled else [])]
        return outputs, {"tasks": len(done), **means}


def live_metrics(
    done: Sequence[Trajectory],
    scored: Sequence[Dialog],
    sampled: Sequence[Trajectory],
    settings: EvalSettings,
) -> Metrics:
    """A rollout whose world was lost has no score, and is measured by none. `sampled`: the rollouts
    for pass^k, which asks for a score that says whether the task is done.
    """
    right: dict[Step, list[bool]] = {}
    for one in sampled:
        # a world without a verdict has no pass^k, and a lost rollout no scores
        if (name := next((name for name in DONE_SCORES if name in one.scores), None)) is not None:
            right.setdefault(Step(one.task, 0), []).append(one.scores[name] >= 1)
    problems = Counter(turn.problem for one in done for turn in one.turns if turn.problem)
    return Metrics(
        prompts=len(done),
        metrics={**summaries(scored, settings.seed)},
        dialogs={},
        dialogs_are="live",
        endings={
            f"ended_by_{name}": summary([float(one.ended == name) for one in done], settings.seed)
            for name in ENDINGS
        },
        by=figures_by_slice(scored, [], settings.seed),
        problems=dict(sorted(problems.items())),
        passes=passes(right, settings.seed) if right else UNSET,
        passes_are={"temperature": settings.temperature} if right else UNSET,
    )


def score_rollout(one: Trajectory, scorer: RolloutScorer) -> tuple[Dialog, str]:
    """Its figures, the rewards of the user's among them; and why one of the user's functions gave
    nothing, "" if none failed. A share of calls is not measured where a rollout has none.
    """
    components, _, error = scorer(one)
    figures = {
        name: components[name]
        for name in (*one.scores, *MEASURED, *scorer.user_functions)
        if name in components and (one.calls or name not in OF_CALLS)
    }
    return Dialog(one.task, figures, {"ended": one.ended}), error
