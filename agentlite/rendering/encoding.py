"""Rendered text -> token ids and labels, for training rows and for prompts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Ending, Record, Step
from agentlite.rendering.loss_weights import Segment, Table, segments, weight_at
from agentlite.rendering.protocol import Protocol
from agentlite.rendering.renderer import Rendered, Span, render, span_text
from agentlite.rendering.template import Template

IGNORED = -100


class Encoded(NamedTuple):
    """Token ids, and labels of the same length: the id where it is trained, else -100.

    `weights`: of every token in the loss, the same length; empty where all weigh 1.
    """

    input_ids: list[int]
    labels: list[int]
    weights: list[float] = []  # noqa: RUF012  (never changed)


class Prompt(NamedTuple):
    """A step under a protocol: the ids a model is given there, what the record says there, and how
    that ends.
    """

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
    table: Table | None = None,
    rows: Sequence[Rendered] | None = None,
) -> list[Encoded]:
    """The rows of a record that train something, weighed by `table`. Raises RowError E217 if none
    does.

    `rows`: what render() gives, where that is there already.
    """
    rows = render(record, protocol, template) if rows is None else rows
    encoded = [
        _weighed(row, record, template, table) if table else encode(row, template) for row in rows
    ]
    trained = [row for row in encoded if any(label != IGNORED for label in row.labels)]
    if not trained:
        raise RowError("E217", "no token of this row would be trained")
    return trained


def encode(row: Rendered, template: Template) -> Encoded:
    """Pieces are cut into tokens one by one, so that no token crosses the edge of a span."""
    ids: list[int] = []
    labels: list[int] = []
    for piece, span in _with_spans(row):
        before = ids[-1:]
        new = template.encode(piece, before)
        ids += new
        # the loss of a label is that of predicting this very token: the model shifts by one itself
        if not (span and span.trained):
            labels += [IGNORED] * len(new)
        elif not span.left_out:
            labels += new
        else:
            offsets = template.offsets(piece, before)
            labels += [
                IGNORED if _overlaps(span, start, end) else token
                for token, (start, end) in zip(new, offsets, strict=True)
            ]
    return Encoded(ids, labels)


def _overlaps(span: Span, start: int, end: int) -> bool:
    """Whether a token, by its offsets in the span's text, has part of what the span leaves out."""
    return any(
        start < last - span.start and end > first - span.start for first, last in span.left_out
    )


def _weighed(row: Rendered, record: Record, template: Template, table: Table) -> Encoded:
    """A token has the weight of the place where it begins. One of weight 0 is not trained."""
    encoded = encode(row, template)
    weights: list[float] = []
    for text, span in _with_spans(row):
        before = encoded.input_ids[max(0, len(weights) - 1) : len(weights)]
        starts = [start for start, _ in template.offsets(text, before)]
        if not (span and span.trained):
            weights += [0.0] * len(starts)
            continue
        # `starts` and segments are both offsets in characters of this span's text. The end of the
        # turn is not part of the assistant's words: outside of every segment, it weighs 1.
        completion = text.removesuffix(template.turn_end)
        parts = [
            *segments(completion, table, _question(record, span.turn)),
            Segment(len(completion), len(text), 1.0),
        ]
        weights += [weight_at(parts, start) for start in starts]
    labels = [
        label if weight else IGNORED for label, weight in zip(encoded.labels, weights, strict=True)
    ]
    weights = [
        0.0 if label == IGNORED else weight for label, weight in zip(labels, weights, strict=True)
    ]
    return Encoded(encoded.input_ids, labels, weights)


def _question(record: Record, turn: int) -> str:
    return next((m.content for m in reversed(record.messages[:turn]) if m.role == "user"), "")


def encode_prompt(row: Rendered, turn: int, template: Template) -> list[int]:
    """The ids of a step's prompt: the beginning of the ids of the training row."""
    end = next(span.start for span in row.spans if span.turn == turn and span.prompted)
    # The same spans up to there, and so the same cuts: encoded as one text, the tokens at an edge
    # could differ from those of the training row.
    before = Rendered(row.text[:end], tuple(span for span in row.spans if span.end <= end))
    ids: list[int] = []
    for piece, _ in _with_spans(before):
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
    """The ids of an answer behind those of its prompt, with the end of turn, once, where the model
    had ended its turn.
    """
    return [
        *template.encode(text, prompt),
        *([template.token_id(template.turn_end)] if ended == "turn" else []),
    ]


def pieces(row: Rendered) -> list[tuple[str, bool]]:
    """The text cut at every span and at what it leaves out, with whether it is trained."""
    cut: list[tuple[str, bool]] = []
    position = 0
    for span in row.spans:
        cut.append((row.text[position : span.start], False))
        position = span.start
        for start, end in sorted(span.left_out):
            cut.append((row.text[position : max(start, position)], span.trained))
            cut.append((row.text[max(start, position) : max(end, position)], False))
            position = max(end, position)
        cut.append((row.text[position : span.end], span.trained))
        position = span.end
    return [(piece, trained) for piece, trained in [*cut, (row.text[position:], False)] if piece]


def _with_spans(row: Rendered) -> list[tuple[str, Span | None]]:
    """The text cut at every span, and the span it is."""
    cut: list[tuple[str, Span | None]] = []
    position = 0
    for span in row.spans:
        cut += [(row.text[position : span.start], None), (row.text[span.start : span.end], span)]
        position = span.end
    return [(piece, span) for piece, span in [*cut, (row.text[position:], None)] if piece]


def show(row: Rendered, mark: Any) -> str:
    """The text with `mark(piece)` in place of every trained piece."""
    return "".join(mark(piece) if trained else piece for piece, trained in pieces(row))
