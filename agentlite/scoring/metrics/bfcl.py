"""BFCL's rules for the calls of each category, and v4's group scores.

These are the rules of bfcl-eval 2026.3.23 to the letter, its oddities too; step_metrics says where
it differs from them. Where the package's checker ends with an exception, the calls are wrong here.
Names are compared as the tools have them: BFCL's handlers of APIs that know no dots put underscores
for them. There is no verdict on Java and JavaScript, whose literals are not read here.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from agentlite.core.json_schema import TYPES, Schema, fits, schema_at
from agentlite.core.records import ANY_ARGUMENTS, Call, Gold, GoldCall, Record, Tool
from agentlite.scoring.metrics.confidence import Summary, summary, weighted_share
from agentlite.scoring.metrics.step_metrics import standardize

SUBSET, FULL = "BFCL-style subset", "BFCL v4"


def category_of(record: Record) -> str:
    """The BFCL category of a record; "" if it is none of BFCL's that has rules here, or made from
    one: a variant, or several joined.
    """
    is_changed = record.parent or "joined" in record.meta or "bfcl_id" not in record.meta
    category = str(record.meta.get("category", ""))
    return category if category in RULES and not is_changed else ""


Rule = Literal["only tool", "named tools", "no call", "any call"]
# which calls a category wants: of its only tool, of the tools that the gold names, none, or any
RULES: dict[str, Rule] = {
    **dict.fromkeys(("simple_python", "live_simple"), "only tool"),
    **dict.fromkeys(("multiple", "parallel", "parallel_multiple"), "named tools"),
    **dict.fromkeys(("live_multiple", "live_parallel", "live_parallel_multiple"), "named tools"),
    **dict.fromkeys(("irrelevance", "live_irrelevance"), "no call"),
    "live_relevance": "any call",
}


def is_right(category: str, calls: Sequence[Call], gold: Gold, tools: Sequence[Tool]) -> bool:
    """Whether the calls are right by the rules of a single-turn category, in any order; each
    expected call takes the first one left that satisfies it.

    A text that cannot be read has made no calls. Raises KeyError for a category that is not in
    RULES.
    """
    rule = RULES[category]
    if rule in ("no call", "any call"):
        return bool(calls) == (rule == "any call")
    unmatched = list(calls)
    for expected in gold.calls:
        tool = next((t for t in tools if rule == "only tool" or t.name == expected.name), None)
        match = next((c for c in unmatched if tool and _satisfies(c, expected, tool)), None)
        if not match:
            return False
        unmatched.remove(match)
    return not unmatched


def _satisfies(call: Call, expected: GoldCall, tool: Tool) -> bool:
    required = tool.parameters.get("required") or ()
    if call.name != tool.name or any(name not in call.arguments for name in required):
        return False
    if expected.arguments is ANY_ARGUMENTS:  # BFCL itself has no such gold
        return fits(call.arguments, tool.parameters)
    properties = schema_at(tool.parameters, "properties")
    return all(
        name in properties
        and name in expected.arguments
        and _is_accepted(value, expected.arguments[name], schema_at(properties, name))
        for name, value in call.arguments.items()
    ) and all(
        name in call.arguments or "" in accepted for name, accepted in expected.arguments.items()
    )


def _is_accepted(value: object, accepted: Sequence[object], schema: Schema) -> bool:
    """A schema without a type is one of text."""
    if type(value) is tuple and schema.get("format") == "Python tuple":
        value = list(value)
    declared_type, element_type = _python_type(schema), _python_type(schema_at(schema, "items"))
    if declared_type is float and type(value) is int:
        try:
            value = float(value)
        except OverflowError:
            value = float("inf") if value > 0 else float("-inf")
    gold_type = _first_type(accepted)
    if type(value) not in (declared_type, gold_type):
        return False
    # beside some answer, each element has the declared type or that of the answer's first element
    if type(value) is declared_type is list and not any(
        type(answer) is not list or {*map(type, value)} <= {element_type, _first_type(answer)}
        for answer in accepted
    ):
        return False
    # gold of another type than the declared one names a variable: no spelling is forgiven in it
    if gold_type in (declared_type, None):
        return any(_matches(value, answer, element_type) for answer in accepted)
    return value in accepted


def _python_type(schema: Schema) -> type:
    """The Python type of a schema; any text where it is silent, as BFCL has it for "any"."""
    return TYPES.get(str(schema.get("type")), str)


def _first_type(accepted: Sequence[object]) -> type | None:
    """The type of the first accepted value that does not just say that it may be left out."""
    return next((type(answer) for answer in accepted if answer != ""), None)


def _matches(value: object, answer: object, element_type: type) -> bool:
    """An empty list also does where the parameter may be left out. `element_type`: of a list."""
    if isinstance(value, str):
        return type(answer) is str and standardize(value) == standardize(answer)
    if isinstance(value, list):
        if not isinstance(answer, list | str):
            return False
        if element_type is dict:
            return len(value) == len(answer) and all(map(_fills, value, answer))
        return list(map(standardize, value)) == list(map(standardize, answer))
    return _fills(value, answer) if isinstance(value, dict) else value == answer


def _fills(value: object, answer: object) -> bool:
    """Whether each key has an accepted value, and each that may not be left out is there."""
    if not (isinstance(value, dict) and isinstance(answer, dict)):
        return False
    choices = {
        key: accepted for key, accepted in answer.items() if isinstance(accepted, list | str)
    }
    return all(
        standardize(inner) in map(standardize, choices.get(key, ())) for key, inner in value.items()
    ) and all(key in value or "" in choices.get(key, ()) for key in answer)


MULTI_TURN = {
    "multi_turn_base": "Dialogs of several turns of the user's; each turn has to be right.",
    "multi_turn_miss_func": "The same, with a function that is offered only later.",
    "multi_turn_miss_param": "The same, with a value that the user names only later.",
    "multi_turn_long_context": "The same, in worlds with much more data.",
}
SIMPLE = ("simple_python", "simple_java", "simple_javascript")
Parts = tuple[tuple[str, ...], ...]  # the mean of parts, each the mean of its categories
# The groups of v4's overall: the weight, what it is, and its parts. Of a single part all rows count
# alike.
GROUPS: dict[str, tuple[int, str, Parts]] = {
    "non_live": (
        10,
        "the mean of simple (three languages), multiple, parallel, both",
        (SIMPLE, ("multiple",), ("parallel",), ("parallel_multiple",)),
    ),
    "live": (
        10,
        "the share of all rows of the four categories that people wrote",
        (("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple"),),
    ),
    "irrelevance": (
        10,
        "the mean of the two categories in which no tool fits",
        (("irrelevance",), ("live_irrelevance",)),
    ),
    "multi_turn": (
        30,
        "the mean of the four multi-turn categories",
        tuple((name,) for name in MULTI_TURN),
    ),
    "agentic": (
        40,
        "web search and memory, which agentlite does not measure",
        (
            ("web_search_base", "web_search_no_snippet"),
            ("memory_kv", "memory_vector", "memory_rec_sum"),
        ),
    ),
}
CATEGORIES = [
    *(name for _, _, parts in GROUPS.values() for part in parts for name in part),
    "live_relevance",  # of no group, as in v4
]
FIGURES = {
    "bfcl_overall": "The mean of the groups that were measured, not the leaderboard's score.",
    **{f"bfcl_{name}": f"Weight {weight}: {text}." for name, (weight, text, _) in GROUPS.items()},
    **MULTI_TURN,
    **dict.fromkeys(sorted(RULES), ""),
}


def group_scores(by_category: Mapping[str, Sequence[float]], seed: int) -> dict[str, Any]:
    """v4's overall, its groups and categories as metrics.json has them, from the verdicts (1 right,
    0 wrong) of each category; None for a group of which nothing was measured.

    It leaves its weight to the others, and the whole is then named a subset. `bfcl_not_measured`:
    the categories without a verdict.
    """
    measured = {category: values for category, values in by_category.items() if values}
    groups = {name: _category_weights(parts, measured) for name, (_, _, parts) in GROUPS.items()}
    overall = {
        category: weight * GROUPS[name][0]
        for name, weights in groups.items()
        for category, weight in weights.items()
    }
    figures: dict[str, Summary | None] = {
        f"bfcl_{name}": weighted_share([(w, measured[category]) for category, w in weights.items()])
        if weights
        else None
        for name, weights in {"overall": overall, **groups}.items()
    }
    figures |= {category: summary(measured[category], seed) for category in sorted(measured)}
    missing = [category for category in CATEGORIES if category not in measured]
    return {
        "bfcl": figures,
        "bfcl_is": SUBSET if missing else FULL,
        "bfcl_not_measured": missing,
    }


def _category_weights(parts: Parts, measured: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """How much the mean of each measured category weighs in its group: none if there is none."""
    if len(parts) == 1:
        counts = {category: len(measured.get(category, ())) for category in parts[0]}
        total = sum(counts.values())
        return {category: count / total for category, count in counts.items() if count}
    # Each part weighs alike, and so does each of its measured categories: where b of the parts
    # (a, b) and (c,) was not measured, a and c weigh one half each.
    measured_parts = [[category for category in part if category in measured] for part in parts]
    count = sum(map(bool, measured_parts))
    return {category: 1 / count / len(part) for part in measured_parts for category in part}
