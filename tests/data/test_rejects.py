"""agentlite.data.rejects: a rejected row keeps its bytes; each and its hint reach the screen."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from agentlite.core.console import CARET_WIDTH
from agentlite.core.reject_codes import CODES
from agentlite.data.rejects import MOST_SHOWN, Reject, excerpt, reject_row, report


def reject(line: int, code: str = "E209", reason: str = "no tool f", **more: str) -> Reject:
    return Reject(f"a.jsonl:{line}", b'{"name": "f"}', code, reason, **more)  # type: ignore[arg-type]


def test_a_kind_of_rejects_has_its_place_its_piece_all_lines_and_its_hint() -> None:
    shown = [*report([reject(3, at="f"), reject(8), reject(12)], "")]
    assert shown == [
        "a.jsonl:3: E209 no tool f",
        '  | {"name": "f"}',
        "  |           ^",
        "  = also lines 8 and 12 of a.jsonl",
        f"  = help: {CODES['E209'].hint} See `agentlite prep --explain E209`.",
    ]


def test_many_reasons_of_a_kind_are_shortened_and_no_line_is_lost() -> None:
    shown = "\n".join(report([reject(n, reason=f"no tool f{n}") for n in range(1, 12)], "r.jsonl"))
    assert shown.count("E209 no tool") == MOST_SHOWN
    assert "  = alike: lines 4, 5, 6, 7, 8, 9, 10 and 11 of a.jsonl (r.jsonl)\n" in shown


@given(st.binary())
def test_a_reject_keeps_the_bytes_of_its_row(content: bytes) -> None:
    row = json.loads(json.dumps(reject_row(Reject("a.jsonl:3", content, "E121", "no JSON"))))
    kept = row["raw"].encode() if "raw" in row else base64.b64decode(row["raw_base64"])
    assert kept == content


def test_a_reject_says_what_is_wrong_what_to_do_and_which_sample_it_is() -> None:
    row = reject_row(Reject("a:3", b"{", "E121", "no JSON", 2))
    expected = {"location": "a:3", "code": "E121", "reason": "no JSON", "hint": CODES["E121"].hint}
    assert row == {**expected, "part": "2", "raw": "{"}
    assert "part" not in reject_row(Reject("a:3", b"{", "E121", "no JSON"))
    own = Reject("a:3", b"{", "E121", "no JSON", hint="Write one value per line.")
    assert reject_row(own)["hint"] == "Write one value per line."
    assert reject_row(Reject("a:3", b"\xff", "E109", "no UTF-8"))["raw_base64"] == "/w=="


# --- the carets stand under what is wrong ---

ROW = {
    "tools": [{"name": "get", "parameters": {"city": {}}}],
    "messages": [
        {"role": "user", "content": "get it"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "a", "name": "get", "arguments": {"city": 1, "from": "user"}}],
        },
        {"role": "tool", "content": "x"},
        {"role": "asistant", "content": ""},
    ],
}


def pointed(content: bytes, at: str | int) -> str:
    """What stands over the carets."""
    shown = excerpt(content, at)
    if not shown:
        return ""
    line, carets = shown
    assert set(carets) <= {" ", "^"} and "^" in carets
    start, columns = len(carets) - len(carets.lstrip()), 0
    piece = ""
    for sign in line:
        if start <= columns < len(carets):
            piece += sign
        columns += cell_len(sign)
    return piece


@pytest.mark.parametrize(
    ("at", "piece"),
    [("asistant", "asistant"), ("city", "city"), ("nowhere", ""), ("", ""), (0, "{")],
)
def test_a_piece_is_found(at: str | int, piece: str) -> None:
    assert pointed(json.dumps(ROW).encode(), at) == piece


@given(st.text(), st.text(min_size=1), st.text())
def test_a_position_is_pointed_at_whatever_stands_around_it(
    before: str, piece: str, after: str
) -> None:
    content = (before + piece + after).encode("utf-8", "surrogatepass")
    text = content.decode("utf-8", "replace").removeprefix("\ufeff")
    at = min(len(before), len(text) - 1)
    if at < 0:
        return
    line, carets = excerpt(content, at)
    assert line.isprintable() and len(line) <= CARET_WIDTH + 2
    assert "^" in carets
