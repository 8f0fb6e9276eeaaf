"""agentlite.data.formats.text: a plain text is one turn, kept to the last blank."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from support.damaged_rows import Row, damaged, refused, rows, strangers

from agentlite.core.errors import RowError
from agentlite.core.records import Message, Record, from_row, to_row
from agentlite.data.formats import text

ROWS = rows("text")
EXPECTED: list[tuple[str, dict[str, Any]]] = [
    ("Rain is measured in millimetres: one is a litre on a square metre.", {}),
    ("  雨。\n\n\tIndented, and a last line break\n", {}),
    (
        "user: it's {'a': None} <tool_call>{}</tool_call>",
        {"source_id": "3", "extra": {"url": "http://rain.example", "meta": {"lang": "en"}}},
    ),
    ("x", {}),
    ('{"messages": []}', {}),
]


@pytest.mark.parametrize(("row", "expected"), list(zip(ROWS, EXPECTED, strict=True)))
def test_a_text_is_one_learned_turn_and_says_that_it_is_whole(
    row: Row, expected: tuple[str, dict[str, Any]]
) -> None:
    content, meta = expected
    assert text.fits(row)
    assert text.read(row) == Record(
        messages=(Message("assistant", content),), meta={**meta, "whole": True}
    )


def test_no_row_of_another_format_is_taken_for_one() -> None:
    assert not [row for row in strangers("text") if text.fits(row)]


BAD: list[tuple[str, dict[str, Any]]] = [
    ("E201", {}),
    ("E201", {"text": None}),
    ("E201", {"text": ["a", "b"]}),
    ("E216", {"text": ""}),
    ("E216", {"text": " \n\t"}),
]


@pytest.mark.parametrize(("code", "row"), BAD)
def test_a_row_that_cannot_be_taken_says_why(code: str, row: Row) -> None:
    assert refused(lambda: text.read(row)) == code


@given(damaged("text"))
def test_a_damaged_row_becomes_a_record_or_a_row_error(row: Row) -> None:
    assert text.fits(row) in (True, False)
    with suppress(RowError):
        record = text.read(row)
        assert from_row(to_row(record)) == record
