"""agentlite.data.formats.text: a plain text is one turn, kept to the last blank."""

from typing import Any

import pytest
from support.damaged_rows import Row, refused, rows

from agentlite.core.errors import RowError
from agentlite.core.records import Message, Record
from agentlite.data.formats import detected, samples, text

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


@pytest.mark.parametrize(
    "more",
    [
        {"id": "1", "url": "http://rain.example", "timestamp": "2026-01-01"},  # C4
        {"dump": "CC", "file_path": "s3://x", "language_score": 0.9, "token_count": 3},  # FineWeb
        {"meta": {"pile_set_name": "Books3"}, "added": "2026", "source": "dolma"},
        {"title": "Rain", "category": "weather", "label": None},
    ],
)
def test_a_text_with_metadata_is_plain_text(more: Row) -> None:
    assert text.fits({"text": "x", **more})
    assert detected({"text": "x", **more}) == "text"


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"label": 1}, "label"),
        ({"id": "1", "summary": "Rain."}, "summary"),
        ({"answer": "Yes.", "url": "x"}, "answer"),
        ({"question": "Wet?"}, "question"),
        ({"chosen": "a", "rejected": "b"}, "chosen, rejected"),
        ({"entities": []}, "entities"),
    ],
)
def test_a_text_beside_anything_else_is_not_taken_for_plain_text(more: Row, named: str) -> None:
    row = {"text": "x", **more}
    with pytest.raises(RowError, match=named) as caught:
        samples(row)
    assert caught.value.code == "E202"
    assert "--format text" in caught.value.hint
    assert samples(row, "text") == ("text", [row])  # the user says so


@pytest.mark.parametrize(
    "key", ["texture", "ideal", "titled", "answer", "hashtags_of_all", "labels"]
)
def test_a_key_that_only_begins_like_a_description_makes_a_row_of_something_else(key: str) -> None:
    assert text.fits({"text": "Rain.", "title": "x", "doc_id": 3})
    assert not text.fits({"text": "Rain.", key: "x"})
    assert text.fits({"text": "Rain.", key: None})
