"""an environment + a model -> an adapter trained on its own rollouts, each beside its group's."""

import shlex
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from agentlite.config.settings import GrpoSettings
from agentlite.core import console
from agentlite.core.errors import REJECTS, UserError
from agentlite.engine import grpo
from agentlite.engine.planning.dry_run import dry_run_memory
from agentlite.environments.gold import GOLD
from agentlite.environments.rollout_rewards import RolloutScorer
from agentlite.environments.tasks import TASKS, write_task_rows
from agentlite.environments.trajectories import TRAJECTORIES
from agentlite.environments.world import WorldError
from agentlite.scoring.rewards import Component
from agentlite.scoring.rewards.user_functions import UserFunctions, function_files
from agentlite.stages.agent import Agent, prepare, rollout_settings
from agentlite.stages.grpo_trajectories import LiveRollouts
from agentlite.stages.training import train_stage
from agentlite.workspace.run_folder import Result, RunTarget

# options for recorded prompts, and their defaults
OF_RECORDS = {"skip_solved": False, "order": "shuffled"}
TRIED = 5  # tasks whose world is built to learn what it scores, if those before it cannot be


def train_live(command: str, settings: GrpoSettings, target: RunTarget) -> Result:
    """Trains in the tasks of an environment, or carries on. Raises UserError 2, 3, 4, 5, 6, 7, 74
    or 75; Stopped after a signal.
    """
    if settings.model == GOLD:
        raise UserError(
            "the gold cannot learn: it makes the calls that the tasks name.",
            "Name a model: --model smollm2-135m, or an earlier stage.",
            location="--model gold",
        )
    _refuse_options(settings)
    together = settings.batch_size * settings.gradient_accumulation
    of_rollouts = rollout_settings(settings, num_samples=settings.group_size, batch_size=together)
    acting = prepare(of_rollouts, target.run, target.begun)
    acting = acting._replace(setup=acting.setup._replace(states=settings.credit == "state"))

    def weighted(functions: Mapping[str, Component]) -> tuple[RolloutScorer, dict[str, float]]:
        """What scores, and the weight of each score. Raises UserError 2, and 4 without a world."""
        scorer = RolloutScorer((task.kept for task in acting.tasks), functions)
        return scorer, scorer.weights(_score_names(settings, acting), settings.weights)

    own_rewards = partial(
        UserFunctions, settings.rewards, settings.reward_seconds, settings.reward_memory
    )

    def train(folder: Path) -> dict[str, object]:
        with own_rewards() as functions:
            scorer, weights = weighted(functions)
            write_task_rows(folder, acting.tasks)
            console.notice(
                f"grpo: {len(acting.tasks)} tasks of {settings.env}, groups of "
                f"{settings.group_size}"
            )
            with LiveRollouts(folder, settings, acting, scorer, weights) as rollouts:
                figures = grpo.train(acting.source, settings, folder, rollouts.task)
        acting.forget_turns(folder)
        counts: dict[str, object] = {"ended": dict(rollouts.ended)}
        counts |= {"failed_rewards": rollouts.tally.failed} if settings.rewards else {}
        return {"tasks": len(acting.tasks), **figures, **counts}

    def dry_run() -> dict[str, object]:
        with own_rewards() as functions:
            weighted(functions)
        planned = grpo.schedule(settings, len(acting.tasks))
        memory = dry_run_memory(command, settings, acting.source.base, settings.max_length)
        return {
            "tasks": len(acting.tasks),
            "steps": planned.steps,
            "rollouts": planned.rows,
            "memory_gib": memory,
        }

    tasks = f" --tasks {shlex.quote(settings.tasks)}" if settings.tasks else ""
    return train_stage(
        command,
        settings,
        target,
        acting.source,
        protocol=acting.setup.protocol.name,
        inputs={
            **{name: digest for name, digest in acting.inputs.items() if name != "model"},
            **function_files(settings.rewards),
        },
        check=lambda: grpo.check(settings),
        dry_run=dry_run,
        train=train,
        outputs=(TASKS, TRAJECTORIES),
        keep=("trajectories*.jsonl",),
        evaluate=f" --env {shlex.quote(settings.env)}{tasks}",
    )


def _refuse_options(settings: GrpoSettings) -> None:
    given = next(
        (name for name, usual in OF_RECORDS.items() if getattr(settings, name) != usual), None
    )
    if given:
        raise UserError(
            "is for recorded prompts, and --env has none.",
            "Leave one of the two out. Tasks that teach nothing rest (rest_epochs).",
            location="--" + given.replace("_", "-"),
        )
    if settings.credit != "trajectory" and settings.scale_rewards in ("batch", "component"):
        raise UserError(
            f"compares turns within a group, with --credit {settings.credit}.",
            "Take group or none.",
            location="grpo.scale_rewards",
        )


def _score_names(settings: GrpoSettings, acting: Agent) -> list[str]:
    """By the world of one of the first tasks, before anything is done in it. Raises UserError 2
    where it has no score, or no state that is needed; 4 where none of them can be built.
    """
    problems: list[str] = []
    for task in acting.tasks[:TRIED]:
        try:
            with acting.setup.environment.world(acting.setup.limits) as world:
                world.reset(task.row)
                names, state = [*world.scores()], world.state() if acting.setup.states else ""
            break
        except WorldError as error:
            problems.append(f"the world of task {task.name} is lost: {error}.")
    else:
        raise UserError(
            problems[0],
            "Correct the environment, or raise call_seconds: --set grpo.call_seconds=60.",
            location=settings.env,
            exit_code=REJECTS,
        )
    if not (names or settings.rewards):
        raise UserError(
            "has no score to learn from.",
            "Give the class a get_reward() or get_scores(), or add --rewards file.py:function.",
            location=settings.env,
        )
    if state is None:
        raise UserError(
            "has no state() by which turns could be compared.",
            "Give the class a state() that returns JSON, or take --credit turn.",
            location=settings.env,
        )
    return names
