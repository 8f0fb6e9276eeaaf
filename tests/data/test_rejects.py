"""agentlite.data.rejects: a rejected row keeps its bytes; each and its hint reach the screen."""

import base64
import json

from hypothesis import given
from hypothesis import strategies as st

from agentlite.core.reject_codes import CODES
from agentlite.data.rejects import (
    MOST_LINES,
    MOST_REASONS,
    Reject,
    places,
    reject_row,
    report,
)


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
    shown = "\n".join(report([reject(n, reason=f"no tool f{n}") for n in range(1, 7)], "r.jsonl"))
    assert shown.count("E209 no tool") == MOST_REASONS
    assert "  = alike: lines 4, 5 and 6 of a.jsonl (r.jsonl)\n" in shown


def test_places_are_shortened_honestly() -> None:
    assert places(["a:1"]) == "line 1 of a"
    assert places(["a:1", "b:2", "a:3"]) == "lines 1 and 3 of a; line 2 of b"
    many = [f"a:{n}" for n in range(1, 50)]
    assert places(many).endswith(f"{MOST_LINES} of a; and {49 - MOST_LINES} more")
    assert places(["stdin:7"]) == "line 7 of stdin"


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
