"""Kinds of dialogs and their counts -> blueprints that a second process confirms, kept on disk."""

from collections.abc import Callable, Mapping, Sequence
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
TRIES = 120  # walks for one blueprint
MOST_LOST = 20  # worlds, in these


class Slot(Struct, frozen=True):
    """Place `number` among the dialogs of a kind; `blueprint`: None where no walk leads to one.
    `tools`: those that its words name: on offer, or wanted.
    """

    kind: str
    number: int
    blueprint: Blueprint | None = None
    tools: tuple[Tool, ...] = ()

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
    """A slot for each dialog that is wanted. Those on disk are not looked for again."""
    slots: list[Slot] = []
    keys: set[str] = set()  # of the blueprints so far, of which none is to be a copy
    with Appender(path) as file, setup.world() as world:
        stored = [msgspec.convert(row, Slot) for row in read_rows(path)]
        known = {(slot.kind, slot.number): slot for slot in stored}
        for place in ((kind, number) for kind, count in wanted.items() for number in range(count)):
            slot = known.get(place)
            if slot is None:
                slot = _walk(setup, world, Slot(*place), keys)
                file.append(msgspec.to_builtins(slot))
            if slot.blueprint:
                keys.add(slot.blueprint.key)
            slots.append(slot)
            advance(len(slots))
    return slots


def _walk(setup: SearchSetup, world: World, slot: Slot, keys: set[str]) -> Slot:
    """The slot with the first blueprint that a walk leads to, or as it was."""
    lost = 0
    for trial in range(TRIES):
        rng = Random(f"{setup.seed} {slot.kind} {slot.number} {trial}")
        task = rng.choice(setup.tasks)
        try:
            plan = blueprint(slot.kind, Search(world, task, rng), setup.extra_tools)
            is_new = plan and plan.key not in keys and _is_confirmed(setup, plan, task)
        except WorldError as error:
            lost += 1
            if lost == MOST_LOST:
                raise UserError(
                    f"{lost} worlds were lost; the last: {error}.",
                    "Correct the environment; or give --tasks FILE with what its reset takes.",
                    location=setup.location,
                    exit_code=REJECTS,
                ) from error
            continue
        if plan and is_new:
            named = {*plan.tools} | {call.call.name for turn in plan.turns for call in turn.calls}
            tools = tuple(tool for tool in world.tools if tool.name in named)
            filled = Slot(slot.kind, slot.number, plan, tools)
            if setup.accepts(filled):
                return filled
    return slot


def _is_confirmed(setup: SearchSetup, plan: Blueprint, task: EnvironmentTask) -> bool:
    """Whether another process has the same results and the same state: a class that keeps something
    from one world to the next is seen.
    """
    with setup.world() as fresh:
        made, state = carry_out(fresh, task, [call.call for call in plan.made])
    results = [result.text for result in made]
    return results == [call.result for call in plan.made] and state == plan.state
