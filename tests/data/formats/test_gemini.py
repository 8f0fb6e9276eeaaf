"""agentlite.data.formats.gemini: contents are the dialog that OpenAI's messages would be."""

import json
from itertools import groupby
from typing import Any

import pytest
from support.damaged_rows import Row
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
