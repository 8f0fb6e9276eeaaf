"""OpenAI messages and tools -> the prompt of a protocol, and its answer read back."""

import uuid
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agentlite.core.errors import RowError
from agentlite.core.records import Ending, Parsed, Record
from agentlite.data.curation.validate import check_dialog
from agentlite.data.formats import to_record
from agentlite.rendering import Protocol, render_last
from agentlite.rendering.encoding import encode_prompt
from agentlite.rendering.template import Template

STAND_IN = "x"  # stands where the assistant goes on


class OpenDialog(NamedTuple):
    """A dialog that waits for the assistant: a record that ends with STAND_IN, and its prompt."""

    record: Record
    ids: list[int]
    text: str = ""


class Turn(NamedTuple):
    """The text as the model wrote it, how it ended, and what the protocol reads in it."""

    text: str
    ended: Ending
    parsed: Parsed
    prompt_tokens: int = 0
    new_tokens: int = 0


def open_dialog(
    messages: Sequence[object], tools: Sequence[object], protocol: Protocol, template: Template
) -> OpenDialog:
    """Raises RowError for a dialog or tools that are none, or that the protocol cannot hold."""
    if messages and isinstance(messages[-1], Mapping) and messages[-1].get("role") == "assistant":
        raise RowError("E203", "the last message is the assistant's: there is nothing to answer")
    stand_in = {"role": "assistant", "content": STAND_IN}
    record = to_record(
        {"messages": [*messages, stand_in], "tools": list(tools)}, "openai", split=False
    )
    check_dialog(record)
    row = render_last(record, protocol, template)
    turn = record.turns[-1]
    # all that stands before what the model is to write
    text = row.text[: next(span.start for span in row.spans if span.turn == turn and span.prompted)]
    return OpenDialog(record, encode_prompt(row, turn, template), text)


def new_call_id() -> str:
    """Nine letters and digits: some templates take no other."""
    return uuid.uuid4().hex[:9]
