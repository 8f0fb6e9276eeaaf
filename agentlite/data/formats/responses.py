"""Items of OpenAI's Responses API and Agents SDK -> Record: messages, calls, results in a list."""

from typing import Any

from agentlite.core.errors import RowError
from agentlite.core.records import Record
from agentlite.data.formats import openai
from agentlite.data.formats.extra_fields import rest
from agentlite.data.formats.json_decode import shortened

EXAMPLE = r'{"instructions": "Be brief.", "input": [{"role": "user", "content": "Is it wet in Oslo?"}, {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{\"city\": \"Oslo\"}"}, {"type": "function_call_output", "call_id": "a", "output": "4 mm"}], "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]}], "tools": [{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]}'  # noqa: E501  (a row is one line)
BEFORE = ("input", "messages", "items")
OWN_ITEMS = ("function_call", "function_call_output", "reasoning")
OWN_PARTS = ("input_text", "output_text")
TEXTS = (*OWN_PARTS, "text", "summary_text", "reasoning_text")
SYSTEM = {"system", "developer"}
# keys of an item that become part of a message
KNOWN = ("type", "role", "content", "call_id", "name", "arguments", "output", "summary")
Item = dict[str, Any]


def fits(row: dict[str, Any]) -> bool:
    items = _items(row)
    known = all(isinstance(item, dict) and ("role" in item or "type" in item) for item in items)
    return known and any(map(_is_own, items))


def read(row: dict[str, Any]) -> Record:
    """A turn holds all that the assistant thinks, says and calls up to the next result or message.
    Raises RowError E216 for an item that is none of these, such as the call of a hosted tool.
    """
    given = [key for key in BEFORE if row.get(key)]
    dialog = _ResponsesDialog()
    if (system := row.get("instructions")) is not None:
        dialog.messages.append({"role": "system", "content": _text(system, "instructions")})
    for number, item in enumerate(_items(row), 1):
        dialog.add(item, number)
    for other in given[1:]:
        if isinstance(row[other], list):
            openai.refuse_another(row, given[0], dialog.messages, other)
    others = rest(row, "instructions", "output", *given[:1])
    extra = {"items": dialog.extra} if dialog.extra else {}
    return openai.read({**others, **extra, "messages": dialog.messages})


def _items(row: dict[str, Any]) -> list[Any]:
    """The items of a row: what came first, as a list or as the text of a user, and the output."""
    before = row.get(next((key for key in BEFORE if row.get(key)), ""))
    items = [{"role": "user", "content": before}] if isinstance(before, str) else before or []
    output = row.get("output") or []
    return [
        *(items if isinstance(items, list) else [items]),
        *(output if isinstance(output, list) else [output]),
    ]


def _is_own(item: Item) -> bool:
    content = item.get("content")
    parts = content if isinstance(content, list) else []
    return item.get("type") in OWN_ITEMS or any(
        isinstance(part, dict) and part.get("type") in OWN_PARTS for part in parts
    )


class _ResponsesDialog:
    """Collects messages as OpenAI's chat API writes them."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.extra: list[dict[str, Any]] = []

    def add(self, item: Item, number: int) -> None:
        kind, place = item.get("type") or "message", f"item {number}"
        if kind == "message" and item.get("role") == "assistant":
            self._say("content", _text(item.get("content"), place))
        elif kind == "message":
            role, text = str(item.get("role")), _text(item.get("content"), place)
            # a system message behind another at the beginning goes on with it
            if len(self.messages) == 1 and {role, self.messages[0]["role"]} <= SYSTEM:
                text = "\n\n".join(filter(None, [self.messages.pop()["content"], text]))
            self.messages.append({"role": role, "content": text})
        elif kind == "reasoning":
            thoughts = item.get("content") or item.get("summary") or []
            for thought in thoughts if isinstance(thoughts, list) else [thoughts]:
                self._say("thinking", _text([thought], place))
        elif kind == "function_call":
            call = {"id": item.get("call_id"), **rest(item, "id", "type", "call_id", "status")}
            self._turn().setdefault("tool_calls", []).append(call)
        elif kind == "function_call_output":
            output = item.get("output")
            result = _text(output, place) if openai.is_parts(output) else output
            self.messages.append(
                {"role": "tool", "tool_call_id": item.get("call_id"), "content": result}
            )
        else:
            reason = f"an item of type {shortened(kind)}: it cannot be learned ({place})"
            raise RowError("E216", reason, at=str(kind))
        if extra := rest(item, *KNOWN):
            self.extra.append({"item": number, **extra})

    def _turn(self) -> dict[str, Any]:
        """The assistant turn that goes on, or a new one."""
        if not self.messages or self.messages[-1]["role"] != "assistant":
            self.messages.append({"role": "assistant", "content": ""})
        return self.messages[-1]

    def _say(self, key: str, text: str) -> None:
        turn = self._turn()
        turn[key] = "\n\n".join(filter(None, [turn.get(key, ""), text]))


def _text(content: object, place: str) -> str:
    """The text of a content's parts. Raises RowError E216 for a part that holds no text."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content if isinstance(content, list) else [content]:
        text = part.get("text") if isinstance(part, dict) else None
        if not isinstance(part, dict) or part.get("type") not in TEXTS or not isinstance(text, str):
            found = part.get("type") if isinstance(part, dict) else part
            reason = f"content of type {shortened(found)}: only text can be learned ({place})"
            raise RowError("E216", reason)
        texts.append(text)
    return "".join(texts)
