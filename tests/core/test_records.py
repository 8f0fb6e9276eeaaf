"""A record means the same before and after a file, and its id is its content."""

import json
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.unknown_arguments import RECORD

from agentlite.core.records import (
    ANY_ARGUMENTS,
    Call,
    Gold,
    GoldCall,
    Message,
    Record,
    Task,
    Tool,
    canonical,
    from_row,
    to_json,
    to_row,
)
from agentlite.core.row_files import read_rows, write_rows

words = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
objects = st.dictionaries(
    words, st.none() | st.integers(-9, 9) | words | st.lists(words, max_size=2), max_size=3
)
calls = st.builds(Call, name=words, arguments=objects, id=words)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=words,
    calls=st.lists(calls, max_size=2).map(tuple),
    call_id=words,
    loss=st.booleans(),
)
gold = st.builds(
    Gold,
    calls=st.lists(
        st.builds(
            GoldCall,
            name=words,
            arguments=st.none()
            | st.dictionaries(words, st.lists(st.integers(-9, 9) | words, max_size=2), max_size=2),
        ),
        max_size=2,
    ).map(tuple),
    optimal_steps=st.none() | st.integers(1, 9),
)
records = st.builds(
    Record,
    messages=st.lists(messages, min_size=1, max_size=4).map(tuple),
    tools=st.lists(
        st.builds(Tool, name=words, description=words, parameters=objects), max_size=2
    ).map(tuple),
    gold=st.dictionaries(st.integers(0, 5), gold, max_size=2),
    source=words,
    task=st.sampled_from(get_args(Task)),
    parent=words,
    split=st.sampled_from(["", "train", "dev", "test"]),
    meta=objects,
)


@given(record=records)
def test_a_record_survives_its_row(record):
    assert from_row(json.loads(json.dumps(to_row(record)))) == record


@pytest.mark.long
@settings(max_examples=25)
@given(rows=st.lists(records, min_size=1, max_size=4))
def test_records_survive_jsonl_and_parquet_without_foreign_fields(rows, tmp_path_factory):
    for suffix in ("jsonl", "parquet"):
        path = tmp_path_factory.mktemp("rows") / f"train.{suffix}"
        write_rows(path, map(to_row, rows))
        assert [from_row(row) for row in read_rows(path)] == rows


def test_the_id_is_the_content_and_nothing_else():
    messages = (Message("user", "a"), Message("assistant", "b"))
    record = Record(messages=messages, source="x", split="train", meta={"n": 1})
    assert record.id == Record(messages=messages, source="y").id
    assert record.id != Record(messages=(Message("user", "a"), Message("assistant", "c"))).id


def test_where_gold_is_silent_the_turn_itself_is_the_gold():
    call = Call("f", {"a": {"b": 1}, "c": [1, {"d": 2}]})
    record = Record(
        messages=(Message("user", "x"), Message("assistant", calls=(call,))), gold={3: Gold()}
    )
    assert record.gold_at(1).calls == (GoldCall("f", {"a": [{"b": [1]}], "c": [[1, {"d": [2]}]]}),)
    assert record.gold_at(3).calls == ()


def test_canonical_json_is_the_same_for_equal_values_and_plain_json_keeps_its_order():
    assert canonical({"b": [1, "天"], "a": None}) == '{"a":null,"b":[1,"天"]}'
    assert to_json({"b": [1, "天"], "a": None}) == '{"b": [1, "天"], "a": null}'


def test_the_id_of_a_record_never_changes():
    """Stages, caches and splits of earlier versions name records by it."""
    gold = {turn: Gold((GoldCall("f", {"a": [turn]}),)) for turn in (3, 11)}
    record = Record(
        messages=(Message("user", "a"), Message("assistant", calls=(Call("f", {"a": 3}, "c"),))),
        tools=(Tool("f", "Does f.", {"type": "object"}),),
        gold=gold,
    )
    assert record.id == "7d65b76faed9c8b2"


def test_nulls_that_parquet_gives_for_absent_fields_are_the_defaults():
    record = Record(messages=(Message("user", "q"), Message("assistant", "a")))
    row = to_row(record)
    for message in row["messages"]:
        message |= {"tool_calls": None, "tool_call_id": None, "loss": None}
    assert from_row(row) == record


def test_the_steps_to_judge_are_the_learned_turns_where_there_are_tools():
    messages = (
        Message("user", "q"),
        Message("assistant", "a", loss=False),
        Message("user", "q"),
        Message("assistant", "a"),
    )
    with_tools = Record(messages=messages, tools=(Tool("f"),))
    assert with_tools.turns == [1, 3]
    assert with_tools.prompted_turns == [3]
    assert Record(messages=messages).prompted_turns == []


@pytest.mark.parametrize(
    ("gold", "loss", "prompted"),
    [
        (None, True, []),
        (Gold(), True, [1]),
        (Gold(), False, []),
        (Gold(known=False), True, [1]),
        (Gold(known=False), False, [1]),  # nobody has answered it
    ],
)
def test_without_tools_the_steps_to_judge_are_those_with_gold(gold, loss, prompted):
    messages = (Message("user", "q"), Message("assistant", "a", loss=loss))
    record = Record(messages=messages, gold={} if gold is None else {1: gold})
    assert record.prompted_turns == prompted


@pytest.mark.parametrize(
    ("arguments", "gold", "unknown"),
    [
        ([{}], [ANY_ARGUMENTS], [0]),
        ([{"town": "Oslo"}], [ANY_ARGUMENTS], []),  # the data says them
        ([{}, {"town": "Oslo"}, {}], [ANY_ARGUMENTS] * 3, [0, 2]),
        ([{}], [{}], []),  # none are due
    ],
)
def test_arguments_are_unknown_where_the_gold_takes_any_and_the_call_has_none(
    arguments, gold, unknown
):
    calls = tuple(Call("forecast_001", one, f"call_{n}") for n, one in enumerate(arguments))
    asked, answer, *_ = RECORD.messages
    expected = Gold(tuple(GoldCall("forecast_001", one) for one in gold))
    record = replace(RECORD, messages=(asked, replace(answer, calls=calls)), gold={1: expected})
    assert record.unknown_arguments(1) == unknown
    assert replace(record, gold={}).unknown_arguments(1) == []
