"""Record + protocol + template -> text with the spans that are trained.

The one place that masks. The prompt of a step is the beginning of the rendered dialog, cut where
the step's span starts; ids are made piece by piece, so that a prompt's ids are the beginning of the
training row's ids as well.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, NamedTuple

from msgspec.structs import replace

from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Call, Message, Record, Tool, message_row, to_json
from agentlite.rendering.protocol import (
    THINK_END,
    THINK_TAG,
    Protocol,
    thought_and_words,
    with_thought,
    without_thoughts,
)
from agentlite.rendering.template import Template, opens_thought, shared_length

EMPTY_OBJECT = re.compile(r"\{\s*\}")


class Span(NamedTuple):
    """What the assistant writes at a turn, its end included: text[start:end]. `prompted`: its calls
    are read here. `left_out`: starts and ends in the text of what is not trained in a trained span.
    """

    turn: int
    start: int
    end: int
    trained: bool
    prompted: bool = True
    left_out: tuple[tuple[int, int], ...] = ()


class Rendered(NamedTuple):
    """One training row: a dialog, or one of its steps where the template rewrites its history."""

    text: str
    spans: tuple[Span, ...]


class _Turn(NamedTuple):
    """A message for the template, and which part of its content stands for which turn of the
    record: (turn, start, end); end -1 is the end of the turn, its mark included. Of ReAct, which
    has a call (messages[1]), its result and the answer (messages[3]) in one message, the parts are
    ((1, 0, 80), (3, 86, -1)): between them stands the result, which is not trained.
    """

    message: dict[str, Any]
    parts: tuple[tuple[int, int, int], ...] = ()


class _Dialog(NamedTuple):
    """A record as a chat template is given it."""

    record: Record
    turns: Sequence[_Turn]
    tools: Sequence[dict[str, object]]
    template: Template

    @property
    def answers(self) -> list[int]:
        """The indices of the turns of the assistant."""
        return [i for i, turn in enumerate(self.turns) if turn.message["role"] == "assistant"]

    def text(self, count: int) -> str:
        """Its first turns, with the end of the last one, which a template may leave to the next."""
        messages = [turn.message for turn in self.turns[:count]]
        text = self.template.render(messages, self.tools)
        if messages[-1]["role"] != "assistant" or not self.template.unwritten_end:
            return text
        end = self.template.end_of(messages[-1])
        # Hy3 leaves the end of an answer to the next turn, but not that of a turn with calls
        return text if text.rstrip().endswith(end) else text + end

    def row(self, index: int, text: str = "") -> Rendered:
        """The text up to the turn of the assistant at `index`, as the template writes it or as
        given, and where that turn stands in it.
        """
        messages = [turn.message for turn in self.turns[:index]]
        prompt = self.template.render(messages, self.tools, prompt=True)
        turn = self.turns[index]
        text = _start_with_prompt(prompt, text or self.text(index + 1), turn, self.template)
        return Rendered(text, self.spans(turn, text, len(prompt)))

    def spans(self, turn: _Turn, text: str, start: int) -> tuple[Span, ...]:
        """Where the parts of a turn stand in the text; the last one ends with the end of the turn.
        `start`: where the prompt of the turn ends.
        """
        template, messages, first = self.template, self.record.messages, turn.parts[0][0]
        mark = template.end_of(turn.message)
        end = text.rfind(mark, start) + len(mark)
        # Behind a turn's end only marks may stand, as the `<eos>` of a whole dialog does.
        if end < start + len(mark) or template.without_marks(text[end:]).strip():
            raise template.refusal(f"it does not end this turn of the assistant with {mark}.")
        # Parts are offsets in the content, so they can be found only where the template prints it
        # unchanged, behind no more than its thought. One part that is the whole turn needs no such
        # proof: its span runs from the prompt's end to the turn's end.
        content, content_start = turn.message["content"], start
        if turn.parts != ((first, 0, -1),):
            thought, words = thought_and_words(content)
            words_start = text.find(words, start)
            text_before = THINK_TAG.sub("", text[start:words_start]).strip()
            if words_start < 0 or thought not in text_before or (text_before and not thought):
                raise RowError("E214", f"the chat template changes the text of messages[{first}]")
            content_start = words_start + len(words) - len(content)
        elif messages[first].loss:
            # A text that the template does not print would be lost in silence. The blanks around it
            # and around its thoughts are the template's; `<think>` may stand in the prompt.
            position = start
            for part in filter(None, map(str.strip, THINK_TAG.split(content))):
                if (part_start := text.find(part, position, end)) < 0:
                    lost_text = f"a text of messages[{first}]: {part!r:.60}"
                    raise RowError("E214", f"the chat template drops or changes {lost_text}")
                position = part_start + len(part)
        return tuple(
            Span(
                index,
                content_start + part_start if part_start else start,
                end if part_end < 0 else content_start + part_end,
                messages[index].loss,
            )
            for index, part_start, part_end in turn.parts
        )


def render(record: Record, protocol: Protocol, template: Template) -> list[Rendered]:
    """The training rows of a record. Raises RowError for what the protocol or the chat template
    cannot hold: that the template works at all, check_protocol() has seen before.
    """
    with _row_errors(record, protocol, template):
        rows = _rows(record, protocol, template)
        # Arguments that are not known stand in the text as `{}`, which must not be learned. Where
        # they stand is seen in the same row with other arguments: no protocol or template is asked.
        for turn in record.turns:
            for index in record.unknown_arguments(turn) if record.messages[turn].loss else ():
                messages, calls = list(record.messages), list(record.messages[turn].calls)
                calls[index] = replace(calls[index], arguments={"probe": "probe"})
                messages[turn] = replace(messages[turn], calls=tuple(calls))
                probe_rows = _rows(replace(record, messages=tuple(messages)), protocol, template)
                pairs = zip(rows, probe_rows, strict=True)
                rows = [_leave_out_arguments(row, probe_row, turn) for row, probe_row in pairs]
        return rows


def render_last(record: Record, protocol: Protocol, template: Template) -> Rendered:
    """The row of render() that holds the prompt of the last turn, by two renderings however long
    the dialog is. Raises RowError as render() does, though not for a text of an earlier turn that
    the template drops.
    """
    with _row_errors(record, protocol, template):
        if protocol.exchanges and record.tools:
            rows = _exchanges(record, record.turns[-1], protocol, template)
            return next(row for row in rows if any(span.prompted for span in row.spans))
        dialog = _dialog(record, protocol, template)
        *earlier_indices, last_index = dialog.answers
        row = dialog.row(last_index)
        spans = _earlier_spans(dialog, earlier_indices, row.text[: row.spans[0].start])
        return Rendered(row.text, (*spans, *row.spans))


@contextmanager
def _row_errors(record: Record, protocol: Protocol, template: Template) -> Iterator[None]:
    """What the template refuses is the row's fault, and so is a control token inside a text: the
    model would read it as a mark of its own, though a reader of the data would not.
    """
    try:
        for location, text in _texts(record):
            # in JSON the quote of Gemma's mark <|"|> is escaped; templates may write it bare
            if mark := template.control_token_in(text.replace('\\"', '"')):
                raise RowError("E215", f"{location} holds the model's own mark {mark}: take it out")
        _refuse_parallel_calls(record, protocol)
        yield
    except UserError as error:
        raise RowError("E220", f"{protocol.name}: {error.problem}") from error


def _texts(record: Record) -> Iterator[tuple[str, str]]:
    """What others than the protocol wrote, and where: of answers without the tags of thoughts."""
    for index, message in enumerate(record.messages):
        location, text = f"messages[{index}]", message.content
        yield location, THINK_TAG.sub(" ", text) if message.role == "assistant" else text
        yield from ((location, to_json([c.name, c.id, c.arguments])) for c in message.calls)
    yield "tools", to_json([tool.schema for tool in record.tools])


def _refuse_parallel_calls(record: Record, protocol: Protocol) -> None:
    for index in record.turns if not protocol.parallel_calls else ():
        if (count := len(record.messages[index].calls)) > 1:
            raise RowError(
                "E204",
                f"messages[{index}] holds {count} calls; protocol {protocol.name} holds one per "
                "turn",
            )


def _rows(record: Record, protocol: Protocol, template: Template) -> list[Rendered]:
    if record.is_text:  # no dialog: trained whole, with the end that a turn has
        (message,) = record.messages
        text = message.content + template.turn_end
        return [Rendered(text, (Span(0, 0, len(text), message.loss, prompted=False),))]
    if protocol.exchanges and record.tools:
        return [
            row for turn in record.turns for row in _exchanges(record, turn, protocol, template)
        ]
    dialog = _dialog(record, protocol, template)
    count = len(dialog.turns)
    text = dialog.text(count)
    rows = [dialog.row(i, text if i + 1 == count else "") for i in dialog.answers]
    # A template that rewrites its history (it drops old thoughts, say) writes each step's text
    # otherwise than the whole dialog's: then each step is a row of its own.
    # What follows its last turn's end (`<eos>` behind the whole, say) does not count.
    if all(text.startswith(row.text[: row.spans[-1].end]) for row in rows):
        return [Rendered(text, tuple(span for row in rows for span in row.spans))]
    return rows


def _exchanges(
    record: Record, turn: int, protocol: Protocol, template: Template
) -> Iterator[Rendered]:
    """A row for each prompt of a turn."""
    assert protocol.exchanges is not None
    thought, _ = thought_and_words(record.messages[turn].content)
    for exchange in protocol.exchanges(without_thoughts(record), turn):
        content = with_thought(thought if exchange.prompted else "", exchange.answer)
        prompt = _Turn({"role": "user", "content": exchange.prompt})
        answer = _Turn({"role": "assistant", "content": content}, ((turn, 0, -1),))
        text, spans = _Dialog(record, [prompt, answer], (), template).row(1)
        yield Rendered(text, tuple(span._replace(prompted=exchange.prompted) for span in spans))


def _earlier_spans(dialog: _Dialog, indices: Sequence[int], prompt: str) -> list[Span]:
    """The spans of the turns in a prompt, found by what each begins with; none where the
    template writes its history otherwise: then render() makes a row of each step.
    """
    template = dialog.template
    if not (head := template.prompt_head):
        return []
    starts = [match.end() for match in re.finditer(re.escape(head), prompt)]
    # No text of the dialog holds the mark in `head`, so each place is the beginning of a turn, and
    # the last one the end of the prompt.
    if len(starts) != len(indices) + 1:
        return []
    spans: list[Span] = []
    for index, start, end in zip(indices, starts, starts[1:], strict=False):
        turn = dialog.turns[index]
        mark = template.end_of(turn.message)
        turn_end = prompt.find(mark, start, end) + len(mark)
        try:
            spans += dialog.spans(turn, prompt[: max(turn_end, start)], start)
        except (RowError, UserError):
            return []
    return spans


def first_messages(record: Record, turn: int, protocol: Protocol) -> list[dict[str, str]]:
    """The messages for a server with a chat template of its own, before the first turn of the
    assistant, in a protocol that is not native. Raises RowError.
    """
    messages = (*record.messages[:turn], Message("assistant", "..."))
    dialog = replace(record, messages=messages, gold={})
    _refuse_parallel_calls(dialog, protocol)
    if protocol.exchanges and record.tools:
        exchanges = protocol.exchanges(without_thoughts(dialog), turn)
        exchange = next(exchange for exchange in exchanges if exchange.prompted)
        return [{"role": "user", "content": exchange.prompt}]
    return [turn.message for turn in _turns(dialog, protocol)[:-1]]


def _leave_out_arguments(row: Rendered, probe_row: Rendered, turn: int) -> Rendered:
    """The row with a call's arguments left out; `probe_row`: the same with other arguments."""
    spans = []
    for span, probe_span in zip(row.spans, probe_row.spans, strict=True):
        if span.turn == turn:
            text = row.text[span.start : span.end]
            start, end = _find_difference(text, probe_row.text[probe_span.start : probe_span.end])
            left_out = (*span.left_out, (span.start + start, span.start + end))
            span = span._replace(left_out=left_out)
        spans.append(span)
    return Rendered(row.text, tuple(spans))


def _find_difference(text: str, probe_text: str) -> tuple[int, int]:
    """The start and end in the text of an empty object that is not empty in `probe_text`, with the
    blanks before it.

    Where there is no `{}`, as in templates that write a tag for each argument, what follows says
    that there are none: it is left out as well, to the end of the text.
    """
    # {"arguments": {}} and {"arguments": {"probe": "probe"}}: they are alike up to `{` and from `}`
    # on, so that start and end are both between the two braces
    start = shared_length(text, probe_text)
    end = len(text) - shared_length(text[start:][::-1], probe_text[start:][::-1])
    for match in EMPTY_OBJECT.finditer(text):
        if match.start() <= start and end <= match.end():
            return len(text[: match.start()].rstrip()), match.end()
    return start, len(text)


def _start_with_prompt(prompt: str, text: str, turn: _Turn, template: Template) -> str:
    """The text up to a turn of the assistant, so that it begins with the prompt of that turn.

    As the template writes it, `text`, where that begins with the prompt. The prompts of some
    thinking models end with more (`<think>`, or an empty thought) than the template writes before
    an answer. A server prompts with it, so the row has it: an open thought is closed, behind the
    thought that the turn has.
    """
    if text.startswith(prompt):
        return text
    extra = template.prompt_extra
    prompt_start = prompt.removesuffix(extra)
    if not extra or prompt_start == prompt or not text.startswith(prompt_start):
        if thought_and_words(turn.message["content"])[0]:
            raise RowError(
                "E220",
                "the prompt of the chat template has no room for the thought of a turn",
                "--thoughts drop leaves out what turns think.",
            )
        raise template.refusal(
            "its prompt for the assistant is not the beginning of what it writes for this answer, "
            "so no row would be trained as servers prompt it."
        )
    answer = text[len(prompt_start) :]
    if opens_thought(prompt) and THINK_END not in answer:
        thought, _ = thought_and_words(turn.message["content"])
        answer = f"{thought}\n{THINK_END}\n\n{answer.lstrip()}"
    return prompt + answer


def _dialog(record: Record, protocol: Protocol, template: Template) -> _Dialog:
    tools = [tool.schema for tool in record.tools] if protocol.native else []
    return _Dialog(record, _turns(record, protocol), tools, template)


def _turns(record: Record, protocol: Protocol) -> list[_Turn]:
    if protocol.native:
        return [_native_turn(index, message) for index, message in enumerate(record.messages)]
    system = "\n\n".join(m.content for m in record.messages if m.role == "system")
    if record.tools:
        system = system or ("" if protocol.inline else "You are a helpful assistant.")
        system = "\n\n".join(filter(None, [system, protocol.system(record.tools)]))
    turns = [_Turn({"role": "system", "content": system})] if system else []
    indexed = [pair for pair in enumerate(record.messages) if pair[1].role != "system"]
    # Inline, everything from one user turn to the next is one message of the assistant.
    answers = ("assistant", "tool") if protocol.inline else ("assistant",)
    for role, pairs in groupby(
        indexed, lambda pair: "assistant" if pair[1].role in answers else pair[1].role
    ):
        group = list(pairs)
        if role == "user":
            turns += [_Turn({"role": role, "content": message.content}) for _, message in group]
        elif role == "tool":  # results of one turn's calls, side by side, are one message
            content = protocol.results([message for _, message in group])
            turns.append(_Turn({"role": protocol.result_role, "content": content}))
        elif protocol.inline:
            turns.append(_inline_turn(group, protocol, record.tools))
        else:
            for index, message in group:
                content = protocol.write(message, record.tools)
                turns.append(_Turn({"role": role, "content": content}, ((index, 0, -1),)))
    return turns


def _native_turn(index: int, message: Message) -> _Turn:
    row = message_row(replace(message, loss=True))
    for call, wire_call in zip(message.calls, row.get("tool_calls", ()), strict=True):
        wire_call["function"]["arguments"] = call.arguments
    return _Turn(row, ((index, 0, -1),) if message.role == "assistant" else ())


def _inline_turn(
    group: Sequence[tuple[int, Message]], protocol: Protocol, tools: Sequence[Tool]
) -> _Turn:
    content = ""
    parts: list[tuple[int, int, int]] = []
    for index, message in group:
        if parts and parts[-1][2] < 0:
            raise RowError(
                "E203", f"messages[{index}] follows an answer without a user turn between"
            )
        if message.role == "tool":
            content += protocol.results([message])
            continue
        start = len(content)
        if start:  # a thought in the middle of a turn has no place but among its words
            thought, words = thought_and_words(message.content)
            message = replace(message, content="\n\n".join(filter(None, [thought, words])))
        content += protocol.write(message, tools)
        parts.append((index, start, len(content) if message.calls else -1))
    return _Turn({"role": "assistant", "content": content.rstrip()}, tuple(parts))


def span_text(row: Rendered, span: Span, template: Template) -> str:
    """What the assistant wrote in a span, as a reader gets it: without the end of the turn."""
    return row.text[span.start : span.end].removesuffix(template.turn_end)


def check_reading(
    record: Record, rows: Sequence[Rendered], protocol: Protocol, template: Template
) -> None:
    """parse(render(calls)) == calls, for this record. Words of a turn that is not learned and not
    asked may hold anything, such as half a call that a model has made. Raises RowError E215.
    """
    prompted = {*record.prompted_turns}
    prompted_spans = [(span, row) for row in rows for span in row.spans if span.prompted]
    for span, row in prompted_spans:
        message = record.messages[span.turn]
        if not (message.loss or message.calls or span.turn in prompted):
            continue
        text = span_text(row, span, template)
        parsed = protocol.read(text, record.tools)
        calls = [(call.name, call.arguments) for call in parsed.calls]
        problem = parsed.problem and f"does not read back as {protocol.name}: {parsed.problem}"
        if any(stop in text.removesuffix(stop) for stop in protocol.stops):
            problem = f"holds a stop string of {protocol.name}: sampling ends there"
        elif not problem and calls != [(call.name, call.arguments) for call in message.calls]:
            problem = f"does not read back as {protocol.name}: other calls than were written"
        if problem:
            raise RowError("E215", f"messages[{span.turn}] {problem}")


def check_protocol(protocol: Protocol, template: Template, others: Iterable[Protocol] = ()) -> None:
    """Raises UserError 5 for a protocol that does not read back; `others` may be the fix."""
    if not (problem := reading_problem(protocol, template)):
        return
    names = [other.name for other in others if not reading_problem(other, template)]
    raise template.refusal(
        f"the chat template cannot be used with protocol {protocol.name}: {problem}",
        f"With it these work: --protocol {' or '.join(names)}."
        if names
        else "No protocol works with this chat template. Choose another model, or put a "
        "chat_template.jinja into a copy of its folder that writes plain turns.",
    )


def _probe(arguments: dict[str, Any], types: dict[str, str]) -> Record:
    """A dialog with a call of these arguments, the result and an answer."""
    call = Call("get_weather", arguments, "call00000")
    turns = (Message("assistant", calls=(call,)), Message("tool", "4 mm", call_id=call.id))
    properties = {name: {"type": kind} for name, kind in types.items()}
    tool = Tool(call.name, "Weather.", {"type": "object", "properties": properties})
    return Record(
        messages=(Message("user", "Rain?"), *turns, Message("assistant", "Yes.")), tools=(tool,)
    )


PROBE = _probe({"city": "Oslo", "days": 2}, {"city": "string"})
# Values that some templates write without their quotes, their line breaks or their type.
VALUES = {
    "a": "2",
    "b": 'It\'s "x", or:\n  y\n',
    "c": [1, {"d": "e"}],
    "f": None,
    "g": True,
    "h": "",
}
VALUES_PROBE = _probe(VALUES, {"a": "string", "b": "string", "c": "array", "h": "string"})


def reading_problem(protocol: Protocol, template: Template, probe: Record = PROBE) -> str:
    """Why a call, its result and an answer do not read back; "" if they do."""
    if protocol.native and not template.prints_tools:
        return "it takes no tools"
    if protocol.native and not template.prints_calls:
        return "it prints tools, but no call with its name"
    if mark := template.control_token_in(protocol.template_json):
        return f"it holds the model's own mark {mark}"
    try:
        check_reading(probe, render(probe, protocol, template), protocol, template)
    except RowError as error:
        return error.reason.removeprefix(f"{protocol.name}: ")
    return ""
