"""A wrong answer, its gold and the tools -> the one kind of mistake that it is."""

from collections import Counter
from collections.abc import Iterable, Sequence

from agentlite.core.records import ANY_ARGUMENTS, Call, Gold, GoldCall, Parsed, Tool
from agentlite.scoring.assignment import assign
from agentlite.scoring.metrics.tool_calls import (
    OTHER_VALUE,
    UNEXPECTED,
    argument_problem,
    call_problem,
    is_right,
    needed,
    score_step,
)

# In this order: an answer with several mistakes is of the first kind that it has.
IN_WORDS = {
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
    "other_text": "another text",
    "other_value": "another number, list or other value",
}
KINDS = tuple(IN_WORDS)
# the problems of a prompt that has no answer at all
TOO_LONG = "prompt longer than max_length"
NOTHING = "no prediction"
UNANSWERED = "no answer from the server"


def wrong_kind(parsed: Parsed, gold: Gold, tools: Sequence[Tool], *, finished: bool = True) -> str:
    """The kind of an answer that is wrong; "" for a right one, and where nobody knows what is
    right.
    """
    if not gold.known or is_right(score_step(parsed, gold, tools)):
        return ""
    if parsed.problem in (TOO_LONG, NOTHING, UNANSWERED):
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
    return min(_call_kinds(parsed.calls, gold.calls, tools), key=KINDS.index)


def count_kinds(kinds: Iterable[str]) -> dict[str, int]:
    """How many answers are of each kind, in the order of KINDS; kinds without an answer are left
    out.
    """
    counts = Counter(kinds)
    return {kind: counts[kind] for kind in KINDS if counts[kind]}


def _call_kinds(
    calls: Sequence[Call], expected: Sequence[GoldCall], tools: Sequence[Tool]
) -> list[str]:
    """What is wrong with calls of the expected tools, each as often as expected. Calls are
    assigned to expected ones so that as little as possible is wrong.
    """
    by_name = {tool.name: tool for tool in tools}
    wrong = [
        [
            _argument_kinds(call, gold, by_name.get(gold.name)) if call.name == gold.name else None
            for call in calls
        ]
        for gold in expected
    ]
    worth = [[0.0 if one is None else 1 / (1 + len(one)) for one in row] for row in wrong]
    return [kind for row, column in assign(worth) for kind in wrong[row][column] or ()]


def _argument_kinds(call: Call, gold: GoldCall, tool: Tool | None) -> list[str]:
    """A kind for each argument that is wrong or left out; [] for a call that satisfies the gold."""
    if not call_problem(call, gold, tool):
        return []
    schema = tool.parameters if tool else {}
    required = schema.get("required") or ()
    kinds = [
        "missing_required" if name in required else "missing_optional"
        for name in needed(gold, schema)
        if name not in call.arguments
    ]
    for name, value in call.arguments.items():
        problem = argument_problem(name, value, gold, schema)
        if problem == UNEXPECTED:
            kinds.append("extra_parameter")
        elif problem == OTHER_VALUE:
            kinds.append("other_text" if isinstance(value, str) else "other_value")
        elif problem:
            kinds.append("wrong_type")
    # where any arguments are right, each may fit the schema and all of them together may not
    return kinds or (["wrong_type"] if gold.arguments is ANY_ARGUMENTS else [])
