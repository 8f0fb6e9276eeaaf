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
CALL = re.compile(r"""\s*\{\s*"name":\s*"([^"\\]*)",\s*"arguments":\s*'(.*)'\s*\}""", re.DOTALL)


def fits(row: dict[str, Any]) -> bool:
    return bool(SPEAKER.search(row["chat"]))


def read(row: dict[str, Any]) -> Record:
    before, *pieces = SPEAKER.split(text_at(row, "chat"))
    if before.strip() or not pieces:
        raise RowError("E201", f"the chat does not begin with who speaks: {shortened(before)}")
    tools, own_words = _taken_apart(text_at(row, "system"))
    messages = [Message("system", own_words)] if own_words else []
    waiting: list[Call] = []
    for speaker, text in zip(pieces[::2], map(str.strip, pieces[1::2]), strict=True):
        if speaker == "USER":
            messages.append(Message("user", text))
        elif speaker == "FUNCTION RESPONSE":
            messages.append(Message("tool", text, call_id=waiting.pop(0).id if waiting else ""))
        else:
            made = sum(len(message.calls) for message in messages)
            messages.append(_answer(text.removesuffix(END).strip(), made))
            waiting = [*messages[-1].calls]
    return Record(messages=merged(messages), tools=tools, meta=meta_of(row, "system", "chat"))


def _taken_apart(system: str) -> tuple[tuple[Tool, ...], str]:
    """The functions and, without them and their frame, the author's own words."""
    text = system.strip().removeprefix("SYSTEM:").strip()
    if not (frame := FRAME.search(text)):
        return (), text
    tools, end = tools_at(text, frame.end())
    return tools, (text[: frame.start()] + text[end:]).strip()


def _answer(text: str, made: int) -> Message:
    """What is said before and after the calls, and the calls; `made`: how many before them."""
    before, *written = text.split("<functioncall>")
    read = [_call(call) for call in written]
    calls = tuple(replace(call, id=f"call_{made + i}") for i, (call, _) in enumerate(read))
    content = "\n".join(filter(None, (before.strip(), *(after for _, after in read))))
    return Message("assistant", content, calls)


def _call(text: str) -> tuple[Call, str]:
    """A call and what stands after it. The arguments are JSON in single quotes, which may hold some
    themselves.
    """
    if quoted := CALL.match(text):
        unescaped = re.sub(
            r"\\(.)", lambda pair: "'" if pair[1] == "'" else pair[0], quoted[2], flags=re.DOTALL
        )
        return Call(quoted[1], read_arguments(unescaped, json_or_literal)), text[
            quoted.end() :
        ].strip()
    written = text.lstrip()
    if not written.startswith("{"):
        raise RowError("E206", f"a call that is not an object: {shortened(written)}")
    end = end_of(written, 0, "E206")
    return read_call(written[:end], json_or_literal), written[end:].strip()
