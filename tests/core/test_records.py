"""A record means the same before and after a file, and its id is its content."""

import json

from hypothesis import given
from hypothesis import strategies as st

from agentlite.core.records import Call, Gold, GoldCall, Message, Record, Tool, from_row, to_row
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
            arguments=st.dictionaries(
                words, st.lists(st.integers(-9, 9) | words, max_size=2), max_size=2
            ),
        ),
        max_size=2,
    ).map(tuple),
)
records = st.builds(
    Record,
    messages=st.lists(messages, min_size=1, max_size=4).map(tuple),
    tools=st.lists(
        st.builds(Tool, name=words, description=words, parameters=objects), max_size=2
    ).map(tuple),
    gold=st.dictionaries(st.integers(0, 5), gold, max_size=2),
    meta=objects,
)


@given(record=records)
def test_a_record_survives_its_row(record):
    assert from_row(json.loads(json.dumps(to_row(record)))) == record


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
    assert record.expected(1).calls == (GoldCall("f", {"a": [{"b": [1]}], "c": [[1, {"d": [2]}]]}),)
    assert record.expected(3).calls == ()
