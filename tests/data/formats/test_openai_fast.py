"""The quick way of reading OpenAI rows takes nothing that the slower way would take otherwise, or
refuse.
"""

import copy
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.samples import DATA

from agentlite.core.errors import RowError
from agentlite.core.records import Record
from agentlite.data.formats import FORMATS, decoded, detected, quick, read_lines, to_record
from agentlite.data.formats.readers import RawLine

ROWS = [
    json.loads(line.content)
    for path in sorted((DATA / "formats").iterdir())
    for line in read_lines(str(path), io.BytesIO())
]
PLAIN = json.loads(FORMATS["openai"].example)
PARALLEL = {
    "messages": [
        {"role": "user", "content": "Is it wet in Oslo, and in Bergen?"},
        {
            "role": "assistant",
            "content": None,
            "loss": False,
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
                },
                {
                    "id": "b",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city": "Bergen"}'},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "4 mm"},
        {"role": "tool", "tool_call_id": "b", "content": "9 mm"},
        {"role": "assistant", "content": "Yes, twice."},
    ],
    "tools": PLAIN["tools"],
}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=4,
)


def slowly(content: bytes) -> tuple[str, Record | None]:
    """The format and the record; or the code of the error, and none."""
    raw = decoded(RawLine("here:1", content))
    try:
        if raw.error:
            raise raw.error
        return detected(raw.value), to_record(raw.value)
    except RowError as error:
        return error.code, None


def check(content: bytes) -> bool:
    """Whether the quick way took the row; it must then have taken it as the slower one does."""
    record = quick(RawLine("here:1", content))
    if record is not None:
        assert slowly(content) == ("openai", record)
    return record is not None


@pytest.mark.parametrize("row", [PLAIN, PARALLEL], ids=["one call", "parallel calls"])
def test_a_row_as_openai_writes_it_is_taken_quickly(row):
    assert check(json.dumps(row).encode())
    assert check(json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode() + b"\n")


def test_a_tool_as_others_write_it_is_left_to_the_slower_way():
    schema = PLAIN["tools"][0]["function"]["parameters"]
    for tool in ({"name": "weather", "input_schema": schema}, json.dumps(PLAIN["tools"][0])):
        assert not check(json.dumps({**PLAIN, "tools": [tool]}).encode())


def test_turns_that_may_be_one_are_left_to_the_slower_way():
    user, calls, *results = PARALLEL["messages"]
    words = {"role": "assistant", "content": "I look.", "loss": False}
    parted = {**PARALLEL, "messages": [user, words, calls, *results]}
    assert not check(json.dumps(parted).encode())
    _, record = slowly(json.dumps(parted).encode())
    assert [message.role for message in record.messages].count("assistant") == 2


def test_results_in_another_order_than_their_calls_are_left_to_the_slower_way():
    user, calls, first, second, answer = PARALLEL["messages"]
    swapped = {**PARALLEL, "messages": [user, calls, second, first, answer]}
    assert not check(json.dumps(swapped).encode())
    assert slowly(json.dumps(swapped).encode()) == slowly(json.dumps(PARALLEL).encode())


def test_rows_of_every_format_are_taken_as_the_slower_way_takes_them():
    taken = [check(json.dumps(row, ensure_ascii=False).encode()) for row in ROWS]
    assert 0 < sum(taken) < len(taken)


def inner_values(value: Any) -> list[tuple[Any, Any]]:
    """Every place in it: what holds it, and under which key."""
    pairs = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [place for key, inner in pairs for place in ((value, key), *inner_values(inner))]


@given(st.sampled_from([PLAIN, PARALLEL]), st.data())
def test_a_row_with_something_else_in_one_place_is_taken_the_same_way_or_not_at_all(row, data):
    changed = copy.deepcopy(row)
    holder, key = data.draw(st.sampled_from(inner_values(changed)))
    match data.draw(st.sampled_from(["replace", "delete", "add", "copy"])):
        case "replace":
            holder[key] = data.draw(json_values)
        case "delete":
            del holder[key]
        case "add" if isinstance(holder, dict):
            known = [
                "name",
                "weight",
                "loss",
                "reasoning_content",
                "function_call",
                "tool_call_id",
                "tool_calls",
                "id",
            ]
            holder[data.draw(st.sampled_from(known))] = data.draw(json_values)
        case "copy" if isinstance(holder, list):
            holder.insert(data.draw(st.integers(0, len(holder))), copy.deepcopy(holder[key]))
    check(json.dumps(changed, ensure_ascii=data.draw(st.booleans())).encode())


@given(st.sampled_from([PLAIN, PARALLEL]), st.data())
def test_a_key_that_stands_twice_anywhere_is_never_taken(row, data):
    """Two equal keys, of which a parser would keep one without a word."""
    content = json.dumps(row)
    at = data.draw(
        st.sampled_from(
            [n for n in range(len(content)) if content[n] == "{" and content[n - 1] != "\\"]
        )
    )
    key = content[content.index('"', at) : content.index(":", at)]
    if "\\" in key:
        return
    assert not check(
        f"{content[: at + 1]}{key}: {data.draw(st.sampled_from(['null', '1', '[]', '{}']))}, "
        f"{content[at + 1 :]}".encode()
    )
