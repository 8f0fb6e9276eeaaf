"""What a protocol writes around a call's arguments, found by writing calls and reading them."""

from typing import NamedTuple

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


def call_syntax(tool: Tool, protocol: Protocol, template: Template) -> CallSyntax | None:
    """Of a call of `tool`, in any dialog; None where a call whose arguments are JSON does not read
    back.
    """
    call = Message("assistant", calls=(Call(tool.name, {}, CALL_ID),))
    record = Record(messages=(Message("user", "x"), call), tools=(tool,))
    try:
        row = render_last(record, protocol, template)
    except RowError:
        return None
    span = next(span for span in row.spans if span.turn == 1)
    before, empty, after = span_text(row, span, template).rpartition("{}")
    read = protocol.read(f'{before}{{"probe": 1}}{after}', record.tools)
    reads_back = [(call.name, call.arguments) for call in read.calls] == [(tool.name, {"probe": 1})]
    return CallSyntax(before, after) if empty and reads_back and not read.problem else None
