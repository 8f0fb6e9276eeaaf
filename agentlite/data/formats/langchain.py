"""LangChain's and LangGraph's messages -> Record: as dumped, as dicts or as `messages_to_dict`."""

from typing import Any

from agentlite.core.records import Record
from agentlite.data.formats import openai
from agentlite.data.formats.extra_fields import rest

EXAMPLE = '{"messages": [{"type": "human", "content": "Is it wet in Oslo?"}, {"type": "ai", "content": "", "tool_calls": [{"name": "weather", "args": {"city": "Oslo"}, "id": "a", "type": "tool_call"}]}, {"type": "tool", "content": "4 mm", "tool_call_id": "a", "status": "success"}, {"type": "ai", "content": "Yes."}], "tools": [{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]}'  # noqa: E501  (a row is one line)
ROLES = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "function",
    "chat": "",  # it says its role itself
}
TYPES = ROLES.keys() | {f"{name}messagechunk" for name in ROLES}
# parts of a content that repeat a call, and those that hold a thought, with its key
CALL_PARTS = ("tool_use", "tool_call", "tool_call_chunk", "function_call", "input_json_delta")
THOUGHT_PARTS = {"thinking": "thinking", "reasoning": "reasoning"}
Fields = dict[str, Any]


def fits(row: dict[str, Any]) -> bool:
    messages = row.get("messages")
    return isinstance(messages, list) and bool(messages) and all(map(_type, messages))


def read(row: dict[str, Any]) -> Record:
    if not fits(row):
        return openai.read(row)
    messages = [_message(message) for message in row["messages"]]
    return openai.read({**row, "messages": messages})


def _type(message: object) -> str:
    """The type of a message, in lower case; "" if it is none of LangChain's."""
    fields = _fields(message)
    name = str(fields.get("type", "")).lower()
    known = name in TYPES and (fields.get("role") is None or name.startswith("chat"))
    return name.removesuffix("messagechunk") if known else ""


def _fields(message: object) -> Fields:
    """What a message says, without what wraps it: a constructor, or its type beside its data."""
    if not isinstance(message, dict):
        return {}
    inner, names = message.get("kwargs"), message.get("id")
    if message.get("lc") and isinstance(inner, dict) and isinstance(names, list) and names:
        return {"type": str(names[-1]).removesuffix("Message"), **inner}
    inner = message.get("data")
    return {**inner, "type": message.get("type")} if isinstance(inner, dict) else message


def _message(message: object) -> Fields:
    """As OpenAI writes it."""
    fields, kind = _fields(message), _type(message)
    made: Fields = rest(fields, "type", "content")
    made["role"] = ROLES[kind] or fields.get("role")
    if kind == "ai":
        more = fields.get("additional_kwargs")
        more = more if isinstance(more, dict) else {}
        if not made.get("tool_calls"):
            made |= {key: more[key] for key in openai.CALLS if more.get(key)}
        made |= {key: more[key] for key in openai.THOUGHTS if more.get(key)}
    content = fields.get("content")
    if isinstance(content, list):
        has_calls = any(made.get(key) for key in openai.CALLS)
        kept, thoughts = [], []
        for part in content:
            part_type = part.get("type") if isinstance(part, dict) else None
            thought = part.get(THOUGHT_PARTS.get(str(part_type), "")) if part_type else None
            if isinstance(thought, str):
                thoughts.append(thought)
            elif not (has_calls and part_type in CALL_PARTS):  # which were read
                kept.append({"type": "text", "text": part} if isinstance(part, str) else part)
        if thoughts:
            made["thinking"] = "\n\n".join(thoughts)
        content = kept
    return {**made, "content": content}
