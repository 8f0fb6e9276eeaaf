"""The score of a world that knows which calls are right, and not what they change."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from agentlite.core.records import Call, canonical

GOLD_CALLS = "gold_calls"


def gold_calls(
    gold: Iterable[Mapping[str, Any]] | None, made: Iterable[Mapping[str, Any]]
) -> dict[str, float]:
    """The share of the right calls that were made, in any order; none is made twice by one call.
    Where no call is right: whether none was made. No score where they are not known.
    """
    if gold is None:
        return {}
    due, done = (Counter(call_key(Call(**call)) for call in calls) for calls in (gold, made))
    if not due:
        return {GOLD_CALLS: float(not done)}
    return {GOLD_CALLS: (due & done).total() / due.total()}


def wire(calls: Iterable[Call]) -> list[dict[str, Any]]:
    """As a world gets them."""
    return [{"name": call.name, "arguments": call.arguments} for call in calls]


def call_key(call: Call) -> str:
    """Equal for calls of one name with equal arguments, as JSON has it: the order of keys does not
    matter, and 1.0 is 1.
    """

    def plain_numbers(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain_numbers(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [plain_numbers(inner) for inner in value]
        return int(value) if isinstance(value, float) and value.is_integer() else value

    return canonical([call.name, plain_numbers(call.arguments)])
