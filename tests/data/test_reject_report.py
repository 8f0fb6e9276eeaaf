"""agentlite.data.reject_report: every reject and its hint reach the screen."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlite.core.reject_codes import CODES
from agentlite.data import reject_report
from agentlite.data.formats import RawLine, decoded
from agentlite.data.reject_report import MOST_LINES, MOST_REASONS, hint_of, places, report
from agentlite.data.rejects import Reject


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


def test_rows_of_a_code_that_need_different_cures_are_kinds_of_their_own() -> None:
    shown = [*report([reject(1), reject(2, hint="Add the tools."), reject(3)], "")]
    assert [line for line in shown if "help" in line] == [
        f"  = help: {hint} See `agentlite prep --explain E209`."
        for hint in (CODES["E209"].hint, "Add the tools.")
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


def test_of_many_rows_the_first_fifty_are_tried_and_none_where_nothing_is_repaired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[bytes] = []

    def repair(content: bytes, methods: object) -> bool:
        tried.append(content)
        return True

    monkeypatch.setattr(reject_report, "repair", repair)
    rejects = [Reject(f"a:{n}", b"{%d" % n, "E121", "x") for n in range(60)]
    shown = "\n".join(report(rejects, ""))
    assert tried == [b"{%d" % n for n in range(50)]
    assert "--repair" in shown and CODES["E121"].hint in shown
    assert "--repair" not in "\n".join(report(rejects, "", repairs=False)) and len(tried) == 50


def test_of_the_kinds_beyond_forty_only_the_number_is_shown() -> None:
    rejects = [reject(n, hint=f"Do this {n}.") for n in range(43)]
    shown = [*report(rejects, "r.jsonl")]
    assert sum("= help" in line for line in shown) == 40
    assert shown[-1] == "3 more kinds of rejects (r.jsonl)"
    assert not any("more kinds" in line for line in report(rejects[:40], ""))


@pytest.mark.parametrize("more", [MOST_LINES, MOST_LINES + 1])
def test_the_file_of_all_is_named_where_some_lines_are_not(more: int) -> None:
    shown = "\n".join(report([reject(n) for n in range(more + 1)], "r.jsonl"))
    assert ("and 1 more (r.jsonl)" in shown) == ("(r.jsonl)" in shown) == (more > MOST_LINES)


def test_a_repair_is_only_named_where_it_was_tried_and_helps() -> None:
    row = json.dumps({"a": True})[:-1] + ",}"
    bad = Reject("a:1", row.encode(), "E121", "x")
    assert "--repair json" in hint_of(bad)
    assert hint_of(bad, look=False) == CODES["E121"].hint
