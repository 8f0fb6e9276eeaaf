"""A walk through a world: calls whose arguments are known, each carried out, with what it gave."""

import re
from collections.abc import Collection, Sequence
from random import Random
from typing import Any

from msgspec import Struct

from agentlite.core.records import Call, Tool, canonical, digest
from agentlite.environments.gold_calls import call_key
from agentlite.environments.making.values import (
    KnownValue,
    arguments,
    from_outputs,
    known,
    outputs,
    read_json,
)
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.world import CallResult, World

TRIES = 12  # calls that may fail for each that succeeds
TWICE = 2  # times that a walk may call one tool
LED_TO = 8  # how much likelier a tool is for each parameter that an output can fill
ODD = "qzx-31"  # a text that means nothing in any world
MOST_TOLD = 800  # characters of a result: longer ones make rows that are long
MOST_READ = 200  # characters of a text that may say that a call failed
FAILED = re.compile(
    r"\b(?:nothing|not found|not available|no such|not exist|cannot|could not|unable|invalid"
    r"|unknown|failed|fails|failure|not allowed|denied|must be|should be"
    r"|not (?:logged|authenticated))\b",
    re.IGNORECASE,
)
SUCCESS = re.compile("status|success|ok$|valid", re.IGNORECASE)
# what a tool returns that has nothing to say
EMPTY = ("", "null", "None", "{}", "[]", '""')


class PlannedCall(Struct, frozen=True, forbid_unknown_fields=True):
    """A call and what it returned. `sources`: of each argument that an output gave, the number of
    the call in its dialog; the user has to say the others.
    """

    call: Call
    result: str
    sources: dict[str, int] = {}

    @property
    def facts(self) -> dict[str, Any]:
        """What the user has to say for this call."""
        return {
            name: value for name, value in self.call.arguments.items() if name not in self.sources
        }


class Search:
    """Where calls for a blueprint are looked for, and with which chances: a world that begins anew
    for each walk.
    """

    def __init__(self, world: World, task: EnvironmentTask, rng: Random):
        self.world, self.task, self.rng = world, task, rng

    @property
    def tools(self) -> tuple[Tool, ...]:
        return self.world.tools

    def walk(self, length: int, apart: bool = False) -> list[PlannedCall]:
        """As many calls as `length` says, of which each succeeds and either changes the state or
        returns something. None at all where there are not so many. `apart`: none takes what another
        returned.
        """
        self.world.reset(self.task.row)
        tools, made, outputs_of = self.tools, list[PlannedCall](), list[KnownValue]()
        # what a task says about its world; of BFCL's rows, that part
        given = self.task.row.get("initial_config", self.task.row)
        state = self.world.state()
        place, values = _digest(state), known(given, state)
        for _ in range(TRIES * length):
            pool = [*outputs_of, *values]
            tool = _next_tool(tools, [planned.call.name for planned in made], pool, self.rng)
            chosen = arguments(tool, pool, self.rng) if tool else None
            if tool is None or chosen is None:
                continue
            sources = {name: value.call for name, value in chosen.items() if value.call is not None}
            if apart and sources:
                continue
            call = Call(tool.name, {name: value.value for name, value in chosen.items()})
            key = call_key(call.name, call.arguments)
            if key in [call_key(planned.call.name, planned.call.arguments) for planned in made]:
                continue
            odd = {name: ODD for name, value in chosen.items() if value.guessed}
            if odd and not is_error(self.world.call(Call(tool.name, {**call.arguments, **odd}))):
                # it takes anything: that it takes this says nothing
                tools = tuple(other for other in tools if other != tool)
                self.results([planned.call for planned in made])
                continue
            result = self.world.call(call)
            state = self.world.state()
            now = _digest(state)
            is_changed = now != place
            if is_error(result):
                if is_changed:
                    return []  # half done: no call of a dialog should lead here
                continue
            if (is_changed or not _is_empty(result.text)) and len(result.text) <= MOST_TOLD:
                made.append(PlannedCall(call, result.text, sources))
                outputs_of += outputs(result.text, len(made) - 1)
                if len(made) == length:
                    return made
            if is_changed:
                place, values = now, known(given, state)
        return []

    def results(self, calls: Sequence[Call]) -> tuple[list[CallResult], str]:
        return carry_out(self.world, self.task, calls)


def carry_out(
    world: World, task: EnvironmentTask, calls: Sequence[Call]
) -> tuple[list[CallResult], str]:
    """The results of calls in a fresh world, and the digest of its state behind them."""
    world.reset(task.row)
    results = [world.call(call) for call in calls]
    return results, _digest(world.state())


def _digest(state: Any) -> str:
    return "" if state is None else digest(canonical(state))


def is_error(result: CallResult) -> bool:
    """Whether a call failed: it raised, or what it returned says so, as in `{"error": "..."}`,
    `{"success": false}` or `{"symbol": "Stock not found"}`.
    """
    if result.failed or result.text.startswith("Error"):
        return True
    read = read_json(result.text)
    if read is None:
        return FAILED.search(result.text) is not None
    if not isinstance(read, dict):
        return False
    return any(
        (value is False and SUCCESS.search(name))
        or ("error" in name.lower() and value not in (None, "", [], {}, False, 0))
        or (isinstance(value, str) and FAILED.search(value[:MOST_READ]))
        for name, value in read.items()
    )


def _next_tool(
    tools: Sequence[Tool], made: Collection[str], pool: Sequence[KnownValue], rng: Random
) -> Tool | None:
    """A tool to call next: rather one that takes what an earlier call returned."""
    left = [tool for tool in tools if [*made].count(tool.name) < TWICE]
    if not left:
        return None
    weights = [1 + LED_TO * from_outputs(tool, pool) for tool in left]
    return rng.choices(left, weights)[0]


def _is_empty(result: str) -> bool:
    """Whether a result says nothing: `{"tweets": []}`."""
    if result.strip() in EMPTY:
        return True
    waiting = [read_json(result)]
    if waiting == [None]:
        return False
    for value in waiting:
        if isinstance(value, dict | list):
            waiting += value.values() if isinstance(value, dict) else value
        elif value not in (None, ""):
            return False
    return True
