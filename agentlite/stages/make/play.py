"""Blueprints that models play: one speaks for the user, one for the agent; the calls are made."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from agentlite.config.settings import MakeSettings
from agentlite.core.errors import UserError
from agentlite.core.records import Call
from agentlite.environments.registry import Environment
from agentlite.environments.rollout import GOLD
from agentlite.environments.synthesis.blueprint import Blueprint
from agentlite.environments.synthesis.checks import DialogFault, faults
from agentlite.environments.synthesis.dialog import MadeDialog, profile_of, row_of
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.trajectories import LOST, Trajectory
from agentlite.stages.agent import Agent, act, rollout_settings, with_users
from agentlite.stages.make.search import Slot
from agentlite.workspace.run_folder import StageFolder


def players(
    settings: MakeSettings, world: Environment, run: Path, begun: Path | None
) -> Agent | None:
    """The models, as yet without a dialog; None where there are none."""
    if not settings.endpoint:
        for name in ("model", "user_endpoint", "user_model"):
            if getattr(settings, name):
                raise UserError(
                    "has nothing to do without a model that plays the agent.",
                    "Add --endpoint URL --model NAME.",
                    location=f"--{name.replace('_', '-')}",
                )
        return None
    if settings.model in ("", GOLD):
        raise UserError(
            "which of its models?",
            "Add --model NAME, as the server calls it.",
            location="--endpoint",
        )
    own_user = settings.user_endpoint or settings.user_model
    of_user = {
        "user_endpoint": settings.user_endpoint or settings.endpoint,
        "user_model": settings.user_model or settings.model,
        "user_key": settings.user_key if own_user else settings.endpoint_key,
    }
    return with_users(rollout_settings(settings, **of_user), world, run, begun)


def play(
    agent: Agent,
    plans: Mapping[str, Slot],
    tasks: Sequence[EnvironmentTask],
    stage: StageFolder,
) -> Iterator[MadeDialog]:
    """The dialogs of these slots, in order. `plans`: by the id of a blueprint. Answers are on disk,
    and no question is asked twice.
    """
    rows = {task.id: task.row for task in tasks}
    played = agent._replace(
        tasks=[
            EnvironmentTask(name, (), rows[slot.plan.task], _gold(slot.plan))
            for name, slot in plans.items()
        ],
        setup=agent.setup._replace(
            users={name: profile_of(slot.plan, slot.by_name) for name, slot in plans.items()},
            opens=True,
            offered={name: slot.plan.tools for name, slot in plans.items()},
        ),
    )
    for trajectory in act(played, stage, "make"):
        yield _check(plans[trajectory.task], trajectory)


def _gold(plan: Blueprint) -> tuple[tuple[Call, ...], ...]:
    """The right calls of each turn of the user's, as it is played."""
    gold: list[tuple[Call, ...]] = []
    for turn in plan.turns:
        if turn.missing:  # the user is asked for it, and says it in a turn of its own
            gold.append((turn.slip.call,) if turn.slip else ())
        gold.append(() if turn.refused else tuple(planned.call for planned in turn.calls))
    return tuple(gold)


def _check(slot: Slot, trajectory: Trajectory) -> MadeDialog:
    """A dialog with all that the rules find in it."""
    plan, offered = slot.plan, slot.offered
    turns, messages = trajectory.turns, [dict(message) for message in trajectory.messages]
    tokens = sum(turn.new_tokens for turn in turns)
    if trajectory.ended in (*LOST, "hung"):
        lost = [DialogFault(trajectory.ended, trajectory.problem)]
        return MadeDialog(row_of(plan, messages, offered, verified=False, tokens=tokens), lost)
    user = trajectory.simulated_user
    user_faults = [
        DialogFault(f"user: {fault.kind}", fault.reason) for fault in (user.faults if user else ())
    ]
    if not turns and trajectory.ended == "user":
        silent = DialogFault("no question", "the user says nothing to begin with")
        return MadeDialog(row_of(plan, [], offered, verified=False), [silent, *user_faults])
    # the state before the last turn is the one behind it, if that turn calls nothing
    state = turns[-1].state if turns and not turns[-1].results else "?"
    found = [*faults(plan, messages, offered, state if plan.state else ""), *user_faults]
    if trajectory.ended != "user":
        found.append(DialogFault("no end", f"ended by '{trajectory.ended}'"))
    ours = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    for at, turn in zip(ours, turns, strict=False):
        if turn.problem or turn.ended == "cut":
            found.append(DialogFault("nonsense", turn.problem or "the answer is cut off", at))
    for at in {fault.message for fault in found if fault.message is not None}:
        messages[at]["loss"] = False
    return MadeDialog(row_of(plan, messages, offered, tokens=tokens), found)
