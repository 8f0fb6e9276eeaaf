"""Hermes function-calling rows -> Record: ShareGPT turns with calls and results in tags."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Message, Record, Tool
from agentlite.data.formats import sharegpt
from agentlite.data.formats.chains import PromptParts, Syntax
from agentlite.data.formats.extra_fields import meta_of
from agentlite.data.formats.inline_text import result_of, sentences, tools_at, value_of
from agentlite.data.formats.json_decode import shortened
from agentlite.data.formats.tool_calls import json_or_literal, read_call, read_tools

EXAMPLE = r"""{"id": "1", "conversations": [{"from": "system", "value": "You are a function calling AI model. You are provided with function signatures within <tools> </tools> XML tags.\n<tools>\n[{'type': 'function', 'function': {'name': 'weather', 'parameters': {'type': 'object', 'properties': {'city': {'type': 'string'}}}}}]\n</tools>"}, {"from": "human", "value": "Is it wet in Oslo?"}, {"from": "gpt", "value": "<tool_call>\n{'arguments': {'city': 'Oslo'}, 'name': 'weather'}\n</tool_call>"}, {"from": "tool", "value": "<tool_response>\n{\"name\": \"weather\", \"content\": {\"mm\": 4}}\n</tool_response>"}, {"from": "gpt", "value": "Yes."}]}"""  # noqa: E501  (a row is one line)
FIELDS = {"conversations": list}
TOOLS = re.compile(r"<tools>\s*(?=[\[{])")
CLOSED = re.compile(r"\s*</tools>\.?")
CALL = re.compile(r"<tool_call>(?:(?!<tool_call>).)*?</tool_call>", re.DOTALL)
BLOCK = re.compile(
    r"<tool_call>(?P<call>(?:(?!<tool_call>).)*?)</tool_call>"
    r"|<tool_(?:response|result)>(?P<result>(?:(?!<tool_re).)*?)</tool_(?:response|result)>",
    re.DOTALL,
)
THOUGHT = re.compile(r"</?scratch_pad>\n?")
FRAME = sentences(
    r"You are a function calling AI model(?: named [^.\n]{1,40})?\.",
    r"You are provided with function signatures within <tools>\s*</tools> XML tags[.:]",
    r"(?:# Tools\s+)?You may call one or more functions to assist with the user query\.",
    r"Don't make assumptions about what values to plug into functions\.",
    r"Here are the available tools:",
    (
        r"Use the following pydantic model json schema for each tool call you will "
        r"make:.{0,3000}?\n</tool_call>"
    ),
    r"For each function call,? return a json object.{0,3000}?\n</tool_call>",
)


def fits(row: dict[str, Any]) -> bool:
    """By its tools or, in its rows without any, the schema that the answer must have."""
    turns = row["conversations"]
    if not all(isinstance(turn, dict) and "from" in turn for turn in turns):
        return False
    texts = [row.get("system"), *(turn.get("value") for turn in turns if turn["from"] == "system")]
    return any(
        isinstance(text, str) and (TOOLS.search(text) or "<schema>" in text) for text in texts
    )


def read(row: dict[str, Any]) -> Record:
    tools: list[Tool] = []
    unframed: list[Any] = []
    for number, turn in sharegpt.numbered_turns(row):
        if sharegpt.speaker_of(turn, number) == "system":
            prompt = _prompt(sharegpt.text_of(turn, number))
            tools += prompt.tools
            turn = {"from": "system", "value": prompt.text}
        unframed.append(turn)
    messages: list[Message] = []
    waiting: list[Call] = []
    for message in sharegpt.read({"conversations": unframed}).messages:
        if message.role == "tool":  # it may name the call that it answers
            content = message.content
            message = result_of(value_of(content), content, "content", waiting)
        elif message.calls:  # which part thoughts from an answer
            waiting = [*message.calls]
            message = replace(message, content=THOUGHT.sub("", message.content).strip())
        if message.content or message.role != "system":
            messages.append(message)
    known = ["conversations", "conversation", "system"]
    with contextlib.suppress(RowError):  # the row's own tools may be those of its text
        if [*read_tools(row.get("tools"), json_or_literal)] == tools:
            known.append("tools")
    return Record(messages=tuple(messages), tools=tuple(tools), meta=meta_of(row, *known))


def _prompt(system: str) -> PromptParts:
    """The tools and, without them and their frame, the author's own words."""
    if not (opened := TOOLS.search(system)):
        return PromptParts((), system)
    tools, end = tools_at(system, opened.end())
    if not (closed := CLOSED.match(system, end)):
        raise RowError("E124", "<tools> holds more than JSON, or is not closed")
    own_words = FRAME.sub("", system[: opened.start()] + system[closed.end() :]).strip()
    return PromptParts(tools, own_words)


def _chain(
    text: str, loss: bool, calls: dict[str, dict[str, Any]], tools: Sequence[Tool]
) -> Iterator[Message]:
    """One answer with calls and their results in tags, as the messages it stands for."""
    texts: list[str] = []
    made: list[Call] = []
    waiting: list[Call] = []
    end = 0
    for block in BLOCK.finditer(text):
        before = text[end : block.start()].strip()
        end = block.end()
        if block["call"] is None:
            if made:
                yield Message("assistant", _joined([*texts, before]), tuple(made), loss=loss)
                texts, waiting, made = [], made, []
            elif before or not waiting:
                raise RowError("E214", f"a result without a call: {shortened(block[0])}")
            result = block["result"].strip()
            yield result_of(value_of(result), result, "content", waiting)
            continue
        texts.append(before)
        waiting = []
        made.append(replace(read_call(block["call"], json_or_literal), id=f"call_{len(calls)}"))
        calls[made[-1].id] = {}
    if not end:
        yield Message("assistant", text, loss=loss)
    elif (content := _joined([*texts, text[end:]])) or made:
        yield Message("assistant", content, tuple(made), loss=loss)


def _joined(texts: list[str]) -> str:
    return "\n".join(filter(None, (THOUGHT.sub("", text).strip() for text in texts)))


SYNTAX = Syntax(TOOLS.search, lambda text, tools: CALL.search(text), _prompt, _chain)
