"""Rendered text -> token ids and labels, for training rows and for prompts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Ending, Record, Step
from agentlite.rendering.protocol import Protocol
from agentlite.rendering.renderer import Rendered, Span, render, span_text
from agentlite.rendering.template import Template

IGNORED = -100


class Encoded(NamedTuple):
    """Token ids, and labels of the same length: the id where it is trained, else -100."""

    input_ids: list[int]
    labels: list[int]


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
    rows: Sequence[Rendered] | None = None,
) -> list[Encoded]:
    """The rows of a record that train something. Raises RowError E217 if none does. `rows`: what
    render() gives, where that is there already.
    """
    rows = render(record, protocol, template) if rows is None else rows
    encoded = [encode_row(row, template) for row in rows]
    trained_rows = [row for row in encoded if any(label != IGNORED for label in row.labels)]
    if not trained_rows:
        raise RowError(
            "E217",
            "no token of this row would be trained",
            "Each turn of the assistant is taken out (loss: false, weight: 0), or is only begun.",
        )
    return trained_rows


def encode_row(row: Rendered, template: Template) -> Encoded:
    """Pieces are cut into tokens one by one, so that no token crosses the edge of a span."""
    ids: list[int] = []
    labels: list[int] = []
    for text, span in _split_at_spans(row):
        before = ids[-1:]
        new_ids = template.encode(text, before)
        ids += new_ids
        # the loss of a label is that of predicting this very token: the model shifts by one itself
        if not (span and span.trained):
            labels += [IGNORED] * len(new_ids)
        elif not span.left_out:
            labels += new_ids
        else:
            # the tokens' offsets are in this text, the span's in the row's
            left_out = [(start - span.start, end - span.start) for start, end in span.left_out]
            offsets = template.encoder.offsets(text, before)
            labels += [
                IGNORED if any(start < last and end > first for first, last in left_out) else token
                for token, (start, end) in zip(new_ids, offsets, strict=True)
            ]
    return Encoded(ids, labels)


def encode_prompt(row: Rendered, turn: int, template: Template) -> list[int]:
    """The ids of a step's prompt: the beginning of the ids of the training row."""
    end = next(span.start for span in row.spans if span.turn == turn and span.prompted)
    # The same spans up to there, and so the same cuts: encoded as one text, the tokens at an edge
    # could differ from those of the training row.
    spans = tuple(span._replace(trained=False) for span in row.spans if span.end <= end)
    return encode_row(Rendered(row.text[:end], spans), template).input_ids


def prompts_of(
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


def mark_trained(row: Rendered, mark: Callable[[str], str]) -> str:
    """The text with `mark(piece)` in place of every trained piece."""
    pieces: list[tuple[str, bool]] = []
    for text, span in _split_at_spans(row):
        piece_start, trained = (span.start, span.trained) if span else (0, False)
        position = 0  # in this piece; what is left out has offsets in the row
        for offsets in sorted(span.left_out if span else ()):
            start, end = (max(offset - piece_start, position) for offset in offsets)
            pieces += [(text[position:start], trained), (text[start:end], False)]
            position = end
        pieces.append((text[position:], trained))
    return "".join(mark(piece) if trained and piece else piece for piece, trained in pieces)


def _split_at_spans(row: Rendered) -> list[tuple[str, Span | None]]:
    """The text cut at every span, and the span it is."""
    pieces: list[tuple[str, Span | None]] = []
    position = 0
    for span in row.spans:
        pieces += [(row.text[position : span.start], None), (row.text[span.start : span.end], span)]
        position = span.end
    return [(piece, span) for piece, span in [*pieces, (row.text[position:], None)] if piece]
