"""agentlite.data.formats.langchain: messages of LangChain are the dialog that OpenAI's would be."""

import json
from collections.abc import Callable

import pytest
from support.damaged_rows import Row, refused, rows
from support.read_rows import openai_dialogs

from agentlite.data.curation.validate import validate
from agentlite.data.formats import detected, langchain, openai, to_record

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


def test_the_sample_rows_are_valid_and_keep_thoughts_and_other_keys() -> None:
    records = [langchain.read(row) for row in rows("langchain")]
    for record in records:
        validate(record)
    assert records[1].messages[2].content == "I look.\n\n我查一下。"
    assert records[0].meta["turns"]["2"]["usage_metadata"] == {"input_tokens": 9}
    assert records[3].meta["extra"] == {"thread_id": "t1"}


def test_a_call_that_could_not_be_read_is_refused() -> None:
    bad = {"name": "weather", "args": '{"city', "id": "x", "error": "", "type": "invalid_tool_call"}
    turn = {"type": "ai", "content": "I look.", "invalid_tool_calls": [bad]}
    row = {"messages": [{"type": "human", "content": "Hi"}, turn]}
    assert refused(lambda: to_record(row)) == "E206"


def test_a_call_in_the_content_alone_is_refused() -> None:
    part = {"type": "tool_use", "id": "x", "name": "weather", "input": {}}
    row = {"messages": [{"type": "human", "content": "Hi"}, {"type": "ai", "content": [part]}]}
    assert refused(lambda: to_record(row)) == "E216"


def test_messages_of_which_nothing_is_known_are_left_to_openai() -> None:
    assert not langchain.fits({"messages": []})
    assert not langchain.fits({"messages": [{"type": "remove", "id": "h1"}]})
    assert openai.fits({"messages": []})
