"""Calls and their gold -> metrics of a step and the kind of its mistake, by BFCL's AST rules for
Python.

Two things pass here that BFCL refuses even as the gold writes them: an object inside an object
whose values are lists of accepted ones, and a list that begins with a float and goes on with an
integer. Parallel calls are matched to their gold as well as they can be, where BFCL takes the first
call that fits. And three pass there that do not pass here: another number in a text (1.5 for 15),
another sign of an expression (2/3 for 2*3), and one mark for another ("-" for "+").
"""

import inspect
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentlite.core import json_schema
from agentlite.core.json_schema import Schema, allows_key
from agentlite.core.records import (
    ANY_ARGUMENTS,
    Call,
    Gold,
    GoldCall,
    Parsed,
    Tool,
    canonical,
    choices_of,
)
from agentlite.scoring.assignment import assign

Metric = Callable[[Parsed, Gold, Sequence[Tool]], float | None]

# what argument_problem says of a parameter, and of a value of the right type
UNEXPECTED, OTHER_VALUE = "is not expected", "has a value that is not accepted"

FORGIVEN = re.compile(r"[ ,./\-_*^]")
PADDING = 20  # characters by which a text may be longer than twice the accepted one
BLANKS = re.compile(r"\s+")
NUMBER = re.compile(r"\s*-?\d+(?:\.\d+)?\s*", re.ASCII)
# of arithmetic: digits or brackets on both sides. A hyphen or a slash alone may be a date's
SIGNS = re.compile(r"[\d)]\s*[*^+]\s*[-\d(]|[\d)]\s*[-/]\s*\(|\)\s*[-/]\s*\d")


def tool_selection_accuracy(parsed: Parsed, gold: Gold, tools: Sequence[Tool]) -> float | None:
    """The model calls the expected tools. Questions that need one only.

    1 if the tools called are those expected, each as often as expected, and the text can be read.
    """
    if not gold.names_tools:
        return None
    return float(
        not parsed.problem
        and Counter(c.name for c in parsed.calls) == Counter(c.name for c in gold.calls)
    )


def exact_call(parsed: Parsed, gold: Gold, tools: Sequence[Tool]) -> float | None:
    """The tools and all arguments are right. Questions that need a tool only.

    1 if the calls, names and arguments, satisfy the gold, and the text can be read.
    """
    if not gold.names_tools:
        return None
    return float(not parsed.problem and calls_right(parsed.calls, gold, tools))


def call_decision(parsed: Parsed, gold: Gold, tools: Sequence[Tool]) -> float:
    """The model calls a tool where one is needed, and answers where none is.

    Text that cannot be read is never a right "no call".
    """
    return float(bool(parsed.calls) if gold.calls else not parsed.calls and not parsed.problem)


def format_compliance(parsed: Parsed, gold: Gold, tools: Sequence[Tool]) -> float:
    """The answer can be read, and its calls fit the tools on offer.

    1 if every tool called is on offer, and the arguments fit its schema, or are accepted by the
    gold.
    """
    by_name = {tool.name: tool for tool in tools}
    return float(
        not parsed.problem
        and all(
            call.name in by_name and is_valid(call, gold, by_name[call.name])
            for call in parsed.calls
        )
    )


def is_valid(call: Call, gold: Gold, tool: Tool) -> bool:
    """Whether the arguments fit the tool's schema. Those that the gold accepts do: it may know
    better, as some of BFCL's does.
    """
    return json_schema.fits(call.arguments, tool.parameters) or any(
        satisfies(call, expected, tool) for expected in gold.calls
    )


METRICS: dict[str, Metric] = {
    metric.__name__: metric
    for metric in (tool_selection_accuracy, exact_call, call_decision, format_compliance)
}


def identity(call: Call | GoldCall) -> tuple[str, str]:
    """Equal for calls that are the same, and the key by which calls are sorted."""
    return call.name, canonical(call.arguments)


def describe(metrics: Mapping[str, Callable[..., object]]) -> dict[str, str]:
    """What each of them says, for a report: the first paragraph of its docstring."""
    docstrings = {name: inspect.getdoc(metric) or "" for name, metric in metrics.items()}
    return {name: " ".join(text.split("\n\n")[0].split()) for name, text in docstrings.items()}


def score_step(parsed: Parsed, gold: Gold, tools: Sequence[Tool]) -> dict[str, float]:
    """Every metric that applies to the step, each in [0, 1]."""
    values = {name: metric(parsed, gold, tools) for name, metric in METRICS.items()}
    return {name: value for name, value in values.items() if value is not None}


def is_right(values: Mapping[str, float]) -> bool:
    """Whether a step is right by its metrics: the whole calls; or whether to call, where none is
    expected or any tool will do.
    """
    return values.get("exact_call", values["call_decision"]) == 1


def calls_right(calls: Sequence[Call], gold: Gold, tools: Sequence[Tool]) -> bool:
    """Whether the calls of a step satisfy its gold: as many as expected, in any order, so that each
    gold call has a call of its own that satisfies it.
    """
    if len(calls) != len(gold.calls):
        return False
    by_name = {tool.name: tool for tool in tools}
    satisfied = [
        [satisfies(call, expected, by_name.get(expected.name)) for call in calls]
        for expected in gold.calls
    ]
    return len(assign(satisfied)) == len(calls)


def satisfies(call: Call, gold: GoldCall, tool: Tool | None) -> bool:
    """`tool` is the one the gold names. Without one, or where its schema is silent, the gold's own
    parameters and types stand in.
    """
    schema = tool.parameters if tool else {}
    if call.name != gold.name:
        return False
    if gold.arguments is ANY_ARGUMENTS:
        return not json_schema.value_problem(call.arguments, schema)
    return all(name in call.arguments for name in required_names(gold, schema)) and not any(
        argument_problem(name, value, gold, schema) for name, value in call.arguments.items()
    )


def argument_problem(name: str, value: object, gold: GoldCall, schema: Schema) -> str:
    """Why an argument of the gold's tool, of this `schema`, is not accepted; "" if it is."""
    if not is_named(name, gold, schema) or not allows_key(schema, name):
        return UNEXPECTED
    if isinstance(value, list | dict) and json_schema.is_too_deep(value):
        return "is nested too deep"
    if gold.arguments is ANY_ARGUMENTS:
        rules = {key: rule for key, rule in schema.items() if key != "required"}
        return "does not fit its schema" if json_schema.value_problem({name: value}, rules) else ""
    parameter_schema = json_schema.schema_at(schema, "properties", name)
    return _value_problem(value, gold.arguments[name], parameter_schema)


def is_named(name: str, gold: GoldCall, schema: Schema) -> bool:
    """Whether a parameter is one of the gold's; of the schema's where any arguments are right."""
    return allows_key(schema, name) if gold.arguments is ANY_ARGUMENTS else name in gold.arguments


def required_names(gold: GoldCall, schema: Schema) -> list[str]:
    """The parameters that may not be left out: by the gold, or by the schema alone."""
    accepted_values = gold.arguments or {}
    names = [name for name, accepted in accepted_values.items() if "" not in accepted]
    return names + [name for name in schema.get("required") or () if name not in names]


def _value_problem(value: object, accepted: list[object], schema: Schema) -> str:
    declared_types = json_schema.types_of(schema)
    answers = [answer for answer in accepted if answer != ""]
    # where a type is declared, the first answer says whether the gold keeps to it, as in BFCL
    gold_types = {type(answer) for answer in (answers[:1] if declared_types else answers)}
    types = declared_types or gold_types
    if types and not json_schema.is_of_types(value, types) and type(value) not in gold_types:
        return f"is a {type(value).__name__}"
    if isinstance(value, list):
        # beside some answer, each element has the declared type or that of one of the answer's
        element_types = json_schema.types_of(json_schema.schema_at(schema, "items"))
        if not any(
            not isinstance(answer, list)
            or {type(v) for v in value} <= element_types | {type(a) for a in answer}
            for answer in accepted
        ):
            return "has elements of a wrong type"
    # gold of another type than the declared one names a variable: no spelling is forgiven in it
    matches = _matches if gold_types <= types else _matches_strictly
    return "" if any(matches(value, answer) for answer in accepted) else OTHER_VALUE


def _matches(value: object, answer: Any) -> bool:
    """An empty list is also one where the parameter may be left out."""
    if isinstance(value, str):
        return isinstance(answer, str) and _texts_match(value, answer)
    if isinstance(value, list):
        is_list = isinstance(answer, list) or answer == ""
        return is_list and len(value) == len(answer) and all(map(_matches_loosely, value, answer))
    if isinstance(value, dict):
        return isinstance(answer, dict) and _fills(value, answer)
    return _matches_strictly(value, answer)


def _texts_match(value: str, answer: str) -> bool:
    """Whether texts are the same but for what BFCL forgives, and what it forgives says nothing."""
    if standardize(value) != standardize(answer) or len(value) > 2 * len(answer) + PADDING:
        return False
    if value == answer:
        return True
    if not standardize(answer):
        return not (value.strip() or answer.strip())
    if SIGNS.search(value) or SIGNS.search(answer):
        return BLANKS.sub("", value).lower() == BLANKS.sub("", answer).lower()
    return not (NUMBER.fullmatch(value) and NUMBER.fullmatch(answer)) or float(value) == float(
        answer
    )


def _fills(value: dict[str, Any], answer: dict[str, Any]) -> bool:
    """Whether each key has an accepted value, and each that may not be left out is there."""
    accepted = choices_of(answer)
    return all(
        key in accepted and any(_matches_loosely(v, choice) for choice in accepted[key])
        for key, v in value.items()
    ) and all(key in value or "" in choices for key, choices in accepted.items())


def _matches_loosely(value: object, answer: object) -> bool:
    if isinstance(value, str) and isinstance(answer, str):
        return _texts_match(value, answer)
    return _matches_strictly(value, answer)


def _matches_strictly(value: object, answer: object) -> bool:
    """Equal; or, deeper than BFCL looks, an object that fills its answer, or a list of such."""
    if isinstance(value, dict) and isinstance(answer, dict):
        return value == answer or _fills(value, answer)
    if isinstance(value, list) and isinstance(answer, list):
        return len(value) == len(answer) and all(map(_matches_strictly, value, answer))
    return bool(value == answer)


def standardize(value: object) -> object:
    """Text without what BFCL forgives; any other value as it is."""
    return FORGIVEN.sub("", value).lower().replace("'", '"') if isinstance(value, str) else value


# The kinds of wrong answers, in words: one with several mistakes is of the first that it has.
WRONG_KINDS = {
    "no_answer": "no answer",
    "cut_off": "cut off",
    "unreadable": "cannot be read",
    "unwanted_call": "a call where none is wanted",
    "no_call": "no call where one is wanted",
    "wrong_tool": "wrong tool",
    "number_of_calls": "too few or too many calls",
    "missing_required": "required parameter left out",
    "missing_optional": "optional parameter left out",
    "extra_parameter": "parameter too many",
    "wrong_type": "value of a wrong type",
    "other_text": "wrong value, a text",
    "other_value": "wrong value, a number or a list",
}
# the problems of a prompt that has no answer at all
TOO_LONG = "prompt longer than max_length"
NO_PREDICTION = "no prediction"
UNANSWERED = "no answer from the server"


def wrong_kind(parsed: Parsed, gold: Gold, tools: Sequence[Tool], *, finished: bool = True) -> str:
    """The kind of a wrong answer; "" for a right one, and where nobody knows what is right."""
    if not gold.known or is_right(score_step(parsed, gold, tools)):
        return ""
    if parsed.problem in (TOO_LONG, NO_PREDICTION, UNANSWERED):
        return "no_answer"
    if not finished:
        return "cut_off"
    if parsed.problem:
        return "unreadable"
    if not gold.calls:
        return "unwanted_call"
    if not parsed.calls:
        return "no_call"
    expected = Counter(call.name for call in gold.calls)
    called = Counter(call.name for call in parsed.calls)
    if expected != called:
        return "wrong_tool" if expected - called and called - expected else "number_of_calls"
    # each call is assigned to an expected one of its tool, so that as little as possible is wrong
    by_name = {tool.name: tool for tool in tools}
    table = [
        [_argument_kinds(call, gold_call, by_name.get(gold_call.name)) for call in parsed.calls]
        for gold_call in gold.calls
    ]
    worth = [[0.0 if kinds is None else 1 / (1 + len(kinds)) for kinds in row] for row in table]
    kinds = {kind for row, column in assign(worth) for kind in table[row][column] or ()}
    return next(kind for kind in WRONG_KINDS if kind in kinds)


def _argument_kinds(call: Call, gold: GoldCall, tool: Tool | None) -> list[str] | None:
    """A kind for each argument that is wrong or left out; None for a call of another tool."""
    if call.name != gold.name:
        return None
    if satisfies(call, gold, tool):
        return []
    schema = tool.parameters if tool else {}
    required = schema.get("required") or ()
    kinds = [
        "missing_required" if name in required else "missing_optional"
        for name in required_names(gold, schema)
        if name not in call.arguments
    ]
    for name, value in call.arguments.items():
        if problem := argument_problem(name, value, gold, schema):
            kind_by_problem = {
                UNEXPECTED: "extra_parameter",
                OTHER_VALUE: "other_text" if isinstance(value, str) else "other_value",
            }
            kinds.append(kind_by_problem.get(problem, "wrong_type"))
    # where any arguments are right, each may fit the schema and all of them together may not
    return kinds or (["wrong_type"] if gold.arguments is ANY_ARGUMENTS else [])
