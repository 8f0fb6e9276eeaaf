"""Text of the assistant -> the loss weight of each place in it, by ms-swift's loss_scale tables.

A mark has a weight of its own and one for what follows it, up to the next mark; before the first
mark the weight is 1. Weight 0 takes a part out. The loss is the sum of weight x loss over the
trained tokens, divided by their number.
"""

import re
from bisect import bisect
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple


class Table(NamedTuple):
    """Marks with their weights: (of the mark, of what follows). `whole`: of a mark that is a whole
    pattern, alone.

    `questions`: the weight of the whole answer to a question that contains one of these texts.
    """

    marks: Mapping[str, tuple[float, float]]
    pattern: str = ""
    whole: float = 1.0
    questions: Mapping[str, float] = {}


REACT = {
    "Action Input:": (2.0, 2.0),
    "Action:": (2.0, 2.0),
    "Thought:": (1.0, 1.0),
    "Final Answer:": (1.0, 1.0),
    "Observation:": (2.0, 0.0),
}
QWEN = {
    "✿FUNCTION✿:": (2.0, 2.0),
    "✿ARGS✿:": (2.0, 2.0),
    "✿RETURN✿:": (1.0, 1.0),
    "✿RESULT✿:": (2.0, 0.0),
}
NAMES = (
    "Name:",
    "Action:",
    "ACTION:",
    "Tool:",
    "Command",
    "Arguments:",
    "action input",
    "ACTION_INPUT:",
    "Action Input:",
)
QUESTIONS = (
    "What is the tool you want to use",
    "What are the required parameter names",
    "What is the value of",
)
TABLES: dict[str, Table] = {
    "react": Table(REACT),
    "hermes": Table({}, r"<tool_call>.+?</tool_call>", 2.0),
    "qwen": Table(QWEN),
    "alpha_umi": Table({**REACT, "Next:": (2.0, 2.0)}),
    "agentflan": Table(
        {
            **dict.fromkeys(NAMES, (1.0, 3.0)),
            "Thought:": (1.0, 1.0),
            "Final Answer:": (1.0, 1.0),
            "Observation:": (2.0, 0.0),
        },
        questions=dict.fromkeys(QUESTIONS, 3.0),
    ),
}


def weight_changes(text: str, table: Table, question: str = "") -> list[tuple[int, float]]:
    """Where in a text each weight begins, in order. Of two at one place the last one counts."""
    for part, weight in table.questions.items():
        if part in question:
            return [(0, weight)]
    marks = "|".join(map(re.escape, sorted(table.marks, key=len, reverse=True)))
    changes = [(0, 1.0)]
    for match in re.finditer(table.pattern or marks, text, re.DOTALL):
        own, following = (table.whole, 1.0) if table.pattern else table.marks[match[0]]
        changes += [(match.start(), own), (match.end(), following)]
    return changes


def weight_at(changes: Sequence[tuple[int, float]], place: int) -> float:
    return changes[bisect(changes, place, key=itemgetter(0)) - 1][1]
