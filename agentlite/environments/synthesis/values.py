"""Where the argument of a call can come from: earlier outputs, the task's state, its schema."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from random import Random
from typing import Any, NamedTuple

from agentlite.core.json_schema import Schema, value_problem
from agentlite.core.records import Tool
from agentlite.core.tool_results import value_of_result

WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
SHORTEST = 3  # letters of an abbreviation: dir stands for directory
LONGEST = 60  # characters of a value that a user would say
MOST_LEAVES = 2000  # of a state
SOURCE_SHARE = 0.75  # how often the best source of a value is taken
LIKE_ENOUGH = 0.5  # share of a parameter's words that the name of a value has
LITERAL = re.compile(r"[\[{('\"]|(?:None|True|False)$")
# of a parameter that takes any text
FREE_TEXT = {
    *("body", "caption", "comment", "content", "description", "details", "message", "note"),
    *("reason", "resolution", "subject", "text", "title"),
}
SENTENCES = (
    "The meeting is moved to Friday.",
    "Please look at this before noon.",
    "The delivery has arrived.",
    "Thank you for your help.",
    "The numbers of last week are ready.",
    "We need two more chairs.",
    "The door does not close.",
    "All tests have passed.",
)
NAMES = ("notes", "summary", "draft", "plan", "backup", "ideas", "minutes", "results")
NUMBERS = (1, 2, 3, 4, 5, 8, 10, 12, 15, 20, 25, 40, 50, 75, 100)


class KnownValue(NamedTuple):
    """`call`: the number of the call whose output has it, and no other value of that name; None
    where the user has to say it. `guessed`: only its type says that it fits.
    """

    value: Any
    name: str
    call: int | None = None
    guessed: bool = False


def words_of(name: str) -> list[str]:
    """`orderIds` -> order, id."""
    words = [word.lower() for word in WORD.findall(name)]
    return [word[:-1] if len(word) >= SHORTEST and word[-1] == "s" else word for word in words]


def likeness(parameter: str, name: str) -> float:
    """The share of the parameter's words that the name of a value has too, or abbreviates: 1 for
    order_id and orderIds, .5 for source_dir and directory, 0 for city and destination.
    """
    parameter_words, name_words = words_of(parameter), words_of(name)
    shared = 0
    for word in parameter_words:
        pairs = [sorted((word, other), key=len) for other in name_words]
        shared += any(
            short == long or (len(short) >= SHORTEST and long.startswith(short))
            for short, long in pairs
        )
    return shared / len(parameter_words) if parameter_words else 0.0


def leaves(state: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Each single value with its name. A key under which an object stands is a value as well, and
    is named by what kind of thing the object says it is: `{"a.txt": {"type": "file", "size": 3}}`
    has ("file name", "a.txt"), ("type", "file") and ("size", 3).
    """
    if isinstance(state, str) and LITERAL.match(state):  # a world may write it as Python does
        try:
            state = ast.literal_eval(state)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return
    if isinstance(state, Mapping):
        for key, inner in state.items():
            if isinstance(inner, Mapping):
                kind = inner.get("type", "")
                kind = f"{kind} name" if isinstance(kind, str) and kind else name
                if kind:
                    yield kind, str(key)
            yield from leaves(inner, str(key))
    elif isinstance(state, list | tuple):
        for inner in state:
            yield from leaves(inner, name)
    elif isinstance(state, str | int | float) and not isinstance(state, bool):
        yield name, state


def outputs(result: str, call: int) -> list[KnownValue]:
    """The values in a result. A result that is a text has none that could be named."""
    values = known_values(value_of_result(result))
    counts = Counter(value.name for value in values)
    return [value._replace(call=call if counts[value.name] == 1 else None) for value in values]


def known_values(*states: Any) -> list[KnownValue]:
    """The values of a task and of a world's state."""
    return [
        KnownValue(value, name)
        for state in states
        for name, value in islice(leaves(state), MOST_LEAVES)
        if value not in ("", "None") and len(str(value)) <= LONGEST and "\n" not in str(value)
    ]


def arguments(tool: Tool, pool: Sequence[KnownValue], rng: Random) -> dict[str, KnownValue] | None:
    """Arguments of a call, drawn from `pool` and from the schema; None where one is required that
    nothing can fill. A parameter that may be left out is filled from an output, and sometimes from
    elsewhere.
    """
    chosen_values: dict[str, KnownValue] = {}
    required = tool.parameters.get("required", ())
    for name, schema in (tool.parameters.get("properties") or {}).items():
        value = _argument(name, schema, pool, rng)
        if value is None and name in required:
            return None
        if value is not None and (name in required or value.call is not None or rng.random() < 0.2):
            chosen_values[name] = value
    # two parameters with one value: a way from Oslo to Oslo, a message of Ann to Ann
    texts = [str(value.value) for value in chosen_values.values() if isinstance(value.value, str)]
    return chosen_values if len(texts) == len({*texts}) else None


def from_outputs(tool: Tool, pool: Iterable[KnownValue]) -> int:
    """How many required parameters of a tool an output can fill: the calls that lead to it."""
    output_values = [value for value in pool if value.call is not None]
    properties = tool.parameters.get("properties") or {}
    return sum(
        any(_fits(value, name, properties.get(name, {})) for value in output_values)
        for name in tool.parameters.get("required", ())
    )


def _fits(value: KnownValue, parameter: str, schema: Schema) -> bool:
    return likeness(parameter, value.name) >= LIKE_ENOUGH and not value_problem(value.value, schema)


def _argument(
    name: str, schema: Schema, pool: Sequence[KnownValue], rng: Random
) -> KnownValue | None:
    """One value, mostly of the best source that has any."""
    value_lists = [schema[key] for key in ("enum", "examples") if isinstance(schema.get(key), list)]
    value_lists += [[schema["const"]]] if "const" in schema else []
    if value_lists := [values for values in value_lists if values]:
        groups = [[KnownValue(value, name) for value in value_lists[0]]]
    else:
        groups = [group for group in _value_groups(name, schema, pool, rng) if group]
    if not groups:
        return None
    # each group, in its order, is taken in 3 of 4 draws; the best one where no draw takes any
    group = next((group for group in groups if rng.random() < SOURCE_SHARE), groups[0])
    return rng.choice(group)


def _value_groups(
    name: str, schema: Schema, pool: Sequence[KnownValue], rng: Random
) -> Iterator[list[KnownValue]]:
    """Groups of values, the best source first."""
    matches = [value for value in pool if _fits(value, name, schema)]
    best_likeness = max((likeness(name, value.name) for value in matches), default=0.0)
    matches = [value for value in matches if likeness(name, value.name) == best_likeness]
    yield [value for value in matches if value.call is not None]
    yield [value for value in matches if value.call is None]
    kind, words = schema.get("type"), {*words_of(name)}
    if kind == "array":
        inner = schema.get("items") or {"type": "string"}
        values = [_argument(name, inner, pool, rng) for _ in range(rng.randint(1, 3))]
        distinct = {str(value.value): value for value in values if value is not None}.values()
        items = [value.value for value in distinct]
        if items and not value_problem(items, schema):
            yield [KnownValue(items, name, guessed=any(value.guessed for value in distinct))]
        return
    if kind == "object":
        return
    # values that fit a type and mean nothing in particular
    type_values: Sequence[Any] = ()
    if kind == "boolean":
        type_values = (True, False)
    elif kind in ("integer", "number"):
        low, high = schema.get("minimum"), schema.get("maximum")
        between = [low, high] if low is not None and high is not None else []
        type_values = [*NUMBERS, *between, *([0.5, 2.5, 19.9] if kind == "number" else [])]
    elif words & FREE_TEXT:
        type_values = SENTENCES
    elif "name" in words:
        type_values = [f"{file}.txt" for file in NAMES] if "file" in words else NAMES
    yield [KnownValue(value, name) for value in type_values if not value_problem(value, schema)]
    if kind == "string" and not words & FREE_TEXT:
        # last, any text that is known, whatever its name
        texts = [value for value in pool if isinstance(value.value, str)]
        yield [value._replace(call=None, guessed=True) for value in texts]
