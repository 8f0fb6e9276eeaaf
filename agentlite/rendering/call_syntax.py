"""What a protocol writes around a call's arguments, found by writing calls and reading them."""

from typing import NamedTuple

from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Message, Record, Tool
from agentlite.rendering.protocol import Protocol
from agentlite.rendering.renderer import render_last, span_text
from agentlite.rendering.template import Template

CALL_ID = "call00000"


class CallSyntax(NamedTuple):
    """The texts before and behind the arguments, a JSON object."""

    before: str
    after: str


def call_syntax(
    record: Record, tool: Tool, protocol: Protocol, template: Template
) -> CallSyntax | None:
    """Of a call of `tool` at the record's last turn; None where a call whose arguments are JSON
    does not read back.
    """
    message = Message("assistant", calls=(Call(tool.name, {}, CALL_ID),))
    called = replace(record, messages=(*record.messages[:-1], message))
    try:
        row = render_last(called, protocol, template)
    except RowError:
        return None
    span = next(span for span in row.spans if span.turn == len(called.messages) - 1)
    before, empty, after = span_text(row, span, template).rpartition("{}")
    read = protocol.read(f'{before}{{"probe": 1}}{after}', record.tools)
    reads_back = [(call.name, call.arguments) for call in read.calls] == [(tool.name, {"probe": 1})]
    return CallSyntax(before, after) if empty and reads_back and not read.problem else None
