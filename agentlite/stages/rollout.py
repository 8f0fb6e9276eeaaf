"""an environment + a model -> trajectories: what it did in the world of each task; the scores."""

import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from agentlite.config import resolve
from agentlite.config.settings import RolloutSettings
from agentlite.core import console
from agentlite.core.row_files import write_json, write_rows
from agentlite.environments.tasks import TASKS, write_task_rows
from agentlite.environments.trajectories import TRAJECTORIES
from agentlite.stages.agent import act, acted_by, figures_of, prepare
from agentlite.workspace import run_folder
from agentlite.workspace.run_folder import Plan, Result, RunTarget


def run(settings: RolloutSettings, target: RunTarget) -> Result:
    """Every task is done `num_samples` times. Raises UserError 2, 3, 4, 5, 7, 74 or 75; the turns
    that were done are kept.
    """
    acting = prepare(settings, target.run, target.begun)
    protocol = acting.setup.protocol.name
    plan = Plan(
        "rollout",
        {**resolve.plan_settings("rollout", settings), "protocol": protocol},
        acting.inputs,
        run_folder.versions(),
    )
    if target.dry_run:
        status = "new" if target.force else run_folder.compare(target.folder, plan)
        tasks = len(acting.tasks)
        figures = {"folder": status, "tasks": tasks, "rollouts": tasks * settings.num_samples}
        return Result("rollout", "dry run", str(target.folder), figures, [], 0.0)
    with (
        console.stdout_to_stderr(),
        run_folder.open_stage(target.folder, plan, force=target.force) as stage,
    ):
        if stage.status != "done":
            write_task_rows(stage.folder, acting.tasks)
            done = act(acting, stage, "rollout")
            write_rows(stage.folder / TRAJECTORIES, map(msgspec.to_builtins, done))
            write_json(stage.folder / "stats.json", figures := figures_of(done))
            models = {"lineage": acted_by(settings.model, target.run)}
            stage.finish([TASKS, TRAJECTORIES, "stats.json"], {**figures, **models})
            acting.forget_turns(stage.folder)
        best = ["--keep", "best"] if settings.num_samples > 1 else []
        names = ["--from", target.out, *best, "--out", f"prep-{target.out}"]
        return stage.result(target.next(shlex.join(["agentlite", "prep", *names])))


def key_figure(figures: Mapping[str, Any]) -> str:
    means = [f"{name} {value:.2f}" for name, value in figures["scores"].items()]
    return ", ".join([f"{figures['rollouts']} rollouts", *means])
