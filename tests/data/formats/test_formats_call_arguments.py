"""agentlite.data.formats: the arguments of a call are never lost, whatever key they stand under."""

import json
from itertools import product
from typing import Any

import pytest
from support.examples import sample
from support.read_rows import rows_of
from support.samples import DATA

from agentlite.core.errors import RowError
from agentlite.core.records import Call
from agentlite.data.curation.validate import validate
from agentlite.data.formats import FORMATS, find_samples, to_record
from agentlite.data.formats.tool_calls import ARGUMENT_KEYS, read_call

SAMPLES = sorted(path.stem for path in (DATA / "formats").glob("*.jsonl"))
# a result of SAGE's dialogs names its call's arguments or leaves them unknown
OWN_WORDS = ("sage_sft",)
# these write `arguments` and nothing else: a row with another key is refused by that key
ONE_KEY = ("agentlite", "prompts")


def rows(name: str) -> list[dict[str, Any]]:
    examples = [json.loads(FORMATS[name].example)] if name in FORMATS else []
    return [*examples, *(raw.value for raw in rows_of(DATA / "formats" / f"{name}.jsonl"))]


def renamed(row: dict[str, Any], key: str) -> dict[str, Any]:
    """The row with another key for arguments, also in the texts that hold calls."""
    text = json.dumps(row, ensure_ascii=False)
    for quote in ('"', '\\"', "'"):
        text = text.replace(f"{quote}arguments{quote}", f"{quote}{key}{quote}")
    changed: dict[str, Any] = json.loads(text)
    return changed


def dialogs(row: dict[str, Any]) -> list[Any]:
    name, parts = find_samples(row)
    records = [to_record(part, name) for part in parts]
    return [(record.messages, record.gold) for record in records]


KEYS = (*ARGUMENT_KEYS, "kwargs", "tool_input")
CALLING = [name for name in SAMPLES if name not in OWN_WORDS]


@pytest.mark.parametrize(("name", "key"), sample(30, [*product(CALLING, KEYS)]))
def test_a_call_keeps_its_arguments_under_any_key_or_its_row_is_refused(
    name: str, key: str
) -> None:
    for row in rows(name):
        found, problem = None, ""
        try:
            found = dialogs(renamed(row, key))
        except RowError as error:
            problem = f"{error.code} {error.reason}"
        if problem and name in ONE_KEY:
            assert problem[:4] in ("E201", "E206") and ("arguments" in problem or key in problem)
            continue
        assert found == dialogs(row) or problem.startswith("E206")
        assert found or key not in ARGUMENT_KEYS or "not JSON" in problem


@pytest.mark.parametrize("key", ARGUMENT_KEYS[1:])
def test_arguments_that_differ_between_two_keys_are_refused_and_equal_ones_count_once(
    key: str,
) -> None:
    call = {"name": "f", "arguments": '{"a": 1}'}
    assert read_call({**call, key: {"a": 1}}) == read_call({**call, key: None}) == read_call(call)
    assert read_call({**call, "arguments": "{}", key: {"a": 1}}) == read_call(call)
    with pytest.raises(RowError, match="f has two different sets of arguments"):
        read_call({**call, key: {"a": 2}})


def test_arguments_that_arrow_filled_in_are_none() -> None:
    call = {"name": "f", "arguments": '{"a": 1}', "input": {"a": None, "b": None}}
    assert read_call(call) == Call("f", {"a": 1})
    assert read_call({"name": "f", "args": None, "kwargs": {"a": None}}) == Call("f")
    assert read_call({"name": "f", "args": {"a": None}}) == Call("f", {"a": None})


SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "unit": {"type": ["string", "null"]},
        "any": {},
        "inside": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            },
        },
    },
    "required": ["city"],
}
GIVEN = {"city": "Oslo", "unit": None, "any": None, "inside": [{"a": 1}, {"b": 2}]}
FILLED = {
    "city": "Oslo",
    "days": None,
    "unit": None,
    "any": None,
    "inside": [{"a": 1, "b": None}, {"a": None, "b": 2}],
    "foreign": None,
}


def calling(arguments: object, shape: str) -> dict[str, Any]:
    asked = {"role": "user", "content": "q"}
    block = {"type": "tool_use", "id": "x", "name": "f", "input": arguments}
    tool = {"name": "f", "parameters": SCHEMA}
    turns: dict[str, dict[str, Any]] = {
        "openai": {"tool_calls": [{"id": "x", "function": {"name": "f", "arguments": arguments}}]},
        "anthropic": {"content": [block]},
        "langchain": {"tool_calls": [{"id": "x", "name": "f", "args": arguments}]},
    }
    turn = {"content": "", **turns[shape]}
    if shape == "langchain":
        messages = [{"type": "human", "content": "q"}, {"type": "ai", **turn}]
    else:
        messages = [asked, {"role": "assistant", **turn}]
    return {"messages": messages, "tools": [tool]}


@pytest.mark.parametrize("shape", ["openai", "anthropic", "langchain"])
def test_nulls_of_optional_parameters_that_arrow_filled_in_are_no_arguments(shape: str) -> None:
    """A column of Parquet has each key that a call of any row has, at every depth."""
    record = to_record(calling(FILLED, shape))
    validate(record)
    assert record.messages[1].calls[0].arguments == GIVEN
    with pytest.raises(RowError, match="city"):
        validate(to_record(calling({**FILLED, "city": None}, shape)))


@pytest.mark.parametrize("shape", ["openai", "anthropic", "langchain"])
def test_nulls_in_the_text_of_arguments_are_meant(shape: str) -> None:
    record = to_record(calling(json.dumps(FILLED), shape))
    assert record.messages[1].calls[0].arguments == FILLED
