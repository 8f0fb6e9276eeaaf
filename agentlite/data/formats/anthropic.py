"""Anthropic rows -> Record: messages of content blocks, tools with `input_schema`."""

from itertools import groupby
from typing import Any

from agentlite.core.errors import RowError
from agentlite.core.plain_words import kind as kind_of
from agentlite.core.records import Call, Message, Record, Tool
from agentlite.data.formats.extra_fields import meta_of, refuse_unread, rest
from agentlite.data.formats.json_decode import shortened
from agentlite.data.formats.openai import LOSS, has_loss, merged, unknown_role
from agentlite.data.formats.tool_calls import read_call, read_tools, without_filled

EXAMPLE = '{"system": "Be brief.", "messages": [{"role": "user", "content": "Is it wet in Oslo?"}, {"role": "assistant", "content": [{"type": "text", "text": "I look it up."}, {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Oslo"}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "4 mm"}]}, {"role": "assistant", "content": "Yes."}], "tools": [{"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]}'  # noqa: E501  (a row is one line)
FIELDS = {"messages": list}
BLOCKS = {"user": ("text", "tool_result"), "assistant": ("text", "thinking", "tool_use")}
OWN_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking")
KNOWN = ("type", "text", "thinking", "id", "name", "input", "tool_use_id", "content", "is_error")
Block = dict[str, Any]


def fits(row: dict[str, Any]) -> bool:
    messages, tools = row["messages"], row.get("tools")
    contents = []
    for message in messages:  # OpenAI's may look the same
        if not isinstance(message, dict) or str(message.get("role")) not in BLOCKS:
            return False
        if "content" not in message or message.get("tool_calls") or message.get("function_call"):
            return False
        contents.append(message["content"])
    if isinstance(tools, list):
        has_schema = any(isinstance(tool, dict) and tool.get("input_schema") for tool in tools)
    else:
        has_schema = isinstance(tools, str) and '"input_schema"' in tools
    blocks = (block for content in contents if isinstance(content, list) for block in content)
    has_own = any(isinstance(block, dict) and block.get("type") in OWN_BLOCKS for block in blocks)
    return bool(row.get("system")) or has_schema or has_own


def read(row: dict[str, Any]) -> Record:
    """A user who speaks in one message with results is refused: put into a result, these words
    would teach to obey results.
    """
    tools = read_tools(row.get("tools"))
    dialog = _AnthropicDialog(tools)
    if system := _texts(row.get("system"), "\n\n", "system"):
        dialog.messages.append(Message("system", system))
    for number, message in enumerate(row["messages"], 1):
        dialog.add(message, number)
    return Record(
        messages=merged(dialog.messages),
        tools=tools,
        meta=meta_of(
            row, "messages", "tools", "system", is_error=dialog.failed, blocks=dialog.extra
        ),
    )


class _AnthropicDialog:
    """Reads messages in their order, so that each result finds the call it answers."""

    def __init__(self, tools: tuple[Tool, ...]):
        self.tools = {tool.name: tool for tool in tools}
        self.messages: list[Message] = []
        self.calls = 0
        self.ids: dict[str, str] = {}  # of the turn before: the row's id of a call, and ours
        self.failed: list[str] = []
        self.extra: list[dict[str, Any]] = []

    def add(self, message: Any, number: int) -> None:
        place = f"message {number}"
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str) or role not in BLOCKS:
            raise unknown_role(role, BLOCKS, place)
        refuse_unread(message, ("role", "content", *LOSS), place)
        blocks = _blocks(message.get("content"), BLOCKS[role], place)
        if role == "assistant":
            self._assistant(blocks, has_loss(message))
        else:
            self._user(blocks, place)
        for given in (rest(message, "role", "content", *LOSS), *(rest(b, *KNOWN) for b in blocks)):
            self.extra += [{"message": number, **given}] if given else []

    def _assistant(self, blocks: list[Block], loss: bool) -> None:
        texts, calls = [], []
        self.ids = {}
        for kind, group in groupby(blocks, lambda block: block["type"]):
            if kind == "tool_use":
                calls += [self._call(block) for block in group]
            else:  # a text is split where a citation begins
                texts.append("".join(_text(block, kind) for block in group))
        content = "\n\n".join(filter(None, texts))
        self.messages.append(Message("assistant", content, tuple(calls), loss=loss))

    def _call(self, block: Block) -> Call:
        given = block.get("id")
        if not isinstance(given, str) or not given or given in self.ids:
            raise RowError("E205", f"a tool_use needs an id of its own, not {given!r}")
        call = read_call({key: inner for key, inner in block.items() if key != "type"})
        tool = self.tools.get(call.name, Tool(call.name))
        arguments = without_filled(block, call.arguments, tool)
        self.ids[given] = f"call_{self.calls}"
        self.calls += 1
        return Call(call.name, arguments, self.ids[given])

    def _user(self, blocks: list[Block], place: str) -> None:
        results = []
        for block in (block for block in blocks if block["type"] == "tool_result"):
            given = str(block.get("tool_use_id") or "")
            call_id = self.ids.get(given, given)
            self.failed += [call_id] if block.get("is_error") else []
            content = _texts(block.get("content"), "\n", f"the result of {given}")
            results.append(Message("tool", content, call_id=call_id))
        text = "\n\n".join(_text(block, "text") for block in blocks if block["type"] == "text")
        if results and text.strip():
            raise RowError(
                "E203",
                f"the user speaks in the same message as a result ({place}): "
                f"{shortened(text.strip())}",
                "Move the text into the user's message before the call, or drop it.",
            )
        self.messages += results or [Message("user", text if text.strip() else "")]


def _blocks(content: Any, known: tuple[str, ...], place: str) -> list[Block]:
    """A text as its only block."""
    if content is None or isinstance(content, str):
        return [{"type": "text", "text": content or ""}]
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else kind_of(block)
        if kind not in known or not isinstance(block, dict):
            raise RowError(
                "E216",
                f"content of type {kind!r}; only {', '.join(known)} can be learned here ({place})",
            )
    return [*content]


def _texts(content: object, between: str, place: str) -> str:
    return between.join(
        filter(None, (_text(block, "text") for block in _blocks(content, ("text",), place)))
    )


def _text(block: Block, key: str) -> str:
    if not isinstance(block.get(key), str):
        raise RowError("E216", f"a block of type {key!r} without {key}")
    return str(block[key])
