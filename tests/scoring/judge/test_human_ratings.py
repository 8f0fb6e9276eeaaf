"""A sheet's cells, its key, and how copies of it are read back."""

import csv
import json

import pytest

from agentlite.core.errors import UserError
from agentlite.scoring.judge import human_ratings
from agentlite.scoring.judge.human_ratings import (
    SheetKey,
    SheetRow,
    rated,
    read_key,
    read_scores,
    write_sheet,
)
from agentlite.scoring.judge.llm_judge import Item
from agentlite.scoring.judge.rubric import RUBRIC


def rows_of(sheet):
    with open(sheet, encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_of_a_sheet_begins_as_a_formula_does(first, tmp_path):
    write_sheet({"m": [Item("n", *[f"{first}1+1"] * 3)]}, tmp_path / "s.csv", seed=0)
    _, row = rows_of(tmp_path / "s.csv")
    assert row[1:4] == [f"'{first}1+1"] * 3


@pytest.mark.parametrize(("length", "end"), [(30_000, "a"), (30_001, "a\n[1 characters left out]")])
def test_a_cell_holds_30_000_characters_and_says_what_is_left_out(length, end, tmp_path):
    write_sheet({"m": [Item("n", "q", "a" * length, "r")]}, tmp_path / "s.csv", seed=0)
    _, row = rows_of(tmp_path / "s.csv")
    assert row[1:3] == ["q", "r"] and row[3] == "a" * 29_999 + end


def test_a_sheet_has_a_mark_of_utf_8_and_its_key_has_seed_rubric_and_who_answered(tmp_path):
    answers = {m: [Item(f"i{n}", "q", f"{m}{n}") for n in range(5)] for m in ("one", "two")}
    write_sheet(answers, tmp_path / "s.csv", seed=3)
    assert (tmp_path / "s.csv").read_bytes().startswith(b"\xef\xbb\xbfrow,question,reference,")
    assert (tmp_path / "s.key.json").exists()
    key, (_, *rows) = read_key(tmp_path / "s.csv"), rows_of(tmp_path / "s.csv")
    assert (key.seed, key.rubric) == (3, RUBRIC)
    assert {row[3] for row in rows} == {f"{m}{n}" for m in answers for n in range(5)}
    assert [row[3] for row in rows] == [
        key.rows[row[0]].model + key.rows[row[0]].item.removeprefix("i") for row in rows
    ]
    names = [row[0].rpartition("-")[2] for row in rows]
    assert names == [f"{n:02}" for n in range(1, 11)], "they sort as they stand"
    assert all(row[4:] == ["", ""] for row in rows)


@pytest.mark.parametrize(("answer", "seed"), [("another", 0), ("an answer", 1)])
def test_no_row_of_a_sheet_is_one_of_another_sheet(answer, seed, tmp_path):
    names = []
    for given, number in (("an answer", 0), (answer, seed)):
        write_sheet({"m": [Item("n", "q", given)]}, tmp_path / "s.csv", number)
        names.append({*read_key(tmp_path / "s.csv").rows})
    assert names[0].isdisjoint(names[1])


def test_a_long_remark_can_be_read(tmp_path):
    before = csv.field_size_limit(131_072)  # Python's own limit, which holds for the process
    try:
        with open(tmp_path / "r.csv", "w", encoding="utf-8", newline="") as file:
            rows = [[f"k-{n}", "3", "x" * 200_000] for n in range(1, 5)]
            csv.writer(file).writerows([["row", "score", "remark"], *rows])
        assert {*read_scores(tmp_path / "r.csv", KEY).values()} == {3}
    finally:
        csv.field_size_limit(before)


def test_the_agreement_of_raters_is_of_all_rows_and_drawn_by_the_seed(monkeypatch):
    monkeypatch.setattr(human_ratings, "agreement", lambda units, seed: {"of": (units, seed)})
    raters = [{"k-1": 5, "k-2": 4, "k-3": 0, "k-4": 2}, {"k-4": 2, "k-3": 1, "k-2": 3, "k-1": 3}]
    assert rated(raters, KEY, seed=7).agreement["of"] == ([[5, 3], [4, 3], [0, 1], [2, 2]], 7)


KEY = SheetKey(
    0, {f"k-{n}": SheetRow(model, f"i{n}") for n, model in enumerate("aabb", 1)}, dict(RUBRIC)
)


@pytest.mark.parametrize("end", ["\r\n", "\n"], ids=["Windows", "Unix"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_copy_is_read_whichever_program_saved_it(delimiter, encoding, end, tmp_path):
    lines = [
        ["ROW", "remark", " Score "],
        ["k-2", "", "5"],
        [" k-1 ", "so, so; well", " 0.0 "],
        ["", "", ""],
        [],
        ["k-4", "", "3"],
        ["k-3", "", "4", "more"],
    ]
    with open(tmp_path / "r.csv", "w", encoding=encoding, newline="") as file:
        csv.writer(file, delimiter=delimiter, lineterminator=end).writerows(lines)
    assert read_scores(tmp_path / "r.csv", KEY) == {"k-1": 0, "k-2": 5, "k-3": 4, "k-4": 3}


@pytest.mark.parametrize(
    ("lines", "problem", "line"),
    [
        ("k-1,1\nk-4,1\n", "k-2 and 1 more missing", None),
        ("k-1,1\nk-2,1\nk-4,1\n", "k-3 missing", None),
        ("k-1,1\nk-2\n", "k-2 has no score", 3),
        ("k-1,1\n\nk-2,-1\n", "'-1' is not a score of k-2", 4),
        ("k-9,1\n", "'k-9' is not a row of this sheet", 2),
    ],
)
def test_a_row_without_a_score_is_named_with_its_line(lines, problem, line, tmp_path):
    path = tmp_path / "r.csv"
    path.write_text(f"row,score\n{lines}")
    with pytest.raises(UserError) as caught:
        read_scores(path, KEY)
    assert caught.value.problem.startswith(problem) and caught.value.exit_code == 2
    assert caught.value.location == (f"{path}:{line}" if line else str(path))


def test_an_answer_has_the_mean_of_its_raters_and_is_usable_from_4():
    raters = [{"k-1": 5, "k-2": 4, "k-3": 0, "k-4": 2}, {"k-1": 3, "k-2": 3, "k-3": 1, "k-4": 2}]
    found = rated(raters, KEY, seed=0)
    assert {model: figure.mean for model, figure in found.score.items()} == {"a": 3.75, "b": 1.25}
    assert {model: figure.mean for model, figure in found.usable.items()} == {"a": 0.5, "b": 0.0}
    assert {figure.count for figure in (*found.score.values(), *found.usable.values())} == {2}
    with pytest.raises(ValueError, match="no raters"):
        rated([], KEY, seed=0)


@pytest.mark.parametrize(
    "key",
    [
        {"seed": 0, "rows": {}, "rubric": {}, "more": 1},
        {"seed": 0, "rows": {"k-1": {"model": "a", "item": "i", "more": 1}}, "rubric": {}},
        {"seed": 0, "rows": {"k-1": {"model": "a"}}, "rubric": {}},
        {"seed": 0, "rubric": {}},
        [],
    ],
)
def test_a_file_that_is_another_kind_of_key_is_refused(key, tmp_path):
    (tmp_path / "s.key.json").write_text(json.dumps(key))
    with pytest.raises(UserError, match="not the key of a sheet"):
        read_key(tmp_path / "s.csv")
    with pytest.raises(UserError, match="put it back there"):
        read_key(tmp_path / "other.csv")


def test_a_sheet_and_its_key_are_written_whole_and_the_key_first(tmp_path, disk_calls):
    write_sheet({"m": [Item("n", "q", "a")]}, tmp_path / "s.csv", seed=0)
    renamed = [call.split()[-1] for call in disk_calls if call.startswith("rename")]
    assert renamed == ["s.key.json", "s.csv"]
