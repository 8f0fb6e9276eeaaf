"""agentlite.data.formats.langchain: messages of LangChain are the dialog that OpenAI's would be."""

import json
from collections.abc import Callable

import pytest
from support.damaged_rows import Row
from support.read_rows import openai_dialogs

from agentlite.data.formats import detected, to_record

TYPES = {"system": "system", "user": "human", "assistant": "ai", "tool": "tool"}
CLASSES = {"system": "System", "human": "Human", "ai": "AI", "tool": "Tool"}


def plain(message: Row) -> Row:
    """An OpenAI message as `model_dump` of LangChain's writes it."""
    kept = {key: value for key, value in message.items() if key not in ("role", "tool_calls")}
    calls = [
        {
            "name": call["function"]["name"],
            "args": json.loads(call["function"]["arguments"]),
            "id": call["id"],
            "type": "tool_call",
        }
        for call in message.get("tool_calls") or ()
    ]
    content = message.get("content") or ""
    return {**kept, "type": TYPES[message["role"]], "content": content, "tool_calls": calls}


def blocks(message: Row) -> Row:
    """With a content as the models of Anthropic leave it: each call is in it once more."""
    made = plain(message)
    calls = [
        {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["args"]}
        for call in made["tool_calls"]
    ]
    text = [{"type": "text", "text": made["content"]}] if made["content"] else []
    return {**made, "content": [*text, *calls]}


def in_additional(message: Row) -> Row:
    made = plain(message)
    del made["tool_calls"]
    calls = message.get("tool_calls")
    return {**made, "additional_kwargs": {"tool_calls": calls} if calls else {}}


def with_data(message: Row) -> Row:
    made = plain(message)
    return {"type": made["type"], "data": made}


def constructor(message: Row) -> Row:
    made = plain(message)
    name = f"{CLASSES[made.pop('type')]}Message"
    path = ["langchain", "schema", "messages", name]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": made}


def chunk(message: Row) -> Row:
    made = plain(message)
    again = [{**call, "args": json.dumps(call["args"])} for call in made["tool_calls"]]
    kind = {"ai": "AIMessageChunk"}.get(made["type"], made["type"])
    return {**made, "type": kind, "tool_call_chunks": again if kind != made["type"] else []}


FORMS: list[Callable[[Row], Row]] = [
    plain,
    blocks,
    in_additional,
    with_data,
    constructor,
    chunk,
]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_message_is_the_message_it_stands_for(form: Callable[[Row], Row]) -> None:
    assert len(openai_dialogs()) > 20
    for row in openai_dialogs():
        made = {**row, "messages": [form(message) for message in row["messages"]]}
        assert detected(made) == "langchain"
        expected, record = to_record(row, "openai"), to_record(made)
        assert (record.messages, record.tools) == (expected.messages, expected.tools)
