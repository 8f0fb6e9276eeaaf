"""agentlite.data.formats.alpaca: an instruction with its input is asked, the output answers, the
history goes before.
"""

from typing import Any

import pytest
from support.damaged_rows import Row, refused, rows

from agentlite.core.records import Message, Record
from agentlite.data.curation.validate import validate
from agentlite.data.formats import alpaca

ROWS = rows("alpaca")
EXPECTED = [
    Record(
        messages=(
            Message("user", "Say it in French.\nGood morning"),
            Message("assistant", "Bonjour"),
        )
    ),
    Record(
        messages=(
            Message("system", "你很简短。"),
            Message("user", "今天星期几？"),
            Message("assistant", "星期五。"),
        )
    ),
    Record(
        messages=(
            Message("user", "Say good morning."),
            Message("assistant", "Good morning."),
            Message("user", "In French?"),
            Message("assistant", "Bonjour"),
            Message("user", "And in Spanish?"),
            Message("assistant", "Buenos días"),
        )
    ),
    Record(messages=(Message("user", "2 + 3"), Message("assistant", "5"))),
    Record(
        messages=(Message("user", 'It\'s "quoted".\nWhy?'), Message("assistant", "{'as': None}")),
        meta={"source_id": "7", "extra": {"text": "### Instruction: ...", "quality": 0.5}},
    ),
]


@pytest.mark.parametrize(("row", "expected"), list(zip(ROWS, EXPECTED, strict=True)))
def test_a_row_is_read_as_it_was_written(row: Row, expected: Record) -> None:
    assert alpaca.fits(row)
    assert alpaca.read(row) == expected
    validate(expected)


BAD: list[tuple[str, dict[str, Any]]] = [
    ("E201", {}),
    ("E201", {"instruction": "Say it.", "input": ""}),
    ("E201", {"instruction": None, "output": "x"}),
    ("E216", {"instruction": "Say it.", "input": ["a"], "output": "x"}),
    ("E216", {"instruction": "Say it.", "system": {"a": 1}, "output": "x"}),
    ("E201", {"instruction": "Say it.", "output": "x", "history": "before"}),
    ("E201", {"instruction": "Say it.", "output": "x", "history": [["only a question"]]}),
    ("E201", {"instruction": "Say it.", "output": "x", "history": [["q", None]]}),
]


@pytest.mark.parametrize(("code", "row"), BAD)
def test_a_row_that_cannot_be_taken_says_why(code: str, row: Row) -> None:
    assert refused(lambda: alpaca.read(row)) == code
