"""Blueprints that models play: one speaks for the user, one for the agent; the calls are made."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.config.settings import MakeSettings, RolloutSettings
from agentlite.core.errors import UserError
from agentlite.core.records import Message
from agentlite.environments.gold import GOLD
from agentlite.environments.making.blueprint import Blueprint, PlannedTurn
from agentlite.environments.making.checks import DialogFault, Replay, faults
from agentlite.environments.making.user_profile import profile_of
from agentlite.environments.registry import Environment
from agentlite.environments.simulated_user import SimulatedUser
from agentlite.environments.simulators import Simulators
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.trajectories import LOST, Trajectory, UserFault
from agentlite.environments.user_audit import UserProfile
from agentlite.stages.acting import Acting, act, with_users
from agentlite.stages.make.search import Slot
from agentlite.workspace.run_folder import StageFolder

AT_ONCE = "goal at once"  # a fault of a user who has more than one question


class PlayedDialog(NamedTuple):
    """`messages`: with `loss` at turns that are not to be learned. `faults`: all that is wrong."""

    slot: Slot
    messages: list[dict[str, Any]]
    faults: list[DialogFault]
    verified: tuple[str, ...]
    tokens: int


def players(
    settings: MakeSettings, world: Environment, run: Path, begun: Path | None
) -> Acting | None:
    """The models, as yet without a dialog; None where there are none. Raises UserError."""
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
    shared = {
        name: getattr(settings, name)
        for name in MakeSettings.__struct_fields__
        if name in RolloutSettings.__struct_fields__
    }
    of_user = {
        "user_endpoint": settings.user_endpoint or settings.endpoint,
        "user_model": settings.user_model or settings.model,
        "user_key": settings.user_key if own_user else settings.endpoint_key,
    }
    return with_users(RolloutSettings(**{**shared, **of_user}), world, run, begun)


def play(
    acting: Acting,
    slots: Sequence[Slot],
    tasks: Sequence[EnvironmentTask],
    stage: StageFolder,
) -> Iterator[PlayedDialog]:
    """The dialogs of these slots, in order. Answers are on disk, and no question is asked twice.
    Raises UserError 4 or 8.
    """
    by_id = {task.id: task for task in tasks}
    plans = {slot.blueprint.id: slot for slot in slots if slot.blueprint}
    users = {
        name: profile_of(slot.blueprint, {tool.name: tool for tool in slot.tools})
        for name, slot in plans.items()
        if slot.blueprint
    }
    with acting.open_simulators(stage.folder) as simulators:
        openings = _openings(users, plans, simulators)
    played = acting._replace(
        tasks=[
            EnvironmentTask(
                name, (Message("user", opening.words),), by_id[plan.task].row, _gold(plan)
            )
            for name, opening in openings.items()
            for plan in [_blueprint(plans[name])]
            if opening.words
        ],
        setup=acting.setup._replace(
            users=users,
            offered={name: _blueprint(slot).tools for name, slot in plans.items()},
        ),
    )
    done = {one.task: one for one in act(played, stage, "make")} if played.tasks else {}
    for name, slot in plans.items():
        yield _checked(slot, openings[name], done.get(name))


class _Opening(NamedTuple):
    """The first words of a user, "" for none, and their faults."""

    words: str
    faults: Sequence[UserFault]


def _openings(
    users: Mapping[str, UserProfile], plans: Mapping[str, Slot], simulators: Simulators
) -> dict[str, _Opening]:
    """The first words of each user. Raises UserError 8."""
    waiting = {}
    for name, profile in users.items():
        user = SimulatedUser(profile, most_turns=1)
        tools = [tool.name for tool in plans[name].tools]
        reply = user.reply([], tools)
        waiting[name] = (user, reply, next(reply))
    names = [*waiting]
    openings: dict[str, _Opening] = {}
    for number, answer in simulators.ask([waiting[name][2] for name in names]):
        user, reply, _ = waiting[names[number]]
        if answer.problem:
            openings[names[number]] = _Opening("", [UserFault(1, "no answer", answer.problem)])
            continue
        try:
            reply.send(answer)
        except StopIteration as end:
            openings[names[number]] = _Opening(end.value or "", user.turns.faults)
    return {name: openings[name] for name in names}


def _checked(slot: Slot, opening: _Opening, trajectory: Trajectory | None) -> PlayedDialog:
    """A dialog with all that the rules find in it."""
    plan = _blueprint(slot)
    by_user = [*opening.faults]
    if trajectory is None:
        found = [DialogFault("no question", "the user says nothing to begin with")]
        return PlayedDialog(slot, [], [*found, *_of_user(plan, by_user)], (), 0)
    if trajectory.simulated_user:
        by_user += trajectory.simulated_user.faults
    tokens = sum(turn.new_tokens for turn in trajectory.turns)
    if trajectory.ended in LOST:
        found = [DialogFault(trajectory.ended, trajectory.problem)]
        return PlayedDialog(slot, trajectory.messages, found, (), tokens)
    offered = [tool for tool in slot.tools if tool.name in plan.tools]
    results = [str(one["content"]) for one in trajectory.messages if one["role"] == "tool"]
    turns = trajectory.turns
    # the state before the last turn is the one behind it, if that turn calls nothing
    state = turns[-1].state if turns and not turns[-1].results else "?"
    replay = Replay(results, state if plan.state else "")
    found = [*faults(plan, trajectory.messages, offered, replay), *_of_user(plan, by_user)]
    if trajectory.ended != "user":
        found.append(DialogFault("no end", f"ended by '{trajectory.ended}'"))
    messages = _marked(trajectory, found)
    return PlayedDialog(slot, messages, found, verified_by(plan), tokens)


def verified_by(plan: Blueprint) -> tuple[str, ...]:
    return ("results", "state") if plan.state else ("results",)


def _of_user(plan: Blueprint, by_user: Sequence[UserFault]) -> Iterator[DialogFault]:
    """A user with one question tells its goal at once, and is right to."""
    for fault in by_user:
        if fault.kind != AT_ONCE or len(plan.turns) > 1:
            yield DialogFault(f"user: {fault.kind}", fault.reason)


def _marked(trajectory: Trajectory, found: list[DialogFault]) -> list[dict[str, Any]]:
    """The messages, with `loss` false where a turn is not to be learned: one with a fault, and one
    that the protocol could not read or that was cut.
    """
    messages = [dict(message) for message in trajectory.messages]
    ours = [at for at, one in enumerate(messages) if one["role"] == "assistant"]
    for at, turn in zip(ours, trajectory.turns, strict=False):
        if turn.problem or turn.ended == "cut":
            found.append(DialogFault("nonsense", turn.problem or "the answer is cut off", at))
    for at in {fault.message for fault in found if fault.message is not None}:
        messages[at]["loss"] = False
    return messages


def _gold(plan: Blueprint) -> tuple[tuple[Any, ...], ...]:
    """The right calls of each turn of the user's, as it is played."""
    return tuple(calls for turn in plan.turns for calls in _by_user_turn(turn))


def _by_user_turn(turn: PlannedTurn) -> Iterator[tuple[Any, ...]]:
    if turn.missing:
        yield (turn.slip.call,) if turn.slip else ()
    yield () if turn.refused else tuple(planned.call for planned in turn.calls)


def _blueprint(slot: Slot) -> Blueprint:
    assert slot.blueprint
    return slot.blueprint
