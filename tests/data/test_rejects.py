"""agentlite.data.rejects: a rejected row keeps its bytes, and what it was edited to is read."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlite.core.errors import UserError
from agentlite.core.reject_codes import CODES
from agentlite.data.formats import RawLine
from agentlite.data.rejects import Edits, Reject, edited_rows, reject_row


@given(st.binary())
def test_a_reject_keeps_the_bytes_of_its_row(tmp_path_factory: Any, content: bytes) -> None:
    path = tmp_path_factory.mktemp("rejects") / "rejects.jsonl"
    row = reject_row(Reject("a.jsonl:3", content, "E121", "no JSON"))
    path.write_text(json.dumps(row), encoding="utf-8")
    assert edited_rows(path) == {"a.jsonl:3": [content]}


def test_a_reject_says_what_is_wrong_what_to_do_and_which_sample_it_is() -> None:
    row = reject_row(Reject("a:3", b"{", "E121", "no JSON", 2))
    expected = {"location": "a:3", "code": "E121", "reason": "no JSON", "hint": CODES["E121"].hint}
    assert row == {**expected, "part": "2", "raw": "{"}
    assert "part" not in reject_row(Reject("a:3", b"{", "E121", "no JSON"))
    own = Reject("a:3", b"{", "E121", "no JSON", hint="Write one value per line.")
    assert reject_row(own)["hint"] == "Write one value per line."
    assert reject_row(Reject("a:3", b"\xff", "E109", "no UTF-8"))["raw_base64"] == "/w=="


@pytest.mark.parametrize(
    "line",
    [
        "",
        "3",
        "{",
        '{"location": "a:1"}',
        '{"location": 3, "raw": "x"}',
        '{"raw": "x"}',
        '{"location": "a:1", "raw": 3}',
        '{"location": "a:1", "raw_base64": "/w"}',
        '{"location": "a:1", "raw_base64": "/w==!"}',
    ],
)
def test_a_row_that_is_no_reject_is_named_with_its_line(line: str, tmp_path: Path) -> None:
    path = tmp_path / "rejects.jsonl"
    path.write_text(f'{{"location": "a:1", "raw": "x"}}\n{line}\n')
    with pytest.raises(UserError) as caught:
        edited_rows(path)
    assert caught.value.location == f"{path}:2"


def test_a_file_of_rejects_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        edited_rows(tmp_path / "rejects.jsonl")
    assert caught.value.location == str(tmp_path / "rejects.jsonl")


def test_an_edited_row_stands_where_the_rejected_one_was_and_others_are_as_they_were() -> None:
    edits = Edits({"a:1": [b"old", b"new", b"new"], "a:2": [b"same"], "a:9": [b"x"]})
    assert edits(RawLine("a:1", b"old\n")) == RawLine("a:1", b"new\n")
    assert edits(RawLine("a:2", b"same\n")) == RawLine("a:2", b"same\n")
    assert edits(RawLine("a:3", b"other\n")) == RawLine("a:3", b"other\n")
    assert [*edits.unused()] == ["a:9"]


def test_a_row_that_was_edited_in_two_ways_is_refused() -> None:
    with pytest.raises(UserError) as caught:
        Edits({"a:1": [b"one", b"two"]})(RawLine("a:1", b"old\n"))
    assert caught.value.location == "a:1"
