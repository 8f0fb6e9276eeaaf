"""agentlite.data.formats.text: a plain text is one turn, kept to the last blank."""

import pytest
from support.damaged_rows import Row

from agentlite.core.errors import RowError
from agentlite.data.formats import detected, samples, text


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
