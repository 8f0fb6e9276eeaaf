"""agentlite.data.rejects: a rejected row keeps its bytes; each and its hint reach the screen."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlite.core.reject_codes import CODES
from agentlite.data.formats import RawLine, decoded
from agentlite.data.rejects import (
    MOST_LINES,
    MOST_REASONS,
    Reject,
    hint_of,
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


@given(
    st.lists(
        st.tuples(st.sampled_from(["E201", "E209", "D401"]), st.sampled_from("abcdef")), max_size=60
    )
)
def test_every_reject_is_counted_on_the_screen(rows: list[tuple[str, str]]) -> None:
    rejects = [reject(n, code, reason) for n, (code, reason) in enumerate(rows, 1)]
    shown = [*report(rejects, "")]
    heads = sum(line.startswith("a.jsonl:") for line in shown)
    listed = 0
    for line in shown:
        if line.startswith(("  = also", "  = alike")):
            numbers = line.partition("line")[2].removeprefix("s").partition(" of ")[0]
            listed += len([word for word in numbers.replace(",", " ").split() if word != "and"])
            listed += int(line.split("; and ")[1].split()[0]) if "; and " in line else 0
    assert heads + listed == len(rejects)
    for code in {code for code, _ in rows}:
        assert any(f"--explain {code}`" in line for line in shown)


def test_places_are_shortened_honestly() -> None:
    assert places(["a:1"]) == "line 1 of a"
    assert places(["a:1", "b:2", "a:3"]) == "lines 1 and 3 of a; line 2 of b"
    many = [f"a:{n}" for n in range(1, 50)]
    assert places(many).endswith(f"{MOST_LINES} of a; and {49 - MOST_LINES} more")
    assert places(many[:MOST_LINES], 49) == places(many)
    assert places(["stdin:7"]) == "line 7 of stdin"


@pytest.mark.parametrize(
    ("row", "hint"),
    [
        (b'{"a": true,}', "--repair json reads this row"),
        (b"{'a': None}", "--repair literal reads this row"),
        (b'{"a": "b', "was cut"),
        (b'{"a": ', "was cut"),
        (b'{"a": {', "spread over lines"),
        (b'{"a": "\xe9"}', "--repair encoding reads such rows as Windows-1252"),
        (b'{"a": 1} {"b": 2}', "one value per line"),
        (b"a,b", "one JSON object per line"),
        (b"[1]", "one object per line"),
        (b'{"a": NaN}', CODES["E116"].hint),
    ],
)
def test_the_hint_of_a_row_that_cannot_be_read_fits_the_row(row: bytes, hint: str) -> None:
    raw = decoded(RawLine("a:1", row + b"\n"))
    assert raw.error is not None
    error = raw.error
    found = Reject("a:1", raw.content, error.code, error.reason, 0, error.hint, error.at)
    assert hint in hint_of(found)


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
