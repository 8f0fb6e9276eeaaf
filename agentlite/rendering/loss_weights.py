"""Text of the assistant -> the loss weight of each segment, by ms-swift's loss_scale tables.

A mark has a weight of its own and one for what follows it, up to the next mark; before the first
mark the weight is 1. Weight 0 takes a part out. The loss is the sum of weight x loss over the
trained tokens, divided by their number.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Segment(NamedTuple):
    """text[start:end] and its weight."""

    start: int
    end: int
    weight: float


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


def segments(text: str, table: Table, question: str = "") -> list[Segment]:
    """The parts of a text, in order and without gaps."""
    if weight := next(
        (weight for part, weight in table.questions.items() if part in question), 0.0
    ):
        return [Segment(0, len(text), weight)]
    if table.pattern:
        matches = list(re.finditer(table.pattern, text, re.DOTALL))
        return _filled(len(text), [Segment(*match.span(), table.whole) for match in matches])
    pattern = "|".join(map(re.escape, sorted(table.marks, key=len, reverse=True)))
    found = list(re.finditer(pattern, text))
    ends = [*(match.start() for match in found[1:]), *([len(text)] if found else [])]
    parts: list[Segment] = []
    for match, end in zip(found, ends, strict=True):
        own, following = table.marks[match[0]]
        parts += [Segment(*match.span(), own), Segment(match.end(), end, following)]
    return _filled(len(text), parts)


def weight_at(parts: Sequence[Segment], place: int) -> float:
    """The weight of the part that holds a place of the text; 0 where none does."""
    return next((part.weight for part in parts if part.start <= place < part.end), 0.0)


def _filled(length: int, parts: Sequence[Segment]) -> list[Segment]:
    """With weight 1 where no part says otherwise."""
    whole: list[Segment] = []
    position = 0
    for part in [*parts, Segment(length, length, 1.0)]:
        whole += [Segment(position, part.start, 1.0)] if part.start > position else []
        whole += [part] if part.end > part.start else []
        position = part.end
    return whole
