"""an environment + a model -> trajectories: what it did in the world of each task; the scores."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import msgspec

from agentlite.config.settings import RolloutSettings
from agentlite.core.row_files import write_json, write_rows
from agentlite.environments.tasks import TASKS, write_tasks
from agentlite.environments.trajectories import TRAJECTORIES, Trajectory
from agentlite.stages.agent import act, actor_lineage, find_actor, prepare
from agentlite.stages.frame import Work, plan_of, run_stage
from agentlite.workspace.stage_folder import Result, RunTarget


def run(settings: RolloutSettings, target: RunTarget) -> Result:
    """Every task is done `num_samples` times; the turns that were done are kept."""
    source = find_actor(settings, target.run, target.begun)
    agent = prepare(settings, source, target.run)

    def work() -> Work:
        tasks = len(agent.tasks)
        stage = yield {"tasks": tasks, "rollouts": tasks * settings.num_samples}
        write_tasks(stage.folder, agent.tasks)
        done = act(agent, stage, "rollout")
        write_rows(stage.folder / TRAJECTORIES, map(msgspec.to_builtins, done))
        write_json(stage.folder / "stats.json", figures := _figures(done))
        models = {"lineage": actor_lineage(settings.model, target.run)}
        return [TASKS, TRAJECTORIES, "stats.json"], {**figures, **models}

    best = ["--keep", "best"] if settings.num_samples > 1 else []
    prep = ["agentlite", "prep", "--from", target.out, *best, "--out", f"prep-{target.out}"]
    return run_stage(
        plan_of("rollout", settings, agent.inputs, protocol=agent.setup.protocol.name),
        target,
        work(),
        next_command=shlex.join(prep),
        keep=["*.jsonl"],
    )


def key_figure(figures: Mapping[str, Any]) -> str:
    means = [f"{name} {value:.2f}" for name, value in figures["scores"].items()]
    return ", ".join([f"{figures['rollouts']} rollouts", *means])


def _figures(done: Sequence[Trajectory]) -> dict[str, Any]:
    """Counts, and the mean of each score over the rollouts whose world was not lost."""
    names = sorted({name for rollout in done for name in rollout.scores})
    scored = [rollout.scores for rollout in done if rollout.scores]
    return {
        "tasks": len({rollout.task for rollout in done}),
        "rollouts": len(done),
        "ended": dict(Counter(rollout.ended for rollout in done)),
        "turns": sum(len(rollout.turns) for rollout in done),
        "calls": sum(rollout.calls for rollout in done),
        "failed_calls": sum(rollout.failed_calls for rollout in done),
        "scores": {
            name: fmean(scores[name] for scores in scored if name in scores) for name in names
        },
    }
