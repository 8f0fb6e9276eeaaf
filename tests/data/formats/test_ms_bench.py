"""agentlite.data.formats.ms_bench: general chat, filtered as ms-swift does, without the default
system text.
"""

from typing import Any

import pytest
from support.damaged_rows import Row, refused, rows

from agentlite.core.records import Message
from agentlite.data.curation.validate import validate
from agentlite.data.formats import ms_bench

ROWS = rows("ms_bench")
EXPECTED: list[tuple[tuple[Message, ...], dict[str, Any]]] = [
    (
        (Message("user", "Why is rain wet?"), Message("assistant", "Because it is water.")),
        {"source_id": "b1"},
    ),
    (
        (
            Message("user", "雨？"),
            Message("assistant", "是水。"),
            Message("user", "It's cold"),
            Message("assistant", "Frost's with an “h”: no."),
        ),
        {"extra": {"topic": "rain"}},
    ),
    (
        (
            Message("system", "You are a helpful assistant. Answer in verse."),
            Message("user", "Rain?"),
            Message("assistant", "It falls again."),
        ),
        {},
    ),
    ((Message("user", "Rain?"), Message("assistant", "Water.")), {}),
    ((Message("user", "No system"), Message("assistant", "No.")), {}),
]


@pytest.mark.parametrize(("row", "expected"), list(zip(ROWS, EXPECTED, strict=True)))
def test_a_row_is_read_without_the_default_system_text(
    row: Row, expected: tuple[tuple[Message, ...], dict[str, Any]]
) -> None:
    record = ms_bench.read(row)
    assert (record.messages, record.meta) == expected
    validate(record)


@pytest.mark.parametrize("row", [*ROWS, {}])
def test_only_its_name_chooses_it(row: Row) -> None:
    assert not ms_bench.fits(row)


@pytest.mark.parametrize("word", ["I am MOSS", "mossy", "Human: hi", "Assistant: hi", "a USER: b"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_row_with_a_word_of_the_filter_in_any_turn_is_filtered(word: str, place: int) -> None:
    turns = [{"from": role, "value": "x"} for role in ("system", "user", "assistant")]
    turns[place]["value"] = word
    assert refused(lambda: ms_bench.read({"conversations": turns})) == "F301"


def test_a_word_of_the_filter_in_the_system_text_beside_the_turns_counts_too() -> None:
    row = {
        "system": "User: x",
        "conversations": [{"from": "user", "value": "x"}, {"from": "assistant", "value": "y"}],
    }
    assert refused(lambda: ms_bench.read(row)) == "F301"


BAD: list[tuple[str, dict[str, Any]]] = [
    ("E201", {}),
    ("E201", {"conversations": "hi"}),
    ("E202", {"conversations": [{"from": "narrator", "value": "x"}]}),
    ("E216", {"conversations": [{"from": "user", "value": 1}]}),
]


@pytest.mark.parametrize(("code", "row"), BAD)
def test_a_row_that_cannot_be_taken_says_why(code: str, row: Row) -> None:
    assert refused(lambda: ms_bench.read(row)) == code
