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
from agentlite.stages.rollout import Agent, act, find_actor, make_agent, rollout_settings
from agentlite.workspace import stage_folder
from agentlite.workspace.lookup import Plan, RunTarget

SAMPLES = "samples.jsonl"
LONGEST_NAME = 100  # characters of a folder's
# they change which tasks are done and how often, not what a model does in one of them
SAMPLE_SETTINGS = ("limit", "num_samples", "temperature")  # no part of the plan
# what every rollout is measured by, beside what its world says
MEASURES = ("tool_errors", "repeated_calls", "timeout", "extra_calls", "progress")
CALL_SHARES = ("tool_errors", "repeated_calls")  # only of a rollout with a call


class LiveEvaluation:
    """Lets each model act once in every task of the split, greedily, and `num_samples` times more
    for pass^k. Its parts are those of RecordedEvaluation, but for the conclusion.
    """

    scored_file = TRAJECTORIES

    def __init__(
        self, settings: EvalSettings, target: RunTarget, user_functions: Mapping[str, Component]
    ):
        self.settings = settings
        # bfcl:multi_turn_base -> bfcl-multi_turn_base; worlds/shop.py:Shop -> shop.py-Shop
        env = settings.env if settings.env.startswith("mcp:") else Path(settings.env).name
        subfolder = slug(env, ASCII)[:LONGEST_NAME]
        self.scores: dict[str, Scores] = {}
        self.subjects: dict[str, EvalSubject] = {}
        self.agents: dict[str, Agent] = {}
        for name in dict.fromkeys(settings.model or (DEFAULT_MODEL,)):
            agent_settings = rollout_settings(settings, model=name, num_samples=1, temperature=0.0)
            model_target = target._replace(subfolder=f"{subfolder}/{slug(name)}")
            source = find_actor(agent_settings, target.run, model_target.old_plan)
            agent = make_agent(agent_settings, source, target.run)
            planned = resolve.plan_settings("rollout", agent_settings)
            planned = {key: v for key, v in planned.items() if key not in SAMPLE_SETTINGS}
            planned["protocol"] = agent.setup.protocol.name
            plan = Plan("eval", planned, agent.inputs, stage_folder.package_versions())
            self.subjects[name], self.agents[name] = EvalSubject(name, plan, model_target), agent
        self.scorer = RolloutScorer(agent.tasks, user_functions)  # all models have the same tasks

    def work(self, name: str) -> Work:
        settings, agent = self.settings, self.agents[name]
        stage = yield {"tasks": len(agent.tasks)}
        rollouts = act(agent, stage, f"eval {name}")
        samples: list[Trajectory] = []
        if count := settings.num_samples:
            sampling = replace(agent.settings, num_samples=count, temperature=settings.temperature)
            sampling_agent = agent._replace(settings=sampling, file=SAMPLES)
            samples = act(sampling_agent, stage, f"eval {name}, {count} samples")
        fix = "The rollouts are kept. Fix the function; the same command scores them again."
        tally = Tally(settings.max_failures, stage.folder, fix, "rollouts")
        dialogs = []
        for rollout in rollouts:
            dialog, error = score_rollout(rollout, self.scorer)
            tally.count(error)
            dialogs.append(dialog)
        tally.refuse()
        metrics = live_metrics(rollouts, dialogs, samples, settings)
        write_json(stage.folder / "metrics.json", metrics)
        self.scores[name] = {
            Step(rollout.task, rollout.sample): dialog.metrics
            for rollout, dialog in zip(rollouts, dialogs, strict=True)
        }
        means = {name: figure.mean for name, figure in metrics.metrics.items() if figure}
        outputs = [TRAJECTORIES, "metrics.json", *([SAMPLES] if samples else [])]
        return outputs, {"tasks": len(rollouts), **means}


def live_metrics(
    rollouts: Sequence[Trajectory],
    dialogs: Sequence[Dialog],
    samples: Sequence[Trajectory],
    settings: EvalSettings,
) -> Metrics:
    """A rollout whose world was lost has no score, and is measured by none. `samples`: the rollouts
    for pass^k, which asks for a score that says whether the task is done.
    """
    outcomes: dict[Step, list[bool]] = {}
    for sample in samples:
        # a world without a verdict has no pass^k, and a lost rollout no scores
        if verdicts := [sample.scores[name] for name in DONE_SCORES if name in sample.scores]:
            outcomes.setdefault(Step(sample.task, 0), []).append(verdicts[0] >= 1)
    problems = Counter(turn.problem for r in rollouts for turn in r.turns if turn.problem)
    return Metrics(
        prompts=len(rollouts),
        metrics={**summaries(dialogs, settings.seed)},
        dialogs={},
        dialogs_are="live",
        endings={
            f"ended_by_{name}": summary([float(r.ended == name) for r in rollouts], settings.seed)
            for name in ENDINGS
        },
        by=figures_by_slice(dialogs, [], settings.seed),
        problems=dict(sorted(problems.items())),
        passes=passes(outcomes, settings.seed) if outcomes else UNSET,
        passes_are={"temperature": settings.temperature} if outcomes else UNSET,
    )


def score_rollout(rollout: Trajectory, scorer: RolloutScorer) -> tuple[Dialog, str]:
    """The figures of a rollout, the user's rewards among them; and why one of the user's functions
    gave nothing, "" if none failed. A share of calls is not measured where a rollout has none.
    """
    components, _, error = scorer(rollout)
    figures = {
        name: components[name]
        for name in (*rollout.scores, *MEASURES, *scorer.user_functions)
        if name in components and (rollout.calls or name not in CALL_SHARES)
    }
    return Dialog(rollout.task, figures, {"ended": rollout.ended}), error
