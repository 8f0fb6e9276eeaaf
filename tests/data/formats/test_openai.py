"""agentlite.data.formats.openai: messages, calls, results and thoughts as clients log them."""

import itertools
import json
from typing import Any

import pytest
from support.read_rows import record_of, rejected

from agentlite.core.errors import RowError
from agentlite.core.records import (
    Call,
    Gold,
    GoldCall,
    Message,
    Record,
    to_row,
)
from agentlite.data.curation.validate import validate
from agentlite.data.formats import to_record
from agentlite.data.formats.openai import PARTS_LEARNED, THOUGHTS

GOOD = Record(messages=(Message("user", "q"), Message("assistant", "a")))


def test_openai_messages_are_read_as_said() -> None:
    record = record_of("openai")
    assert [message.role for message in record.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert record.messages[1].content == "Ferries from Bergen?"
    assert record.messages[2].calls == (Call("ferries", {"port": "Bergen"}, "x1"),)
    assert record.messages[3].call_id == "x1"
    assert record.meta == {"source_id": "o1"}


def openai_row(*messages: dict[str, Any], **row: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "q"}, *messages], **row}


def called(arguments: Any) -> dict[str, Any]:
    call = {"function": {"name": "f", "arguments": arguments}}
    return openai_row(
        {"role": "assistant", "content": None, "tool_calls": [call]}, tools=[{"name": "f"}]
    )


@pytest.mark.parametrize(
    "written", ['{"a": 1}', {"a": 1}, '"{\\"a\\": 1}"', {"a": 1, "foreign": None}]
)
def test_arguments_are_one_object_however_they_are_written(written: Any) -> None:
    assert to_record(called(written)).messages[1].calls[0].arguments == {"a": 1}


def test_a_null_is_kept_that_its_schema_names_or_that_the_text_of_the_arguments_says() -> None:
    named = {"a": {"type": ["string", "null"]}}
    tools = [{"name": "f", "parameters": {"type": "object", "properties": named}}]
    for written, kept in (
        ({"a": None, "foreign": None}, {"a": None}),
        ('{"a": 1, "foreign": null}', {"a": 1, "foreign": None}),
        ({"a": 1, "b": {"c": None}}, {"a": 1, "b": {"c": None}}),
    ):
        row = called(written) | {"tools": tools}
        assert to_record(row, "openai").messages[1].calls[0].arguments == kept
    use = {"type": "tool_use", "id": "x", "name": "f", "input": {"a": None, "foreign": None}}
    schema = {"name": "f", "input_schema": tools[0]["parameters"]}
    claude = openai_row({"role": "assistant", "content": [use]}, tools=[schema])
    assert to_record(claude, "anthropic").messages[1].calls[0].arguments == {"a": None}


@pytest.mark.parametrize("written", ["", None, {}, "{}", " ", "null"])
def test_no_arguments_are_an_empty_object(written: Any) -> None:
    assert to_record(called(written)).messages[1].calls[0].arguments == {}


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("[1]", "E208"),
        ([1], "E208"),
        (3, "E208"),
        ("{'a': 1}", "E206"),
        ("Oslo", "E206"),
        ('{"a": NaN}', "E116"),
        ('{"a": 1, "a": 2}', "E118"),
    ],
)
def test_arguments_that_are_no_object_are_rejected(written: Any, code: str) -> None:
    assert rejected(lambda: to_record(called(written))) == code


def test_openai_roles_and_content_that_cannot_be_learned_are_rejected() -> None:
    image = {"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    assert rejected(lambda: to_record(openai_row(image))) == "E216"
    assert rejected(lambda: to_record(openai_row({"role": "critic", "content": "no"}))) == "E202"


@pytest.mark.parametrize("name", ["name", "tool_name"])
def test_missing_ids_are_filled_in_where_only_one_call_can_be_meant(name: str) -> None:
    calls: list[Any] = [{"function": {"name": one, "arguments": {}}} for one in ("f", "g")]
    g = {"role": "tool", name: "g", "content": "2"}
    tools = [{"name": "f"}, {"name": "g"}]
    asked = {"role": "assistant", "tool_calls": calls}
    unnamed = {"role": "tool", "content": "1"}  # one result is g's, so the other is f's
    record = to_record(openai_row(asked, g, unnamed, tools=tools))
    assert "turns" not in record.meta
    messages = record.messages
    ids = {call.name: call.id for call in messages[1].calls}
    assert [(message.call_id, message.content) for message in messages[2:]] == [
        (ids["f"], "1"),
        (ids["g"], "2"),
    ]


def test_the_results_of_a_turn_are_put_in_the_order_of_its_calls() -> None:
    calls = [{"id": n, "function": {"name": "f", "arguments": {}}} for n in "abc"]
    asked = {"role": "assistant", "tool_calls": calls}
    results = [{"role": "tool", "tool_call_id": n, "content": n.upper()} for n in "cab"]
    said = {"role": "assistant", "content": "Done."}
    rows = (asked, *results, said), (asked, *results[:2], {**results[2], "tool_call_id": "x"}, said)
    for messages, order in zip(rows, ("ABC", "CAB"), strict=True):
        record = to_record(openai_row(*messages, tools=[{"name": "f"}]))
        assert "".join(m.content for m in record.messages if m.role == "tool") == order


def test_a_legacy_function_call_and_its_result_are_a_call_and_a_tool_turn() -> None:
    asked = {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "f", "arguments": "{}"},
    }
    answered = {"role": "function", "name": "f", "content": {"km": 4}}
    record = to_record(
        openai_row(
            asked, answered, {"role": "assistant", "content": "4"}, functions=[{"name": "f"}]
        )
    )
    validate(record)
    assert (record.messages[2].role, record.messages[2].content) == ("tool", '{"km": 4}')


def test_turns_can_be_taken_out_of_the_loss() -> None:
    said = [
        {"role": "assistant", "content": "a", **extra}
        for extra in ({"loss": False}, {"weight": 0}, {"weight": 1}, {})
    ]
    assert [m.loss for m in to_record(openai_row(*said)).messages[1:]] == [False, False, True, True]


@pytest.mark.parametrize("value", [True, False, 1, 0, 0.0, "x", [], {}, [{"begin_offset": 0}]])
@pytest.mark.parametrize("key", PARTS_LEARNED)
def test_a_turn_of_which_parts_are_learned_is_rejected(key: str, value: Any) -> None:
    for other in ({}, {"train": True}, {"loss": False}):
        turn = {"role": "assistant", "content": "a", key: value, **other}
        with pytest.raises(RowError, match="not true, false, 1 or 0") as caught:
            to_record(openai_row(turn))
        assert (caught.value.code, caught.value.at) == ("E201", key)
        assert to_record(openai_row(turn | {key: None})).messages[-1].loss is not ("loss" in other)


def test_nulls_that_arrow_filled_in_are_not_parameters() -> None:
    city = {"type": "string", "enum": None, "default": None}
    schema = {
        "type": "object",
        "properties": {"city": city, "other": None},
        "required": ["city"],
        "items": None,
    }
    (tool,) = to_record(
        openai_row(tools=[{"type": "function", "function": {"name": "f", "parameters": schema}}])
    ).tools
    assert tool.parameters == {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    }


def test_a_default_of_null_that_stands_alone_is_meant() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string", "default": None}}}
    (tool,) = to_record(openai_row(tools=json.dumps([{"name": "f", "parameters": schema}]))).tools
    assert tool.parameters == schema


@pytest.mark.parametrize(
    ("tools", "code"),
    [
        ([{"description": "x"}], "E212"),
        ("[{'name'", "E124"),
        ("3", "E211"),
        ([{"name": "f", "parameters": {"properties": {"a": 3}}}], "E211"),
        ([{"name": "f", "parameters": {"required": "True"}}], "E211"),
        ([{"name": "f", "parameters": {"required": True}}], "E211"),
        ([{"name": "f", "parameters": {"required": [1]}}], "E211"),
        ([{"name": "f", "parameters": {"properties": ["city"]}}], "E211"),
        ([{"name": "f", "parameters": {"items": {"$defs": 5}}}], "E211"),
    ],
)
def test_broken_tools_are_rejected(tools: Any, code: str) -> None:
    assert rejected(lambda: to_record(openai_row(tools=tools))) == code
    if isinstance(tools, list) and code == "E211":  # agentlite's own rows may be written by others
        stored = to_row(GOOD) | {"tools": json.dumps([{"type": "function", "function": tools[0]}])}
        assert rejected(lambda: to_record(stored)) == code


def test_what_is_said_before_a_call_and_the_call_written_as_two_turns_are_one() -> None:
    said = {"role": "assistant", "content": "I look."}
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}],
    }
    turns = [
        {"from": "human", "value": "q"},
        {"from": "gpt", "value": "I look."},
        {"from": "gpt", "value": '<tool_call>{"name": "f", "arguments": {}}</tool_call>'},
    ]
    for row in (
        openai_row(said, call, tools=[{"name": "f"}]),
        {"conversations": turns, "tools": [{"name": "f"}]},
    ):
        record = to_record(row)
        validate(record)
        assert record.messages[1:] == (Message("assistant", "I look.", (Call("f", {}, "call_0"),)),)


@pytest.mark.parametrize(
    ("first", "second"),
    [({}, {"tool_calls": None}), ({"loss": False}, {}), ({"tool_calls": [{"name": "f"}]}, {})],
)
def test_two_turns_of_the_assistant_that_are_not_one_are_rejected(first: Any, second: Any) -> None:
    said = {"role": "assistant", "content": "I look.", **first}
    call = {"role": "assistant", "content": "x", "tool_calls": [{"name": "f"}], **second}
    record = to_record(openai_row(said, call, tools=[{"name": "f"}]))
    assert rejected(lambda: validate(record)) in ("E203", "E204")
    golden = openai_row(
        {**said, "tool_calls": None}, {**call, "tool_calls": [{"name": "f"}]}, gold={"2": {}}
    )
    assert rejected(lambda: validate(to_record(golden))) == "E203"


def test_what_a_model_thought_stands_before_what_it_said() -> None:
    said = {"role": "assistant", "content": "Wet."}
    for thoughts, content in (
        ({"reasoning_content": "It rains."}, "It rains.\n\nWet."),
        ({"reasoning": "It rains."}, "It rains.\n\nWet."),
        ({"reasoning": "2", "reasoning_content": "1"}, "1\n\n2\n\nWet."),
        ({"thinking": "It rains."}, "It rains.\n\nWet."),
        ({"thinking": "3", "reasoning": "2", "reasoning_content": "1"}, "1\n\n2\n\n3\n\nWet."),
        ({"reasoning_content": None, "reasoning": ""}, "Wet."),
        ({"reasoning": "It rains.", "content": None}, "It rains."),
    ):
        record = to_record(openai_row({**said, **thoughts}), "openai")
        assert record.messages[1] == Message("assistant", content)
        assert "turns" not in record.meta


@pytest.mark.parametrize("keys", [*itertools.combinations(THOUGHTS, 2), THOUGHTS], ids=str)
@pytest.mark.parametrize("end", ["", "\n"])
def test_one_thought_under_several_keys_counts_once(keys: tuple[str, ...], end: str) -> None:
    thoughts = dict.fromkeys(keys, "It rains.") | {keys[0]: f"It rains.{end}"}
    said = {"role": "assistant", "content": "Wet.", **thoughts}
    assert to_record(openai_row(said)).messages[1].content == "It rains.\n\nWet."


def test_openai_content_is_text_or_parts_of_text_and_a_result_may_be_any_json() -> None:
    parts = [{"type": "text", "text": "wet "}, {"type": "text", "text": "and cold"}]
    call = {"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": "f"}}]}
    for content, text in (
        (parts, "wet and cold"),
        ("wet", "wet"),
        (None, ""),
        ({"mm": [4]}, '{"mm": [4]}'),
        ([1, 2], "[1, 2]"),
        (4, "4"),
    ):
        row = openai_row(call, {"role": "tool", "tool_call_id": "x", "content": content})
        assert to_record(row, "openai").messages[2].content == text
        if isinstance(content, str) or content is parts:
            said = openai_row({"role": "assistant", "content": content})
            assert to_record(said, "openai").messages[1].content == text
    picture = [parts[0], {"type": "image_url", "image_url": {"url": "x"}}]
    for role, content in (
        ("tool", picture),
        ("user", {"mm": 4}),
        ("assistant", 4),
        ("user", ["wet"]),
        ("user", [{"type": "text", "text": 4}]),
    ):
        row = openai_row({"role": role, "content": content})
        assert rejected(lambda row=row: to_record(row, "openai")) == "E216"


def test_the_task_and_the_gold_of_a_row_are_kept_where_they_are_known() -> None:
    said = {"role": "assistant", "content": "a"}
    assert to_record(openai_row(said, task="timing_decision"), "openai").task == "timing_decision"
    assert to_record(openai_row(said, task="cooking"), "openai").task == "general"
    gold = {"1": {"calls": [{"name": "f", "arguments": {"a": [1, ""]}}], "optimal_steps": 2}}
    expected = {1: Gold((GoldCall("f", {"a": [1, ""]}),), 2)}
    for written in (gold, json.dumps(gold)):
        assert to_record(openai_row(said, gold=written), "openai").gold == expected
    assert to_record(openai_row(said, gold=""), "openai").gold == {}
    for bad in ({"1": 3}, {"one": {}}, {"1": {"call": []}}, [1]):
        row = openai_row(said, gold=bad)
        assert rejected(lambda row=row: to_record(row, "openai")) == "E201"


def test_an_id_that_is_made_is_not_one_that_a_later_call_has() -> None:
    def asked(*ids: str | None) -> dict[str, Any]:
        calls = [{"id": n, "function": {"name": "f", "arguments": {}}} for n in ids]
        return {"role": "assistant", "tool_calls": calls}

    row = openai_row(asked(None), asked("call_0", None), asked("call_2", None))
    calls = [call.id for message in to_record(row, "openai").messages for call in message.calls]
    assert calls == ["call_1", "call_0", "call_3", "call_2", "call_4"]


def test_what_a_format_does_not_know_is_kept_beside_the_id_of_the_row() -> None:
    said = {"role": "assistant", "content": "a", "mood": "glad", "empty": None}
    record = to_record(openai_row(said, id=0, lang="en", none=None, task="general"))
    assert record.meta == {
        "source_id": "0",
        "extra": {"lang": "en"},
        "turns": {"2": {"mood": "glad"}},
    }
    assert to_record(openai_row({"role": "assistant", "content": "a"}, id="")).meta == {}


def test_tools_under_both_keys_are_the_same_or_refused() -> None:
    call = {"id": "a", "function": {"name": "f", "arguments": "{}"}}
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [call]}]
    wrapped = {"type": "function", "function": {"name": "f"}}
    row = {"messages": messages, "tools": [wrapped], "functions": [{"name": "f"}]}
    assert [tool.name for tool in to_record(row).tools] == ["f"]
    assert rejected(lambda: to_record({**row, "functions": [{"name": "g"}]})) == "E211"
