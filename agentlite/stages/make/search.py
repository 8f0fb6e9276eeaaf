"""Kinds of dialogs and their counts -> blueprints that a second process confirms, kept on disk."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec
from msgspec import Struct

from agentlite.core.errors import REJECTS, UserError
from agentlite.core.records import Tool
from agentlite.core.row_files import Appender, read_rows
from agentlite.environments.synthesis.blueprint import (
    KINDS,
    Blueprint,
    Search,
    blueprint,
    carry_out,
)
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.world import World, WorldError

BLUEPRINTS = "blueprints.jsonl"
OFTEN = ("single", "several_turns")  # twice as many as of each other kind
TOGETHER = 64  # blueprints that one process confirms
ROUNDS = 3  # of walks, where a blueprint was not confirmed
TRIES = 40  # walks for one blueprint, in each round
MOST_LOST = 20  # worlds in a row


class Slot(Struct, frozen=True):
    """Place `number` among the dialogs of a kind; `blueprint`: None where no walk leads to one.
    `tools`: those that its words name: on offer, or wanted.
    """

    kind: str
    number: int
    blueprint: Blueprint | None = None
    tools: tuple[Tool, ...] = ()

    @property
    def place(self) -> tuple[str, int]:
        return self.kind, self.number

    @property
    def plan(self) -> Blueprint:
        """Of a slot that has one."""
        assert self.blueprint
        return self.blueprint

    @property
    def by_name(self) -> dict[str, Tool]:
        return {tool.name: tool for tool in self.tools}

    @property
    def offered(self) -> list[Tool]:
        return [tool for tool in self.tools if tool.name in self.plan.tools]


class SearchSetup(NamedTuple):
    """`world` starts one in a process of its own. `location`: of the environment, for errors.
    `accepts`: whether words can be found for a slot with a blueprint.
    """

    world: Callable[[], World]
    tasks: Sequence[EnvironmentTask]
    extra_tools: int
    seed: int
    location: str
    accepts: Callable[[Slot], bool]


def counts(shares: Mapping[str, float], number: int) -> dict[str, int]:
    """How many dialogs of each kind: the largest remainders are rounded up."""
    shares = shares or {kind: 2.0 if kind in OFTEN else 1.0 for kind in KINDS}
    unknown = [kind for kind in shares if kind not in KINDS]
    total = sum(shares.values())
    if unknown or not total:
        problem = f"'{unknown[0]}' is not a kind." if unknown else "all shares are 0."
        raise UserError(problem, f"The kinds: {', '.join(KINDS)}.", location="--shares")
    exact = {kind: number * share / total for kind, share in shares.items()}
    rounded = {kind: int(wanted) for kind, wanted in exact.items()}
    left = sorted(exact, key=lambda kind: rounded[kind] - exact[kind])
    for kind in left[: number - sum(rounded.values())]:
        rounded[kind] += 1
    return rounded


def find(
    setup: SearchSetup, wanted: Mapping[str, int], path: Path, advance: Callable[[int], None]
) -> list[Slot]:
    """A slot for each dialog that is wanted. Batches on disk are not looked for again."""
    order = [Slot(kind, number) for kind, count in wanted.items() for number in range(count)]
    with Appender(path) as file, setup.world() as world:
        stored = [msgspec.convert(row, Slot) for row in read_rows(path)]
        slots = {slot.place: slot for slot in stored}
        for at in range(0, len(order), TOGETHER):
            batch = order[at : at + TOGETHER]
            missing = [slot for slot in batch if slot.place not in slots]
            if missing:
                # all of a batch that was cut off: what a walk finds depends on the slots before it
                earlier = [slots[slot.place].blueprint for slot in order[:at]]
                filled = _fill(setup, world, batch, {plan.key for plan in earlier if plan})
                for slot in missing:
                    slots[slot.place] = filled.get(slot.place, slot)
                    file.append(msgspec.to_builtins(slots[slot.place]))
            advance(min(at + TOGETHER, len(order)))
    return [slots[slot.place] for slot in order]


def _fill(
    setup: SearchSetup, world: World, slots: Sequence[Slot], keys: set[str]
) -> dict[tuple[str, int], Slot]:
    """Those of these slots for which there is a blueprint. `keys`: of other blueprints, of which
    none is to be a copy.
    """
    done: dict[tuple[str, int], Slot] = {}
    for turn in range(ROUNDS):
        left = [slot for slot in slots if slot.place not in done]
        filled = [_walk(setup, world, slot, turn, keys) for slot in left]
        confirmed = _confirm(setup, [slot for slot in filled if slot.blueprint])
        done |= {slot.place: slot for slot in confirmed if setup.accepts(slot)}
    return done


def _walk(setup: SearchSetup, world: World, slot: Slot, turn: int, keys: set[str]) -> Slot:
    """The slot with the first blueprint that a walk leads to, or as it was."""
    lost = 0
    for trial in range(TRIES):
        rng = Random(f"{setup.seed} {slot.kind} {slot.number} {turn} {trial}")
        task = rng.choice(setup.tasks)
        try:
            plan = blueprint(slot.kind, Search(world, task, rng), setup.extra_tools)
        except WorldError as error:
            lost += 1
            if lost == MOST_LOST:
                raise UserError(
                    f"{lost} worlds in a row were lost; the last: {error}.",
                    "Correct the environment; or give --tasks FILE with what its reset takes.",
                    location=setup.location,
                    exit_code=REJECTS,
                ) from error
            continue
        if plan and plan.key not in keys:
            keys.add(plan.key)
            named = {*plan.tools} | {call.call.name for turn in plan.turns for call in turn.calls}
            tools = tuple(tool for tool in world.tools if tool.name in named)
            return Slot(slot.kind, slot.number, plan, tools)
    return slot


def _confirm(setup: SearchSetup, slots: Sequence[Slot]) -> Iterator[Slot]:
    """Those whose calls have the same results and end in the same state in another process, in
    which the last comes first: a class that keeps something from one world to the next is seen.
    """
    if not slots:
        return
    by_id = {task.id: task for task in setup.tasks}
    with setup.world() as world:
        for slot in reversed(slots):
            plan = slot.plan
            try:
                made, state = carry_out(world, by_id[plan.task], [call.call for call in plan.made])
            except WorldError:
                continue
            results = [result.text for result in made]
            if results == [call.result for call in plan.made] and state == plan.state:
                yield slot
