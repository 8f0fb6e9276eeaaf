"""Which call is assigned to which expected call, and how well it fits, by the tool's schema."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from agentlite.core.json_schema import Schema, is_of_types, schema_at, types_of, value_problem
from agentlite.core.records import ANY_ARGUMENTS, ANY_TOOL, Call, GoldCall, Tool, to_json
from agentlite.scoring.assignment import assign
from agentlite.scoring.metrics.step_metrics import (
    argument_problem,
    identity,
    is_named,
    required_names,
)

ASSIGNMENT_WORTH = 1e-9  # what the mere assignment of a call is worth


class CallMatch(NamedTuple):
    """How a call agrees with an expected one of its tool: counts, and the first problem."""

    right: int
    supplied: int
    named: int  # given, and the gold has such a parameter
    missing: int
    casts: int  # right only after a cast
    problem: str

    @property
    def grade(self) -> float:
        """The share of right arguments: 1 if, and only if, the call satisfies the expected one."""
        arguments = self.supplied + self.missing
        return self.right / arguments if arguments else 1.0


class CallUse(NamedTuple):
    """The expected calls of one tool, the calls made of it, and how each call made (a column)
    matches each expected one (a row).
    """

    expected: list[GoldCall]
    calls: list[Call]
    matches: list[list[CallMatch]]

    @property
    def assignments(self) -> Iterator[tuple[GoldCall, CallMatch | None]]:
        """Every expected call with the call assigned to it, if there is one: assigned so that the
        sum of the grades is highest. A call that repeats another one is assigned to none.
        """
        repetitions = self.repetitions
        distinct = [i for i in range(len(self.calls)) if i not in repetitions]
        # a call without one right argument is still assigned where nothing better is left; columns
        # of the grades are indices of `distinct`, not of `calls`
        grades = [[row[i].grade + ASSIGNMENT_WORTH for i in distinct] for row in self.matches]
        columns = dict(assign(grades))
        return (
            (expected, self.matches[row][distinct[columns[row]]] if row in columns else None)
            for row, expected in enumerate(self.expected)
        )

    @property
    def repetitions(self) -> set[int]:
        """The calls that repeat another one, beyond the expected calls that accept them."""
        columns: dict[tuple[str, str], list[int]] = {}
        for index, call in enumerate(self.calls):
            columns.setdefault(identity(call), []).append(index)
        repetitions: set[int] = set()
        for indices in columns.values():
            accepted = sum(not row[indices[0]].problem for row in self.matches)
            repetitions.update(indices[max(1, accepted) :])
        return repetitions

    def count_satisfied(self, strict: bool = False) -> int:
        """How many expected calls are satisfied, each by another call; `strict`: with no cast."""
        satisfied = [[not (m.problem or (strict and m.casts)) for m in row] for row in self.matches]
        return len(assign(satisfied))


def uses_by_tool(
    expected: Iterable[GoldCall], calls: Iterable[Call], tools: Iterable[Tool]
) -> dict[str, CallUse]:
    """By the name of the tool: the expected ones first, then any other that was called. Where any
    tool will do, that of a call made of a tool on offer is expected, of which none else is. The
    order of the calls changes nothing.
    """
    expected, calls = sorted(expected, key=identity), sorted(calls, key=identity)
    schemas = {tool.name: tool.parameters for tool in tools}
    # calls of tools on offer beyond the expected ones of their name: each may be one of "any tool"
    spare_names = Counter(call.name for call in calls if call.name in schemas)
    spare_names -= Counter(gold.name for gold in expected)
    names = spare_names.elements()
    by_name: dict[str, CallUse] = defaultdict(lambda: CallUse([], [], []))
    for gold in expected:
        if gold.name == ANY_TOOL and (name := next(names, ANY_TOOL)):
            gold = GoldCall(name, ANY_ARGUMENTS)
        by_name[gold.name].expected.append(gold)
    for call in calls:
        by_name[call.name].calls.append(call)
    for name, use in by_name.items():
        schema = schemas.get(name, {})
        use.matches.extend([match_call(c, g, schema) for c in use.calls] for g in use.expected)
    return dict(by_name)


def match_call(call: Call, expected: GoldCall, schema: Schema) -> CallMatch:
    named = casts = 0
    problems: list[str] = []
    for name, value in call.arguments.items():
        problem = argument_problem(name, value, expected, schema)
        if is_named(name, expected, schema):
            named += 1
            if problem:
                retyped = cast(value, schema_at(schema, "properties", name))
                problem = argument_problem(name, retyped, expected, schema)
                casts += not problem
        problems += [f"{name} {problem}"] if problem else []
    right = len(call.arguments) - len(problems)
    required = required_names(expected, schema)
    missing = [f"{name} is missing" for name in required if name not in call.arguments]
    if expected.arguments is ANY_ARGUMENTS and not (problems or missing or casts):
        # each argument fits, but maybe not all of them together
        error = value_problem(call.arguments, schema)
        missing += [error] if error else []
    problem = next(iter(problems + missing), "")
    return CallMatch(right, len(call.arguments), named, len(missing), casts, problem)


def cast(value: object, schema: Schema) -> object:
    """The value in its schema's type, where it is only written in another: "3" for 3."""
    types = types_of(schema)
    if types and not is_of_types(value, types):
        value = _convert(value, types)
    if isinstance(value, list):
        return [cast(element, schema_at(schema, "items")) for element in value]
    if isinstance(value, dict):
        return {
            key: cast(inner, schema_at(schema, "properties", key)) for key, inner in value.items()
        }
    return value


def _convert(value: object, types: set[type]) -> object:
    """The value itself where no cast leads to one of the types."""
    converted = value
    try:
        if isinstance(value, str):
            converted = msgspec.json.decode(value.lower() if bool in types else value)
        if isinstance(converted, float) and int in types and converted.is_integer():
            converted = int(converted)
        if not is_of_types(converted, types) and str in types and isinstance(value, int | float):
            return to_json(value)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return value  # not JSON, a number too long, nested too deep
    return converted if is_of_types(converted, types) else value
