"""Rendered text -> token ids, labels and loss weights, for training rows and for prompts."""

import re
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Ending, Record, Step
from agentlite.rendering.protocol import Protocol
from agentlite.rendering.renderer import Rendered, Span, render, span_text
from agentlite.rendering.template import Template

IGNORED = -100


class WeightTable(NamedTuple):
    """Marks in an answer, with their weights: of the mark, and of what follows it up to the next
    one; 1 before the first. `whole`: of a mark that is a whole pattern, alone. `questions`: the
    weight of the whole answer to a question that contains one of these texts.

    Tables are those of ms-swift's loss_scale. Weight 0 takes a part out. The loss is the sum of
    weight x loss over the trained tokens, divided by their number.
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
TABLES: dict[str, WeightTable] = {
    "react": WeightTable(REACT),
    "hermes": WeightTable({}, r"<tool_call>.+?</tool_call>", 2.0),
    "qwen": WeightTable(QWEN),
    "alpha_umi": WeightTable({**REACT, "Next:": (2.0, 2.0)}),
    "agentflan": WeightTable(
        {
            **dict.fromkeys(NAMES, (1.0, 3.0)),
            "Thought:": (1.0, 1.0),
            "Final Answer:": (1.0, 1.0),
            "Observation:": (2.0, 0.0),
        },
        questions=dict.fromkeys(QUESTIONS, 3.0),
    ),
}


class Encoded(NamedTuple):
    """Token ids, and labels of the same length: the id where it is trained, else -100.

    `weights`: of every token in the loss, the same length; empty where all weigh 1.
    """

    input_ids: list[int]
    labels: list[int]
    weights: list[float] = []  # noqa: RUF012  (never changed)


class Prompt(NamedTuple):
    """A step under a protocol: the ids a model is given, and what the record says there."""

    record: Record
    turn: int
    protocol: str
    ids: list[int]
    answer: str
    ended: Ending

    @property
    def step(self) -> Step:
        return Step(self.record.id, self.turn)


def training_rows(
    record: Record,
    protocol: Protocol,
    template: Template,
    table: WeightTable | None = None,
    rows: Sequence[Rendered] | None = None,
) -> list[Encoded]:
    """The rows of a record that train something, weighed by `table`. Raises RowError E217 if none
    does.

    `rows`: what render() gives, where that is there already.
    """
    rows = render(record, protocol, template) if rows is None else rows
    encoded = [encode(row, template, record, table) for row in rows]
    trained = [row for row in encoded if any(label != IGNORED for label in row.labels)]
    if not trained:
        hint = "Each turn of the assistant is taken out (loss: false, weight: 0), or is only begun."
        raise RowError("E217", "no token of this row would be trained", hint)
    return trained


def encode(
    row: Rendered,
    template: Template,
    record: Record | None = None,
    table: WeightTable | None = None,
) -> Encoded:
    """Pieces are cut into tokens one by one, so that no token crosses the edge of a span. By a
    table, a token has the weight of the place where it begins; one of weight 0 is not trained.
    """
    ids: list[int] = []
    labels: list[int] = []
    weights: list[float] = []
    for text, span in _cut(row):
        before = ids[-1:]
        new = template.encode(text, before)
        ids += new
        # the loss of a label is that of predicting this very token: the model shifts by one itself
        if not (span and span.trained):
            labels += [IGNORED] * len(new)
            weights += [0.0] * len(new)
        elif not (table or span.left_out):
            labels += new
            weights += [1.0] * len(new)
        else:
            changes = [(0, 1.0)]
            if table and record:
                # The end of the turn is not part of the assistant's words: it weighs 1.
                answer = text.removesuffix(template.turn_end)
                earlier = reversed(record.messages[: span.turn])
                question = next((m.content for m in earlier if m.role == "user"), "")
                changes = weight_changes(answer, table, question)
                changes.append((len(answer), 1.0))
            # changes and the tokens' edges are offsets in this text; the span's are in the row's
            left_out = [(start - span.start, end - span.start) for start, end in span.left_out]
            of_tokens = [
                0.0
                if any(start < last and end > first for first, last in left_out)
                else weight_at(changes, start)
                for start, end in template.encoder.offsets(text, before)
            ]
            labels += [
                token if weight else IGNORED for token, weight in zip(new, of_tokens, strict=True)
            ]
            weights += of_tokens
    return Encoded(ids, labels, weights if table else [])


def weight_changes(text: str, table: WeightTable, question: str = "") -> list[tuple[int, float]]:
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


def encode_prompt(row: Rendered, turn: int, template: Template) -> list[int]:
    """The ids of a step's prompt: the beginning of the ids of the training row."""
    end = next(span.start for span in row.spans if span.turn == turn and span.prompted)
    # The same spans up to there, and so the same cuts: encoded as one text, the tokens at an edge
    # could differ from those of the training row.
    before = Rendered(row.text[:end], tuple(span for span in row.spans if span.end <= end))
    ids: list[int] = []
    for piece, _ in _cut(before):
        ids += template.encode(piece, ids)
    return ids


def prompts(
    records: Iterable[Record],
    protocol_of: Callable[[Record], Protocol],
    template: Template,
    turns_of: Callable[[Record], Iterable[int]] = lambda record: record.prompted_turns,
) -> Iterator[Prompt]:
    """The steps of records with tools, or those that `turns_of` names, in their order. Raises
    UserError for a record its protocol cannot hold.
    """
    for record in records:
        protocol = protocol_of(record)
        try:
            rows = render(record, protocol, template)
        except RowError as error:
            raise UserError(
                f"record {record.id}: {error.reason}",
                "Run prep with this model: --model.",
                location=template.name,
            ) from error
        for turn in turns_of(record):
            yield prompt_at(record, turn, rows, protocol, template)


def prompt_at(
    record: Record, turn: int, rows: Sequence[Rendered], protocol: Protocol, template: Template
) -> Prompt:
    """The step of a record at an assistant turn; `rows`: the record, rendered."""
    row, span = next(
        (row, span) for row in rows for span in row.spans if span.turn == turn and span.prompted
    )
    ended: Ending = "turn" if row.text[: span.end].endswith(template.turn_end) else "stop"
    ids, answer = encode_prompt(row, turn, template), span_text(row, span, template)
    return Prompt(record, turn, protocol.name, ids, answer, ended)


def encode_answer(text: str, ended: Ending, template: Template, prompt: Sequence[int]) -> list[int]:
    """The ids of an answer behind its prompt, with the end of the turn where it `ended` so."""
    end = [template.token_id(template.turn_end)] if ended == "turn" else []
    return template.encode(text, prompt) + end


def pieces(row: Rendered) -> list[tuple[str, bool]]:
    """The text cut at every span and at what it leaves out, with whether it is trained."""
    cut: list[tuple[str, bool]] = []
    for text, span in _cut(row):
        first, trained = (span.start, span.trained) if span else (0, False)
        position = 0
        for edges in sorted(span.left_out if span else ()):
            start, end = (max(edge - first, position) for edge in edges)
            cut += [(text[position:start], trained), (text[start:end], False)]
            position = end
        cut.append((text[position:], trained))
    return [(piece, trained) for piece, trained in cut if piece]


def _cut(row: Rendered) -> list[tuple[str, Span | None]]:
    """The text cut at every span, and the span it is."""
    cut: list[tuple[str, Span | None]] = []
    position = 0
    for span in row.spans:
        cut += [(row.text[position : span.start], None), (row.text[span.start : span.end], span)]
        position = span.end
    return [(piece, span) for piece, span in [*cut, (row.text[position:], None)] if piece]


def show(row: Rendered, mark: Callable[[str], str]) -> str:
    """The text with `mark(piece)` in place of every trained piece."""
    return "".join(mark(piece) if trained else piece for piece, trained in pieces(row))
