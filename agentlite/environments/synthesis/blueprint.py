"""The plan of a dialog, found by walking: what the user wants and knows, and the right calls.

A walk carries out calls whose arguments are known. What succeeds becomes the plan, once a fresh
world has returned the same.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from random import Random
from typing import Any

import msgspec

from agentlite.core.records import Call, Tool, call_key, canonical, digest
from agentlite.core.tool_results import value_of_result
from agentlite.environments.synthesis import values
from agentlite.environments.synthesis.values import KnownValue
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.world import CallResult, World

TRIES = 12  # calls that may fail for each that succeeds
MOST_USES = 2  # times that a walk may call one tool
OUTPUT_WEIGHT = 8  # how much likelier a tool is for each parameter that an output can fill
NONSENSE = "qzx-31"  # a text that means nothing in any world
MOST_RESULT = 800  # characters of a result: longer ones make rows that are long
MOST_READ = 200  # characters of a text that may say that a call failed
FAILURE = re.compile(
    r"\b(?:nothing|not found|not available|no such|not exist|cannot|could not|unable|invalid"
    r"|unknown|failed|fails|failure|not allowed|denied|must be|should be"
    r"|not (?:logged|authenticated))\b",
    re.IGNORECASE,
)
SUCCESS = re.compile("status|success|ok$|valid", re.IGNORECASE)
# what a tool returns that has nothing to say
NO_RESULT = ("", "null", "None", "{}", "[]", '""')
SAME_PURPOSE = 0.5  # share of their words from which one tool could do the work of another
# what stands before the description itself, as BFCL has it
INTRODUCTION = re.compile(r"^.*\bTool description:\s*", re.DOTALL | re.IGNORECASE)
# "a city, e.g. Oslo" is not two sentences
SENTENCE = re.compile(r"(?<=[.!?])(?<!\be\.g\.)(?<!\bi\.e\.)\s+(?=[A-Z])|\n")
SMALL_WORDS = {
    *("a", "an", "and", "as", "at", "based", "by", "for", "from", "in", "into", "it", "its", "of"),
    *("on", "or", "the", "to", "with", "given", "specific", "specified", "all", "get", "current"),
}


class PlannedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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


class PlannedTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A turn of the user's: its goal is what `calls` do.

    `together`: none of them needs another's result. `missing`: the argument of the first call that
    the user leaves out until the agent asks for it; "" for none. `refused`: no tool on offer makes
    the calls, and the agent has to say so.
    """

    calls: tuple[PlannedCall, ...]
    together: bool = False
    missing: str = ""
    refused: bool = False


class Blueprint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`task`: of the environment, by its id. `tools`: those that its words name; `offered`: the
    names of those on offer. `state`: a digest of the world's behind the last call, "" where the
    world has none.
    """

    kind: str
    task: str
    turns: tuple[PlannedTurn, ...]
    tools: tuple[Tool, ...]
    offered: tuple[str, ...]
    state: str

    @property
    def id(self) -> str:
        return digest(canonical(msgspec.to_builtins(self)))

    @property
    def calls(self) -> list[PlannedCall]:
        return calls_made(self.turns)

    @property
    def key(self) -> str:
        """Equal for blueprints of which one is a copy of the other, whatever the world."""
        calls = [[planned.call for planned in turn.calls] for turn in self.turns]
        return digest(canonical([self.kind, msgspec.to_builtins(calls)]))


def calls_made(turns: Iterable[PlannedTurn]) -> list[PlannedCall]:
    """Those that a dialog has: what is refused is not among them."""
    return [planned for turn in turns if not turn.refused for planned in turn.calls]


class Search:
    """A world that begins anew for each walk, a task and chances."""

    def __init__(self, world: World, task: EnvironmentTask, rng: Random):
        self.world, self.task, self.rng = world, task, rng

    def walk(self, length: int, apart: bool = False) -> list[PlannedCall]:
        """As many calls as `length` says, of which each succeeds and either changes the state or
        returns something. None at all where there are not so many. `apart`: none takes what another
        returned.
        """
        self.world.reset(self.task.row)
        tools, planned_calls, outputs = self.world.tools, list[PlannedCall](), list[KnownValue]()
        # what a task says about its world; of BFCL's rows, that part
        start = self.task.row.get("initial_config", self.task.row)
        state = self.world.state()
        state_digest, known_values = _digest(state), values.known_values(start, state)
        for _ in range(TRIES * length):
            earlier_calls = [planned.call for planned in planned_calls]
            pool, names = [*outputs, *known_values], [call.name for call in earlier_calls]
            candidates = [tool for tool in tools if names.count(tool.name) < MOST_USES]
            if not candidates:
                break
            # rather one that takes what an earlier call returned
            weights = [1 + OUTPUT_WEIGHT * values.from_outputs(tool, pool) for tool in candidates]
            [tool] = self.rng.choices(candidates, weights)
            arguments = values.arguments(tool, pool, self.rng)
            if arguments is None:
                continue
            sources = {name: v.call for name, v in arguments.items() if v.call is not None}
            call = Call(tool.name, {name: value.value for name, value in arguments.items()})
            if (apart and sources) or call_key(call) in map(call_key, earlier_calls):
                continue
            # A text that fits by its type alone is tried with nonsense in its place first
            nonsense = {name: NONSENSE for name, value in arguments.items() if value.guessed}
            trial = Call(tool.name, call.arguments | nonsense)
            if nonsense and not is_error(self.world.call(trial)):
                # it takes anything: that it takes this says nothing
                tools = tuple(other for other in tools if other != tool)
                self.results(earlier_calls)  # back to where the walk was
                continue
            result = self.world.call(call)
            state = self.world.state()
            is_changed = _digest(state) != state_digest
            if is_error(result):
                if is_changed:
                    return []  # half done: no call of a dialog should lead here
                continue
            if len(result.text) <= MOST_RESULT and (is_changed or not _is_empty(result.text)):
                planned_calls.append(PlannedCall(call, result.text, sources))
                outputs += values.outputs(result.text, len(planned_calls) - 1)
                if len(planned_calls) == length:
                    return planned_calls
            if is_changed:
                state_digest, known_values = _digest(state), values.known_values(start, state)
        return []

    def results(self, calls: Sequence[Call]) -> tuple[list[str], str]:
        return carry_out(self.world, self.task, calls)


def carry_out(world: World, task: EnvironmentTask, calls: Sequence[Call]) -> tuple[list[str], str]:
    """What calls return in a fresh world, and the digest of its state behind them."""
    world.reset(task.row)
    return [world.call(call).text for call in calls], _digest(world.state())


def _digest(state: Any) -> str:
    return "" if state is None else digest(canonical(state))


def is_error(result: CallResult) -> bool:
    """Whether a call failed: it raised, or what it returned says so, as in `{"error": "..."}`,
    `{"success": false}` or `{"symbol": "Stock not found"}`.
    """
    if result.failed or result.text.startswith("Error"):
        return True
    fields = value_of_result(result.text)
    if fields is None:
        return FAILURE.search(result.text) is not None
    return isinstance(fields, dict) and any(
        (value is False and SUCCESS.search(name))
        or ("error" in name.lower() and value not in (None, "", [], {}, False, 0))
        or (isinstance(value, str) and FAILURE.search(value[:MOST_READ]))
        for name, value in fields.items()
    )


def _is_empty(result: str) -> bool:
    """Whether a result says nothing: `{"tweets": []}`."""
    value = value_of_result(result)  # None for a text
    return result.strip() in NO_RESULT or (value is not None and _holds_nothing(value))


def _holds_nothing(value: Any) -> bool:
    if isinstance(value, dict):
        value = [*value.values()]
    return all(map(_holds_nothing, value)) if isinstance(value, list) else value in (None, "")


Turns = tuple[PlannedTurn, ...]  # none where a walk leads to no blueprint


def parallel(search: Search) -> Turns:
    """Calls that return the same in the other order, and leave the same behind."""
    walk = search.walk(search.rng.choice((2, 2, 3)), apart=True)
    calls = [planned.call for planned in walk]
    if not walk:
        return ()
    # (["a", "b"], state) forwards has to be (["b", "a"], the same state) backwards
    forwards, backwards = search.results(calls), search.results(calls[::-1])
    if (forwards[0][::-1], forwards[1]) != backwards:
        return ()
    return (PlannedTurn(tuple(walk), together=True),)


def several_turns(search: Search) -> Turns:
    lengths = [search.rng.choice((1, 1, 2)) for _ in range(search.rng.choice((2, 3)))]
    walk = iter(search.walk(sum(lengths)))
    groups = [tuple(islice(walk, length)) for length in lengths]
    return tuple(PlannedTurn(group) for group in groups if group)


def missing_function(search: Search) -> Turns:
    """The last of a few turns asks for what no tool on offer does."""
    walk = search.walk(search.rng.choice((2, 3)))
    return (*_each_in_a_turn(walk[:-1]), *_refused_turns(walk[-1:]))


def missing_parameter(search: Search) -> Turns:
    walk = search.walk(search.rng.choice((1, 1, 2)))
    if not walk:
        return ()
    parameters = {tool.name: tool.parameters for tool in search.world.tools}[walk[0].call.name]
    names = [name for name in walk[0].facts if name in parameters.get("required", ())]
    if not names:
        return ()
    return (
        PlannedTurn((walk[0],), missing=search.rng.choice(names)),
        *_each_in_a_turn(walk[1:]),
    )


KINDS: dict[str, Callable[[Search], Turns]] = {
    "single": lambda search: _each_in_a_turn(search.walk(1)),
    "parallel": parallel,
    "several_turns": several_turns,
    "missing_function": missing_function,
    "missing_parameter": missing_parameter,
    "no_tool": lambda search: _refused_turns(search.walk(1)),
}


def draft_blueprint(kind: str, search: Search, extra_tools: int) -> Blueprint | None:
    """One that a fresh world confirms: the same results, and with `extra_tools` that it does not
    call. None where this walk leads to none. Raises WorldError.
    """
    turns = KINDS[kind](search)
    offered = _choose_tools(search, turns, extra_tools) if turns else ()
    planned_calls = calls_made(turns)
    results, state = search.results([p.call for p in planned_calls]) if offered else ([], "")
    # a world that draws by chance says something else each time
    if not offered or results != [planned.result for planned in planned_calls]:
        return None
    names = {*offered} | {planned.call.name for turn in turns for planned in turn.calls}
    tools = tuple(tool for tool in search.world.tools if tool.name in names)
    return Blueprint(kind, search.task.id, turns, tools, offered, state)


def _each_in_a_turn(calls: Sequence[PlannedCall]) -> Turns:
    return tuple(PlannedTurn((planned,)) for planned in calls)


def _refused_turns(calls: Sequence[PlannedCall]) -> Turns:
    """Without results: nobody will make the calls."""
    return tuple(
        PlannedTurn((msgspec.structs.replace(planned, result=""),), refused=True)
        for planned in calls
    )


def _choose_tools(search: Search, turns: Turns, extra_tools: int) -> tuple[str, ...]:
    """The tools that are called, and some that could do nothing of what is wanted, in an order that
    says nothing. None where a tool that is called could do what is to be refused.
    """
    tools = search.world.tools
    refused_names = {p.call.name for turn in turns if turn.refused for p in turn.calls}
    called_names = {planned.call.name for planned in calls_made(turns)}
    if called_names & _similar_names(refused_names, tools):
        return ()
    similar_names = _similar_names(called_names | refused_names, tools)
    other_names = sorted({tool.name for tool in tools} - similar_names)
    names = [*called_names, *search.rng.sample(other_names, min(extra_tools, len(other_names)))]
    # gold without a tool on offer would teach nothing
    return tuple(search.rng.sample(sorted(names), len(names)))


def _similar_names(names: Collection[str], tools: Sequence[Tool]) -> set[str]:
    """These tools, and all that do nearly the same: their purposes share most words."""
    words_by_name = {tool.name: {*values.words_of(purpose(tool))} - SMALL_WORDS for tool in tools}
    word_sets = [words_by_name[name] for name in names if words_by_name[name]]
    return {*names} | {
        name
        for name, words in words_by_name.items()
        for other_words in word_sets
        if words and len(words & other_words) / min(len(words), len(other_words)) >= SAME_PURPOSE
    }


def purpose(tool: Tool) -> str:
    """The first sentence of its description as a command: `find items in stock`. Without one, the
    words of its name.
    """
    sentence = SENTENCE.split(INTRODUCTION.sub("", tool.description).strip())[0].strip(" .")
    if not sentence:
        return " ".join(word.lower() for word in values.WORD.findall(tool.name)) or tool.name
    verb, _, rest = sentence.partition(" ")
    # finds -> find, carries -> carry, searches -> search
    if len(verb) >= 4 and verb.isalpha() and verb.endswith("s") and not verb.endswith("ss"):
        if verb.endswith("ies"):
            verb = f"{verb[:-3]}y"
        else:
            verb = verb[:-2] if re.search(r"(?:ss|sh|ch|x|zz)es$", verb) else verb[:-1]
    return f"{verb if verb.isupper() else verb[0].lower() + verb[1:]} {rest}".strip()
