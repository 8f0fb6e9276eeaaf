"""A faster reader of OpenAI rows, for rows that hold nothing unusual.

It is never a second opinion: what it takes, the slower way takes for the same record; what it
cannot be sure of is None, and the slower way says what it is.
"""

from typing import Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Message, Record, Tool
from agentlite.data.formats.json_decode import json_value
from agentlite.data.formats.tool_calls import MOST_KNOWN, read_arguments, read_tool


class _Function(Struct, forbid_unknown_fields=True, gc=False):
    name: str
    arguments: str


class _Call(Struct, forbid_unknown_fields=True, gc=False):
    id: str
    function: _Function
    type: Literal["function"] | UnsetType = UNSET


class _RawMessage(Struct, forbid_unknown_fields=True, gc=False):
    role: Literal["system", "user", "assistant", "tool"]
    content: str | UnsetType | None = UNSET
    tool_calls: list[_Call] | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    loss: bool | UnsetType = UNSET


class _Row(Struct, forbid_unknown_fields=True, gc=False):
    messages: list[_RawMessage]
    tools: list[Raw] | UnsetType = UNSET


_DECODER = msgspec.json.Decoder(_Row)
_KNOWN: dict[bytes, tuple[Tool, int]] = {}


def read(content: bytes) -> Record | None:
    """The record of a line, or None."""
    try:
        row = _DECODER.decode(content)
        given = [] if row.tools is UNSET else [_tool(bytes(tool)) for tool in row.tools]
        if not _is_all(content, row, sum(extra for _, extra in given)):
            return None
        messages = _messages(row.messages)
    except (msgspec.MsgspecError, RowError, ValueError, RecursionError):
        return None
    return Record(messages=messages, tools=tuple([tool for tool, _ in given])) if messages else None


def _is_all(content: bytes, row: _Row, extra: int) -> bool:
    """Whether nothing of the line got lost: a key that appears twice, or what is written otherwise
    than we write it.
    """
    return len(msgspec.json.encode(row)) - extra == len(msgspec.json.format(content, indent=-1))


def _tool(content: bytes) -> tuple[Tool, int]:
    """A tool, and by how many bytes its text is longer than it need be. Raises RowError."""
    if content not in _KNOWN:
        if len(_KNOWN) >= MOST_KNOWN:
            _KNOWN.clear()
        ((value,),) = json_value(f"[[{content.decode()}]]")  # as deep as in its row
        if not isinstance(value, dict) or "input_schema" in value:  # Anthropic's
            raise RowError("E212", "not a tool as OpenAI writes it")
        _KNOWN[content] = (
            read_tool(value),
            len(content) - len(msgspec.json.format(content, indent=-1)),
        )
    return _KNOWN[content]


def _messages(raw_messages: list[_RawMessage]) -> tuple[Message, ...] | None:
    """None where a result does not answer the next call in turn, or one speaks twice: two turns may
    be one.
    """
    messages: list[Message] = []
    waiting: list[str] = []
    before = ""
    for one in raw_messages:
        role, content, loss = one.role, one.content or "", one.loss is not False
        if role == "tool":
            if not waiting or one.tool_call_id != waiting.pop(0) or one.tool_calls is not UNSET:
                return None
            messages.append(Message(role, content, (), one.tool_call_id, loss))
        elif role == before or one.tool_call_id is not UNSET:
            return None
        elif one.tool_calls is UNSET:
            messages.append(Message(role, content, (), "", loss))
            waiting = []
        elif role == "assistant":
            calls = tuple([_call(call) for call in one.tool_calls])
            messages.append(Message(role, content, calls, "", loss))
            waiting = [call.id for call in calls]
        else:
            return None
        before = role
    return tuple(messages)


def _call(call: _Call) -> Call:
    """Raises RowError for arguments that cannot be read, or a call that has no name or no id."""
    if not call.id or not call.function.name:
        raise RowError("E206", "a call without a name or an id")
    return Call(call.function.name, read_arguments(call.function.arguments), call.id)
