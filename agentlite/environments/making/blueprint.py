"""The plan of a dialog, found by walking: what the user wants and knows, and the right calls."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agentlite.core.json_schema import misfit
from agentlite.core.records import Call, Tool, canonical, digest
from agentlite.environments.making.purpose import purpose, resemblance
from agentlite.environments.making.walk import PlannedCall, Search, is_error

SAME_PURPOSE = 0.5  # resemblance from which one tool could do the work of another
MISSPELT = 3  # characters of a value that can be misspelt


class PlannedTurn(Struct, frozen=True, forbid_unknown_fields=True):
    """A turn of the user's: its goal is what `calls` do.

    `together`: none of them needs another's result. `missing`: the argument of the first call that
    the user leaves out until the agent asks for it; "" for none. `slip`: a call that fails, with
    what the user says wrongly at first, before the right one. `refused`: no tool on offer makes the
    calls, and the agent has to say so.
    """

    calls: tuple[PlannedCall, ...]
    together: bool = False
    missing: str = ""
    slip: PlannedCall | None = None
    refused: bool = False

    @property
    def made(self) -> list[PlannedCall]:
        """The calls that a dialog has, in order."""
        if self.refused:
            return []
        return [*([self.slip] if self.slip else []), *self.calls]


class Blueprint(Struct, frozen=True, forbid_unknown_fields=True):
    """`task`: of the environment, by its id. `tools`: the names of those on offer. `state`: a
    digest of the world's behind the last call, "" where the world has none.
    """

    kind: str
    task: str
    turns: tuple[PlannedTurn, ...]
    tools: tuple[str, ...]
    state: str

    @property
    def id(self) -> str:
        return digest(canonical(msgspec.to_builtins(self)))

    @property
    def made(self) -> list[PlannedCall]:
        return [call for turn in self.turns for call in turn.made]

    @property
    def key(self) -> str:
        """Equal for blueprints of which one is a copy of the other, whatever the world."""
        calls = [[call.call for call in turn.calls] for turn in self.turns]
        return digest(canonical([self.kind, msgspec.to_builtins(calls)]))


Turns = tuple[PlannedTurn, ...]  # none where a walk leads to no blueprint


def single(search: Search) -> Turns:
    return _one_by_one(search.walk(1))


def parallel(search: Search) -> Turns:
    """Calls that return the same in the other order, and leave the same behind."""
    walked = search.walk(search.rng.choice((2, 2, 3)), apart=True)
    calls = [one.call for one in walked]
    if not walked:
        return ()
    forwards, backwards = search.results(calls), search.results(calls[::-1])
    if (forwards[0][::-1], forwards[1]) != backwards:
        return ()
    return (PlannedTurn(tuple(walked), together=True),)


def several_turns(search: Search, numbers: Sequence[int] = (2, 3)) -> Turns:
    """`numbers`: of turns, of which one is drawn."""
    lengths = [search.rng.choice((1, 1, 2)) for _ in range(search.rng.choice(numbers))]
    walked = iter(search.walk(sum(lengths)))
    groups = [tuple(islice(walked, length)) for length in lengths]
    return tuple(PlannedTurn(group) for group in groups if group)


def long(search: Search) -> Turns:
    return several_turns(search, (5, 6))


def missing_function(search: Search) -> Turns:
    """The last of a few turns asks for what no tool on offer does."""
    walked = search.walk(search.rng.choice((2, 3)))
    return (*_one_by_one(walked[:-1]), *_refused(walked[-1:]))


def no_tool(search: Search) -> Turns:
    return _refused(search.walk(1))


def missing_parameter(search: Search) -> Turns:
    walked = search.walk(search.rng.choice((1, 1, 2)))
    if not walked or not (names := _required(search, walked[0])):
        return ()
    first = PlannedTurn((walked[0],), missing=search.rng.choice(names))
    return (first, *_one_by_one(walked[1:]))


def error(search: Search) -> Turns:
    """A value that the world refuses, and the right one behind it."""
    walked = search.walk(1)
    if not walked:
        return ()
    call = walked[0].call
    misspelt = {
        name: value[:-2] + value[-1]  # without its last character but one
        for name in _required(search, walked[0])
        if isinstance(value := call.arguments[name], str) and len(value) >= MISSPELT
    }
    if not misspelt:
        return ()
    name = search.rng.choice([*misspelt])
    wrong = Call(call.name, {**call.arguments, name: misspelt[name]})
    if misfit(wrong.arguments, _tool(search, walked[0]).parameters):
        return ()  # the schema refuses it before the world does
    [failed], state = search.results([wrong])
    if not is_error(failed) or state != search.results([])[1]:
        return ()
    return (PlannedTurn(tuple(walked), missing=name, slip=PlannedCall(wrong, failed.text)),)


KINDS: dict[str, Callable[[Search], Turns]] = {
    one.__name__: one
    for one in (
        single,
        parallel,
        several_turns,
        missing_function,
        missing_parameter,
        no_tool,
        error,
        long,
    )
}


def blueprint(kind: str, search: Search, extra_tools: int) -> Blueprint | None:
    """One that a fresh world confirms: the same results, and with `extra_tools` that it does not
    call. None where this walk leads to none. Raises WorldError.
    """
    turns = KINDS[kind](search)
    if not turns:
        return None
    tools = _offered(search, turns, extra_tools)
    made = [call for turn in turns for call in turn.made]
    results, state = search.results([one.call for one in made])
    # a world that draws by chance says something else each time
    if not tools or [one.text for one in results] != [one.result for one in made]:
        return None
    return Blueprint(kind, search.task.id, turns, tools, state)


def _one_by_one(calls: Sequence[PlannedCall]) -> Turns:
    return tuple(PlannedTurn((one,)) for one in calls)


def _refused(calls: Sequence[PlannedCall]) -> Turns:
    """Without results: nobody will make the calls."""
    return tuple(PlannedTurn((replace(one, result=""),), refused=True) for one in calls)


def _tool(search: Search, planned: PlannedCall) -> Tool:
    return next(one for one in search.tools if one.name == planned.call.name)


def _required(search: Search, planned: PlannedCall) -> list[str]:
    """The arguments that the user has to say."""
    required = _tool(search, planned).parameters.get("required", ())
    return [name for name in planned.facts if name in required]


def _offered(search: Search, turns: Turns, extra: int) -> tuple[str, ...]:
    """The tools that are called, and some that could do nothing of what is wanted, in an order that
    says nothing.
    """
    by_name = {tool.name: tool for tool in search.tools}
    wanted = {call.call.name for turn in turns for call in turn.calls}
    refused = {call.call.name for turn in turns if turn.refused for call in turn.calls}
    called = {call.call.name for turn in turns for call in turn.made}
    if called & _alike(refused, by_name):
        return ()
    others = sorted(by_name.keys() - _alike(wanted, by_name))
    kept = [*called, *search.rng.sample(others, min(extra, len(others)))]
    # gold without a tool on offer would teach nothing
    return tuple(search.rng.sample(sorted(kept), len(kept)))


def _alike(names: Collection[str], tools: Mapping[str, Tool]) -> set[str]:
    """These tools, and all that do nearly the same."""
    purposes = [purpose(tools[name]) for name in names]
    return {
        name
        for name, tool in tools.items()
        if name in names
        or any(resemblance(purpose(tool), wanted) >= SAME_PURPOSE for wanted in purposes)
    }
