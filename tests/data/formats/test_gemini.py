"""agentlite.data.formats.gemini: contents are the dialog that OpenAI's messages would be."""

import json
from itertools import groupby
from typing import Any

import pytest
from support.damaged_rows import Row, refused, rows
from support.read_rows import openai_dialogs

from agentlite.core.records import Record, plain
from agentlite.data.curation.validate import validate
from agentlite.data.formats import detected, gemini, to_record


def with_results_reversed(messages: list[Row]) -> list[Row]:
    """By their ids, results may come in any order."""
    turns = (
        (role, [*turn]) for role, turn in groupby(messages, key=lambda message: message["role"])
    )
    return [one for role, turn in turns for one in turn[:: -1 if role == "tool" else 1]]


def as_contents(row: Row, *, ids: bool, snake: bool, together: bool) -> Row:
    """OpenAI's dialog as contents: calls with or without ids, keys of JSON or of Python, all
    results of a turn in one content or each in its own.
    """
    call_key, result_key = (gemini.CALL[snake], gemini.RESULT[snake])
    names: dict[str, str] = {}
    contents: list[Row] = []
    made: Row = {"tools": [{gemini.DECLARED[snake]: [one["function"] for one in row["tools"]]}]}
    before = ""
    for message in with_results_reversed(row["messages"]) if ids else row["messages"]:
        role, text = message["role"], message.get("content") or ""
        if role == "system":
            made[gemini.SYSTEM[snake]] = {"parts": [{"text": text}]}
            continue
        parts: list[Row] = [{"text": text}] if text else []
        for call in message.get("tool_calls") or ():
            names[call["id"]] = call["function"]["name"]
            given = {"id": call["id"]} if ids else {}
            arguments = json.loads(call["function"]["arguments"])
            parts.append({call_key: {**given, "name": names[call["id"]], "args": arguments}})
        if role == "tool":
            call_id = message["tool_call_id"]
            given = {"id": call_id} if ids else {}
            result = {**given, "name": names[call_id], "response": {"output": text}}
            parts = [{result_key: result}]
        if role == before == "tool" and together:
            contents[-1]["parts"] += parts
        else:
            contents.append({"role": "model" if role == "assistant" else "user", "parts": parts})
        before = role
    return {**made, "contents": contents}


def with_outputs(record: Record) -> list[tuple[Any, ...]]:
    """The messages, their results as objects, calls by their place."""
    ids = {call.id: n for n, call in enumerate(c for m in record.messages for c in m.calls)}
    return [
        (
            message.role,
            plain({"output": message.content}) if message.role == "tool" else message.content,
            [(call.name, call.arguments) for call in message.calls],
            ids.get(message.call_id),
        )
        for message in record.messages
    ]


@pytest.mark.parametrize("ids", [True, False], ids=["ids", "no_ids"])
@pytest.mark.parametrize("snake", [True, False], ids=["python", "json"])
@pytest.mark.parametrize("together", [True, False], ids=["together", "apart"])
def test_contents_are_the_turns_they_stand_for(ids: bool, snake: bool, together: bool) -> None:
    dialogs = openai_dialogs()
    assert len(dialogs) > 20
    for row in dialogs:
        made = as_contents(row, ids=ids, snake=snake, together=together)
        assert detected(made) == "gemini"
        expected, record = to_record(row, "openai"), to_record(made)
        validate(record)
        outputs = [(m.role, m.content) for m in record.messages]
        assert outputs == [one[:2] for one in with_outputs(expected)]
        assert [one[2:] for one in with_outputs(record)] == [
            one[2:] for one in with_outputs(expected)
        ]
        assert record.tools == expected.tools


def test_the_sample_rows_are_valid_and_thoughts_stand_before_the_answer() -> None:
    records = [gemini.read(row) for row in rows("gemini")]
    for row, record in zip(rows("gemini"), records, strict=True):
        validate(to_record(row))
        assert all(tool.parameters["type"] == "object" for tool in record.tools)
    assert records[1].messages[1].content == "I look.\n\nOne moment."
    assert records[1].meta["extra"]["contents"] == [{"content": 2, "thoughtSignature": "s"}]
    assert records[3].messages[0].content == "Be kind."


@pytest.mark.parametrize(
    ("code", "part"),
    [
        ("E216", {"inlineData": {"mimeType": "image/png", "data": ""}}),
        ("E216", {"executableCode": {"language": "PYTHON", "code": "1"}}),
        ("E216", {"functionResponse": {"name": "f", "response": {}, "parts": [{}]}}),
        ("E201", "Hi"),
    ],
    ids=["picture", "code", "result with parts", "text"],
)
def test_a_part_that_cannot_be_learned_is_refused(code: str, part: object) -> None:
    answer = {"role": "model", "parts": [{"text": "Hello."}]}
    row = {"contents": [{"role": "user", "parts": [part]}, answer]}
    assert refused(lambda: to_record(row)) == code


@pytest.mark.parametrize("given", [{}, {"id": "x"}])
def test_a_result_of_a_function_that_does_not_wait_answers_no_call(given: Row) -> None:
    call = {"functionCall": {"name": "weather", "args": {}}}
    result = {"functionResponse": {**given, "name": "clock", "response": {"mm": 4}}}
    roles = ("user", [{"text": "Hi"}]), ("model", [call]), ("user", [result])
    contents = [{"role": role, "parts": parts} for role, parts in roles]
    record = gemini.read({"contents": [*contents, {"role": "model", "parts": [{"text": "Yes."}]}]})
    assert refused(lambda: validate(record)) == "E205"


def test_a_content_without_parts_is_an_empty_message_and_does_not_vanish() -> None:
    said = [{"role": role, "parts": [{"text": "Hi"}]} for role in ("user", "model")]
    record = gemini.read({"contents": [*said, {"role": "user", "parts": []}, said[1]]})
    assert [one.content for one in record.messages] == ["Hi", "Hi", "", "Hi"]
    assert refused(lambda: validate(record)) == "E216"


def test_a_model_turn_is_taken_out_of_training_as_in_other_formats() -> None:
    contents = [
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"role": "model", "parts": [{"text": "Hello."}], "weight": 0},
    ]
    assert not to_record({"contents": contents}).messages[1].loss


def test_a_text_beside_a_result_is_a_user_who_speaks_too_early() -> None:
    call = {"functionCall": {"name": "f", "args": {}}}
    parts = [{"functionResponse": {"name": "f", "response": {}}}, {"text": "Go on."}]
    contents = [
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"role": "model", "parts": [call]},
        {"role": "user", "parts": parts},
        {"role": "model", "parts": [{"text": "Hello."}]},
    ]
    row = {"contents": contents, "tools": [{"functionDeclarations": [{"name": "f"}]}]}
    assert refused(lambda: validate(to_record(row))) == "E203"
