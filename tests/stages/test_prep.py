"""prep as a whole: whatever the bytes, counts add up and rejects can be mended; long rows are cut
in the open.
"""

import base64
import io
import json
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.malformed_rows import KINDS, Kind, good, line, row
from support.samples import DATA

from agentlite import prep
from agentlite.core.errors import REJECTS, UserError
from agentlite.core.records import from_row
from agentlite.core.row_files import read_rows
from agentlite.workspace.lookup import Result

ENDS = ("kept", "rejected", "duplicates", "filtered")


def run(source: object, folder: Path, **changes: object) -> Result:
    given: dict[str, object] = {
        "model": "smollm2-135m",
        "max_rejects": 1.0,
        "dev": 0.0,
        "test": 0.0,
        **changes,
    }
    return prep(str(source), run=str(folder), **given)


def rejects(folder: Path, out: str = "prep") -> list[dict[str, str]]:
    return list(read_rows(folder / out / "rejects.jsonl"))


def records(folder: Path, out: str = "prep") -> list:
    return [from_row(row) for row in read_rows(folder / out / "train.jsonl")]


def content(reject: dict[str, str]) -> bytes:
    return reject["raw"].encode() if "raw" in reject else base64.b64decode(reject["raw_base64"])


def test_thoughts_without_a_place_in_the_template_are_said_once_or_left_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = {"role": "assistant", "content": "Yes.", "reasoning_content": "It rains."}
    asked = [{"messages": [{"role": "user", "content": f"Wet {n}?"}, answer]} for n in (1, 2)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, asked)))
    for thoughts, said in (("keep", "<think>\nIt rains.\n</think>\n\nYes."), ("drop", "Yes.")):
        run(tmp_path / "a.jsonl", tmp_path, out=thoughts, thoughts=thoughts)
        assert {record.messages[-1].content for record in records(tmp_path, thoughts)} == {said}
        assert capfd.readouterr().err.count("2 rows hold thoughts") == (thoughts == "keep")


def test_name_and_author_are_said_in_the_language_of_the_row(tmp_path: Path) -> None:
    run(
        DATA / "formats" / "self_cognition.jsonl",
        tmp_path,
        model_name=["小鸽", "Little Dove"],
        model_author=["鸽舍", "the loft"],
    )
    said = [record.messages[1].content for record in records(tmp_path)]
    assert {"我是小鸽，由鸽舍训练。", "I'm Little Dove, made by the loft. Little Dove!"} < set(said)


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_bad_input_gets_its_code_and_costs_no_other_row(
    name: str, tmp_path: Path
) -> None:
    kind: Kind = KINDS[name]
    path = tmp_path / kind.name
    path.write_bytes(kind.file() if kind.file else good() + kind.bad + b"\n" + line(n=4) + b"\n")
    if kind.code.startswith("exit"):
        with pytest.raises(UserError) as told:
            run(path, tmp_path)
        assert told.value.exit_code == int(kind.code.removeprefix("exit "))
        return
    figures = run(path, tmp_path).figures
    assert figures["read"] == sum(figures[end] for end in ENDS)
    found = rejects(tmp_path)
    assert {reject["code"] for reject in found} == ({kind.code} if kind.code else set())
    assert all(reject["hint"] and reject["location"].startswith(str(path)) for reject in found)
    if not kind.file:
        expected = 4 if kind.code or figures["duplicates"] else 5
        assert figures["kept"] == expected
        if kind.number not in (20, 21):  # too long to be kept, or several lines
            assert [content(reject) for reject in found] == ([kind.bad] if kind.code else [])


some_lines = st.one_of(
    st.binary(max_size=80),
    st.sampled_from([line(n=n) for n in range(4)]),
    st.sampled_from([k.bad for k in KINDS.values() if 0 < len(k.bad) < 10_000]),
)


@pytest.mark.long
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(some_lines, max_size=6).map(b"\n".join))
def test_any_bytes_end_with_counts_that_add_up_and_rejects_hold_every_byte(
    tmp_path, monkeypatch, found
):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(found)))
    try:
        figures = run("-", tmp_path, force=True).figures
    except UserError as told:  # what is no text, or holds no row that is left
        ended = told.exit_code
    else:
        ended = 0
    assert ended in (0, 2, REJECTS)
    if ended:
        return
    assert figures["read"] == sum(figures[end] for end in ENDS)
    lines = Counter(one.removeprefix(b"\xef\xbb\xbf") for one in found.split(b"\n"))
    for reject in rejects(tmp_path):
        assert content(reject).removeprefix(b"\xef\xbb\xbf") in lines
    assert len(rejects(tmp_path)) == figures["rejected"]


REPAIRABLE = {
    "literal": str(row(1)).encode(),
    "json": line(n=1).replace(b"Yes.", b'so "yes" it is'),
}


@pytest.mark.parametrize("way", REPAIRABLE)
def test_what_is_repaired_is_asked_for_and_counted(way: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(line(n=2) + b"\n" + REPAIRABLE[way] + b"\n")
    assert run(path, tmp_path, out="as-it-is").figures["rejected"] == 1
    figures = run(path, tmp_path, fix=True, out="repaired").figures
    assert (figures["kept"], figures["rejected"], figures["repaired"]) == (2, 0, {way: 1})
    assert records(tmp_path, "repaired")[1].messages[0].content == "Is it wet in Oslo, question 1?"
