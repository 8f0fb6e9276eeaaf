"""LangChain's messages, items of OpenAI's Responses API and Gemini's contents are read as the turns
of OpenAI's chat API that they stand for.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import pytest
from support.damaged_rows import Row
from support.read_rows import openai_dialogs

from agentlite.core.records import Record, to_json
from agentlite.data.curation.validate import validate
from agentlite.data.formats import detect_format, other_apis, to_record

TYPES = {"system": "system", "user": "human", "assistant": "ai", "tool": "tool"}
CLASSES = {"system": "System", "human": "Human", "ai": "AI", "tool": "Tool"}


def pairs(format: str, written: Callable[[Row], Row]) -> Iterator[tuple[Record, Record]]:
    """The record of each dialog, and that of the same dialog written as another format has it."""
    dialogs = openai_dialogs()
    assert len(dialogs) > 20
    for row in dialogs:
        made = written(row)
        assert detect_format(made) == format
        yield to_record(row, "openai"), to_record(made)


# --- LangChain ---


def dumped(message: Row) -> Row:
    """An OpenAI message as `model_dump` of LangChain's writes it."""
    kept = {key: value for key, value in message.items() if key not in ("role", "tool_calls")}
    calls = []
    for call in message.get("tool_calls") or ():
        name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
        calls.append({"name": name, "args": arguments, "id": call.get("id"), "type": "tool_call"})
    content = message.get("content") or ""
    return {**kept, "type": TYPES[message["role"]], "content": content, "tool_calls": calls}


def in_blocks(message: Row) -> Row:
    """With a content as the models of Anthropic leave it: each call is in it once more."""
    made = dumped(message)
    calls = [
        {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["args"]}
        for call in made["tool_calls"]
    ]
    text = [{"type": "text", "text": made["content"]}] if made["content"] else []
    return {**made, "content": [*text, *calls]}


def in_additional(message: Row) -> Row:
    made = dumped(message)
    del made["tool_calls"]
    calls = message.get("tool_calls")
    return {**made, "additional_kwargs": {"tool_calls": calls} if calls else {}}


def with_data(message: Row) -> Row:
    made = dumped(message)
    return {"type": made["type"], "data": made}


def constructor(message: Row) -> Row:
    made = dumped(message)
    name = f"{CLASSES[made.pop('type')]}Message"
    path = ["langchain", "schema", "messages", name]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": made}


def chunk(message: Row) -> Row:
    made = dumped(message)
    again = [{**call, "args": json.dumps(call["args"])} for call in made["tool_calls"]]
    is_ai = made["type"] == "ai"
    kind = "AIMessageChunk" if is_ai else made["type"]
    return {**made, "type": kind, "tool_call_chunks": again if is_ai else []}


@pytest.mark.parametrize("form", [dumped, in_blocks, in_additional, with_data, constructor, chunk])
def test_every_form_of_a_langchain_message_is_the_message(form: Callable[[Row], Row]) -> None:
    def written(row: Row) -> Row:
        return {**row, "messages": [form(message) for message in row["messages"]]}

    for expected, record in pairs("langchain", written):
        assert (record.messages, record.tools) == (expected.messages, expected.tools)


# --- Responses ---


def items(message: Row) -> Iterator[Row]:
    """A chat message as items."""
    role, content = message["role"], message.get("content") or ""
    if role == "tool":
        call_id = message["tool_call_id"]
        own = {"id": f"fco_{call_id}", "status": "completed"}
        yield {"type": "function_call_output", "call_id": call_id, "output": content, **own}
        return
    kind = "output_text" if role == "assistant" else "input_text"
    if content or role != "assistant":
        parts = [{"type": kind, "text": content}]
        yield {"type": "message", "role": role, "content": parts}
    for call in message.get("tool_calls") or ():
        own = {"id": f"fc_{call['id']}", "status": "completed"}
        yield {"type": "function_call", "call_id": call["id"], **call["function"], **own}


def with_results_reversed(messages: list[Row]) -> list[Row]:
    """By their ids, results may come in any order."""
    turns = groupby(messages, key=lambda message: message["role"])
    return [one for role, turn in turns for one in [*turn][:: -1 if role == "tool" else 1]]


@pytest.mark.parametrize("key", ["input", "messages", "items"])
@pytest.mark.parametrize("in_output", [0, 1])
def test_items_are_the_turns_they_stand_for(key: str, in_output: int) -> None:
    def written(row: Row) -> Row:
        made = [item for one in with_results_reversed(row["messages"]) for item in items(one)]
        end = len(made) - in_output
        tools = [{"type": "function", **tool["function"]} for tool in row["tools"]]
        return {key: made[:end], "output": made[end:], "tools": tools}

    for expected, record in pairs("responses", written):
        assert (record.messages, record.tools) == (expected.messages, expected.tools)


# --- Gemini ---


def contents(row: Row, *, ids: bool, snake: bool, together: bool) -> Row:
    """OpenAI's dialog as contents: calls with or without ids, keys of JSON or of Python, all
    results of a turn in one content or each in its own.
    """
    call_key, result_key = (other_apis.CALL_KINDS[snake], other_apis.RESULT_KINDS[snake])
    names: dict[str, str] = {}
    contents: list[Row] = []
    functions = [tool["function"] for tool in row["tools"]]
    made: Row = {"tools": [{other_apis.DECLARATION_KEYS[snake]: functions}]}
    before = ""
    for message in with_results_reversed(row["messages"]) if ids else row["messages"]:
        role, text = message["role"], message.get("content") or ""
        if role == "system":
            made[other_apis.SYSTEM_KEYS[snake]] = {"parts": [{"text": text}]}
            continue
        parts: list[Row] = [{"text": text}] if text else []
        for call in message.get("tool_calls") or ():
            names[call["id"]] = call["function"]["name"]
            given = {"id": call["id"]} if ids else {}
            arguments = json.loads(call["function"]["arguments"])
            parts.append({call_key: {**given, "name": names[call["id"]], "args": arguments}})
        if role == "tool":
            given = {"id": message["tool_call_id"]} if ids else {}
            result = {**given, "name": names[message["tool_call_id"]]}
            parts = [{result_key: {**result, "response": {"output": text}}}]
        if role == before == "tool" and together:
            contents[-1]["parts"] += parts
        else:
            contents.append({"role": "model" if role == "assistant" else "user", "parts": parts})
        before = role
    return {**made, "contents": contents}


def calls_by_place(record: Record) -> list[tuple[Any, ...]]:
    """The calls of each message, and the place among all calls of the one that it answers."""
    ids = {call.id: n for n, call in enumerate(c for m in record.messages for c in m.calls)}
    return [
        ([(call.name, call.arguments) for call in message.calls], ids.get(message.call_id))
        for message in record.messages
    ]


@pytest.mark.parametrize("ids", [True, False], ids=["ids", "no_ids"])
@pytest.mark.parametrize("snake", [True, False], ids=["python", "json"])
@pytest.mark.parametrize("together", [True, False], ids=["together", "apart"])
def test_contents_are_the_turns_they_stand_for(ids: bool, snake: bool, together: bool) -> None:
    def written(row: Row) -> Row:
        return contents(row, ids=ids, snake=snake, together=together)

    for expected, record in pairs("gemini", written):
        validate(record)
        assert [(message.role, message.content) for message in record.messages] == [
            (one.role, to_json({"output": one.content}) if one.role == "tool" else one.content)
            for one in expected.messages
        ]
        assert calls_by_place(record) == calls_by_place(expected)
        assert record.tools == expected.tools


# --- results of parallel calls, where a row names no ids ---

Pairs = Sequence[tuple[str, int]]  # name of a tool, argument of its call, which its result repeats
CALLS: Pairs = [("f", 1), ("g", 2), ("f", 3), ("f", 4)]
PARAMETERS = {"type": "object", "properties": {"n": {"type": "integer"}}}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "", "parameters": PARAMETERS}}
    for name in "fg"
]


def parallel(calls: Pairs, results: Pairs) -> Row:
    made = [
        {"id": f"x{n}", "function": {"name": name, "arguments": json.dumps({"n": n})}}
        for name, n in calls
    ]
    answers = [
        {"role": "tool", "tool_call_id": f"x{n}", "content": str(n), "name": name}
        for name, n in results
    ]
    first = [{"role": "user", "content": "Do it."}, {"role": "assistant", "tool_calls": made}]
    last = {"role": "assistant", "content": "Done."}
    return {"messages": [*first, *answers, last], "tools": TOOLS}


def without_ids(row: Row, key: str) -> Row:
    """Each result names its tool under the key, if there is one."""
    changed: Row = json.loads(json.dumps(row))
    for message in changed["messages"]:
        for call in message.get("tool_calls", ()):
            del call["id"]
        if message.pop("tool_call_id", None):
            name = message.pop("name")
            message |= {key: name} if key else {}
    return changed


def as_turns(row: Row, who: str, what: str) -> list[Row]:
    """Calls and results as turns of their own."""
    names = {"tool": "observation"} if who == "from" else {"tool": "tool_response"}
    call = "function_call" if who == "from" else "tool_call"
    turns: list[Row] = []
    for message in row["messages"]:
        if message.get("content"):
            role = names.get(message["role"], message["role"])
            turns.append({who: role, what: message["content"]})
        for made in message.get("tool_calls", ()):
            turns.append({who: call, what: json.dumps(made["function"])})
    return turns


NAMED: dict[str, Callable[[Row], Row]] = {
    "openai": lambda row: without_ids(row, "name"),
    "ollama": lambda row: without_ids(row, "tool_name"),
    "langchain": lambda row: {
        **row,
        "messages": [dumped(message) for message in without_ids(row, "name")["messages"]],
    },
    "gemini": lambda row: contents(row, ids=False, snake=False, together=True),
}
UNNAMED: dict[str, Callable[[Row], Row]] = {
    "openai, unnamed": lambda row: without_ids(row, ""),
    "sharegpt": lambda row: {"conversations": as_turns(row, "from", "value"), "tools": TOOLS},
    "ms_swift": lambda row: {"messages": as_turns(row, "role", "content"), "tools": TOOLS},
}


def results_of(row: Row) -> list[tuple[object, str]]:
    """The argument of each call with the result that answers it."""
    record = to_record(row)
    validate(record)
    answers = {one.call_id: one.content for one in record.messages if one.role == "tool"}
    return [(call.arguments["n"], answers[call.id]) for call in record.messages[1].calls]


def expected(calls: Pairs, form: str) -> list[tuple[int, str]]:
    return [(n, to_json({"output": str(n)}) if form == "gemini" else str(n)) for _, n in calls]


@pytest.mark.parametrize("form", [*UNNAMED, *NAMED])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_results_without_ids_answer_the_calls_in_their_order(form: str, count: int) -> None:
    calls = CALLS[-count:]
    row = (UNNAMED | NAMED)[form](parallel(calls, calls))
    assert detect_format(row) == {"ollama": "openai"}.get(form, form.partition(",")[0])
    assert results_of(row) == expected(calls, form)


@pytest.mark.parametrize("form", NAMED)
@pytest.mark.parametrize("place", [0, 2, 3])
def test_a_name_goes_before_the_order(form: str, place: int) -> None:
    results = [one for one in CALLS if one[0] == "f"]
    results.insert(place, CALLS[1])
    assert results_of(NAMED[form](parallel(CALLS, results))) == expected(CALLS, form)
