"""Glaive function-calling rows, {"system", "chat"}, a dialog written as one text -> Record."""

import re
from typing import Any

from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Message, Record, Tool
from agentlite.data.formats.extra_fields import meta_of, text_at
from agentlite.data.formats.inline_text import end_of, tools_at
from agentlite.data.formats.json_decode import shortened
from agentlite.data.formats.openai import merged
from agentlite.data.formats.tool_calls import json_or_literal, read_arguments, read_call

EXAMPLE = r"""{"system": "SYSTEM: You are a helpful assistant with access to the following functions. Use them if required -\n{\"name\": \"weather\", \"description\": \"\", \"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}}}\n", "chat": "USER: Is it wet in Oslo?\n\n\nASSISTANT: <functioncall> {\"name\": \"weather\", \"arguments\": '{\"city\": \"Oslo\"}'} <|endoftext|>\n\n\nFUNCTION RESPONSE: {\"mm\": 4}\n\n\nASSISTANT: Yes. <|endoftext|>"}"""  # noqa: E501  (a row is one line)
FIELDS = {"system": str, "chat": str}
FRAME = re.compile(
    r"You are a helpful assistant,? with access to the following functions\.\s*Use them if "
    r"required\s*-?\s*",
    re.IGNORECASE,
)
END = "<|endoftext|>"
SPEAKER = re.compile(r"(?:\A|\n\n|<\|endoftext\|>)\s{0,9}(USER|ASSISTANT|FUNCTION RESPONSE):")
ESCAPED = re.compile(r"\\(.)", re.DOTALL)
CALL = re.compile(r"""\s*\{\s*"name":\s*"([^"\\]*)",\s*"arguments":\s*'(.*)'\s*\}""", re.DOTALL)


def fits(row: dict[str, Any]) -> bool:
    return bool(SPEAKER.search(row["chat"]))


def read(row: dict[str, Any]) -> Record:
    before, *pieces = SPEAKER.split(text_at(row, "chat"))
    if before.strip() or not pieces:
        raise RowError("E201", f"the chat does not begin with who speaks: {shortened(before)}")
    tools: tuple[Tool, ...] = ()
    system = text_at(row, "system").strip().removeprefix("SYSTEM:").strip()
    if frame := FRAME.search(system):
        tools, end = tools_at(system, frame.end())
        system = (system[: frame.start()] + system[end:]).strip()
    messages = [Message("system", system)] if system else []
    made, waiting = 0, list[str]()
    for speaker, text in zip(pieces[::2], map(str.strip, pieces[1::2]), strict=True):
        if speaker == "USER":
            messages.append(Message("user", text))
            continue
        if speaker == "FUNCTION RESPONSE":
            messages.append(Message("tool", text, call_id=waiting.pop(0) if waiting else ""))
            continue
        said, *written = text.removesuffix(END).strip().split("<functioncall>")
        called = [_call(call) for call in written]
        calls = tuple(replace(call, id=f"call_{made + i}") for i, (call, _) in enumerate(called))
        content = "\n".join(filter(None, (said.strip(), *(after for _, after in called))))
        messages.append(Message("assistant", content, calls))
        waiting = [call.id for call in calls]
        made += len(calls)
    return Record(messages=merged(messages), tools=tools, meta=meta_of(row, "system", "chat"))


def _call(text: str) -> tuple[Call, str]:
    """A call and what stands after it. The arguments are JSON in single quotes, which may hold some
    themselves.
    """
    if quoted := CALL.match(text):
        # of the escapes in it, only that of a single quote is not JSON's
        written = ESCAPED.sub(lambda pair: "'" if pair[1] == "'" else pair[0], quoted[2])
        call = Call(quoted[1], read_arguments(written, json_or_literal))
        return call, text[quoted.end() :].strip()
    written = text.lstrip()
    if not written.startswith("{"):
        raise RowError("E206", f"a call that is not an object: {shortened(written)}")
    end = end_of(written, 0, "E206")
    return read_call(written[:end], json_or_literal), written[end:].strip()
