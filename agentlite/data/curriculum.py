"""How much a step asks for: the form of a call alone, a call among several tools, several calls."""

from collections import Counter
from collections.abc import Sequence

from agentlite.core.records import Record

FORMAT, SINGLE, SEVERAL = range(3)


def level(record: Record, turns: Sequence[int]) -> int:
    """Of these turns, which are learned or sampled: the most calls that one question needs, and
    whether there is a choice of tools.
    """
    calls: Counter[int] = Counter()
    for turn in turns:
        question = sum(message.role == "user" for message in record.messages[:turn])
        calls[question] += len(record.expected(turn).calls)
    if max(calls.values(), default=0) > 1:
        return SEVERAL
    return SINGLE if len(record.tools) > 1 else FORMAT
