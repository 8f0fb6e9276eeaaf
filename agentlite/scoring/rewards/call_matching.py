"""Due calls and calls made -> which call does for which due one, and how well, values cast by the
tool's schema.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from agentlite.core.json_schema import Schema, is_one_of, schema_at, types_of
from agentlite.core.records import Call, GoldCall, Tool, canonical, plain
from agentlite.scoring.metrics.tool_calls import argument_problem

EXACT = 6  # calls of one tool up to which every assignment is weighed
Table = Sequence[Sequence[float]]
AnyCall = TypeVar("AnyCall", Call, GoldCall)


class CallMatch(NamedTuple):
    """How a call agrees with a due call of the same tool: its arguments, counted, and the first
    thing wrong.
    """

    right: int
    given: int
    named: int  # given, and the gold has such a parameter
    missing: int
    casts: int  # right only after a cast
    problem: str

    @property
    def grade(self) -> float:
        """1 if the call satisfies the due one, and only then."""
        return (1 + self.right) / (1 + self.given + self.missing)

    @property
    def strict(self) -> bool:
        return not self.problem and not self.casts


class CallUse(NamedTuple):
    """What is due of one tool, the calls made of it, and how each of them (a column) fits each due
    one (a row).
    """

    expected: list[GoldCall]
    made: list[Call]
    fits: list[list[CallMatch]]

    @property
    def matches(self) -> Iterator[tuple[GoldCall, CallMatch | None]]:
        """Every due call with the call that does for it, if one is left: assigned so that most is
        right.
        """
        columns = dict(assign([[fit.grade for fit in row] for row in self.fits]))
        return (
            (expected, self.fits[row][columns[row]] if row in columns else None)
            for row, expected in enumerate(self.expected)
        )

    def served(self, strict: bool = False) -> int:
        """How many due calls have a call of their own that satisfies them."""
        return len(
            assign(
                [
                    [float(fit.strict if strict else not fit.problem) for fit in row]
                    for row in self.fits
                ]
            )
        )


def uses(
    expected: Iterable[GoldCall], made: Iterable[Call], tools: Iterable[Tool]
) -> dict[str, CallUse]:
    """By the name of the tool: those due first, then any other that was called."""
    found: dict[str, CallUse] = {}
    for gold in expected:
        if gold.name not in found:
            found[gold.name] = CallUse([], [], [])
        found[gold.name].expected.append(gold)
    for call in made:
        if call.name not in found:
            found[call.name] = CallUse([], [], [])
        found[call.name].made.append(call)
    schemas = {tool.name: tool.parameters for tool in tools}
    for name, use in found.items():
        use.fits.extend(
            [fit(call, gold, schemas.get(name, {})) for call in use.made] for gold in use.expected
        )
    return found


def fit(call: Call, expected: GoldCall, schema: Schema) -> CallMatch:
    right = named = casts = 0
    problem = ""
    for name, value in call.arguments.items():
        wrong = argument_problem(name, value, expected, schema)
        if name in expected.arguments:
            named += 1
            if wrong and not (wrong := _problem_after_cast(name, value, expected, schema)):
                casts += 1
        if not wrong:
            right += 1
        elif not problem:
            problem = f"{name} {wrong}"
    missing = [name for name in needed(expected, schema) if name not in call.arguments]
    if missing and not problem:
        problem = f"{missing[0]} is missing"
    return CallMatch(right, len(call.arguments), named, len(missing), casts, problem)


def needed(expected: GoldCall, schema: Schema) -> list[str]:
    """The parameters that may not be left out: by the gold, or by the schema where the gold would
    let them go.
    """
    named = [name for name, accepted in expected.arguments.items() if "" not in accepted]
    return named + [name for name in schema.get("required") or () if name not in named]


def _problem_after_cast(name: str, value: Any, expected: GoldCall, schema: Schema) -> str:
    return argument_problem(
        name, cast(value, schema_at(schema, "properties", name)), expected, schema
    )


def cast(value: Any, schema: Schema) -> Any:
    """The value in the type its schema declares, where it is only written in another: "3" for 3, or
    3 for "3".
    """
    types = types_of(schema)
    if types and not is_one_of(value, types):
        value = _retyped(value, types)
    if isinstance(value, list):
        return [cast(element, schema_at(schema, "items")) for element in value]
    if isinstance(value, dict):
        return {
            key: cast(inner, schema_at(schema, "properties", key)) for key, inner in value.items()
        }
    return value


def _retyped(value: Any, types: set[type]) -> Any:
    """As it is where no cast leads to one of the types."""
    read = value
    try:
        if isinstance(value, str):
            read = msgspec.json.decode(value.lower() if bool in types else value)
        if isinstance(read, float) and int in types and read.is_integer():
            read = int(read)
        if not is_one_of(read, types) and str in types and isinstance(value, int | float):
            return plain(value)
    except (
        msgspec.MsgspecError,
        ValueError,
        RecursionError,
    ):  # no JSON, a number too long, nested too deep
        return value
    return read if is_one_of(read, types) else value


def assign(worth: Table) -> list[tuple[int, int]]:
    """The (row, column) pairs worth most together, each row and column once, none that is worth
    nothing.

    Every assignment is weighed where the shorter side has at most EXACT; beyond, the best pair left
    comes next.
    """
    rows, columns = len(worth), len(worth[0]) if worth else 0
    if rows == columns == 1:
        return [(0, 0)] if worth[0][0] else []
    if rows < columns:
        return [(row, column) for column, row in assign(list(zip(*worth, strict=True)))]
    return _best_of_all(worth) if columns <= EXACT else _best_left(worth)


def _best_of_all(worth: Table) -> list[tuple[int, int]]:
    """Row by row, the best way to have taken each set of columns (a bit each)."""
    best: dict[int, tuple[float, list[tuple[int, int]]]] = {0: (0.0, [])}
    for row, values in enumerate(worth):
        for taken, (earned, pairs) in list(best.items()):
            for column, value in enumerate(values):
                now = taken | 1 << column
                if value and now != taken and (now not in best or earned + value > best[now][0]):
                    best[now] = earned + value, [*pairs, (row, column)]
    return max(best.values(), key=lambda found: found[0])[1]


def _best_left(worth: Table) -> list[tuple[int, int]]:
    ranked = sorted(
        (-value, row, column)
        for row, values in enumerate(worth)
        for column, value in enumerate(values)
    )
    rows: set[int] = set()
    columns: set[int] = set()
    pairs = []
    for value, row, column in ranked:
        if value and row not in rows and column not in columns:
            rows.add(row)
            columns.add(column)
            pairs.append((row, column))
    return pairs


def ordered(calls: Sequence[AnyCall]) -> Sequence[AnyCall]:
    return calls if len(calls) < 2 else sorted(calls, key=identity)


def identity(call: AnyCall) -> tuple[str, str]:
    """What makes two calls the same one, and puts calls in order."""
    return call.name, canonical(call.arguments)
