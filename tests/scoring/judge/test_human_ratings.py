"""Sheets written, filled in and read back, and how far raters agree."""

import csv

import pytest

from agentlite.core.errors import UserError
from agentlite.scoring.judge.human_ratings import (
    COLUMNS,
    agreement,
    alpha,
    read_key,
    read_ratings,
    read_scores,
    write_sheet,
)
from agentlite.scoring.judge.llm_judge import Item

ITEMS = [Item(f"i{n}", f"What is {n} + {n}?", f"It is {2 * n}.", str(2 * n)) for n in range(6)]

ANSWERS = {
    model: [item._replace(answer=f"{item.answer} {n}") for item in ITEMS]
    for n, model in enumerate(("base", "sft"))
}


@pytest.fixture
def sheet(tmp_path):
    write_sheet(ANSWERS, tmp_path / "sheet.csv", seed=1)
    return tmp_path / "sheet.csv"


def cells_of(sheet):
    with open(sheet, encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def filled(sheet, name, give, delimiter=","):
    """A rater's copy: `give` makes the score of a row."""
    path = sheet.with_name(name)
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, delimiter=delimiter)
        writer.writeheader()
        writer.writerows({**row, "score": give(row)} for row in cells_of(sheet))
    return path


def test_a_sheet_is_blind_complete_and_in_an_order_that_tells_nothing(sheet, tmp_path):
    text, key = sheet.read_text(encoding="utf-8-sig"), read_key(sheet)
    assert "base" not in text and "sft" not in text
    rows = cells_of(sheet)
    by_row = {(item.name, model): item.answer for model, items in ANSWERS.items() for item in items}
    assert {row["row"]: row["answer"] for row in rows} == {
        row: by_row[place["item"], place["model"]] for row, place in key.items()
    }
    assert (
        len(
            {
                tuple(place["model"] for place in key.values()),
                ("base", "sft") * 6,
                ("base",) * 6 + ("sft",) * 6,
            }
        )
        == 3
    )
    write_sheet(
        {model: ANSWERS[model][::-1] for model in ("sft", "base")}, tmp_path / "again.csv", seed=1
    )
    assert (tmp_path / "again.csv").read_bytes() == sheet.read_bytes()
    write_sheet(ANSWERS, tmp_path / "other.csv", seed=2)
    assert not set(read_key(tmp_path / "other.csv")) & set(key)


def test_scores_come_back_by_model_with_intervals_and_agreement(sheet):
    key, give = read_key(sheet), {"base": 2, "sft": 4}
    raters = [
        filled(sheet, "a.csv", lambda row: give[key[row["row"]]["model"]]),
        filled(sheet, "b.csv", lambda row: f"{give[key[row['row']]['model']]}.0", ";"),
    ]
    found = read_ratings(sheet, raters, seed=0)
    figures = {model: one["metrics"] for model, one in found["models"].items()}
    assert {model: one["score"]["mean"] for model, one in figures.items()} == give
    assert {model: one["usable"]["mean"] for model, one in figures.items()} == {"base": 0, "sft": 1}
    assert figures["sft"]["usable"]["count"] == 6 and figures["sft"]["usable"]["low"] < 1
    assert found["agreement"]["ordinal"]["mean"] == pytest.approx(1)
    alone = read_ratings(sheet, raters[:1], seed=0)
    assert alone["agreement"] == {"ordinal": None}


def test_what_a_spreadsheet_would_run_or_cannot_hold_is_kept_from_it(tmp_path):
    texts = ["=1+1", "@x", "-2", "a" * (1 << 20), "\udcff \0", 'a "quoted"\nline, and more']
    items = [Item(str(n), "q", text) for n, text in enumerate(texts)]
    write_sheet({"m": items}, tmp_path / "s.csv", seed=0)
    found = {row["row"]: row["answer"] for row in cells_of(tmp_path / "s.csv")}
    by_item = {place["item"]: found[row] for row, place in read_key(tmp_path / "s.csv").items()}
    assert [by_item[str(n)][:5] for n in range(3)] == ["'=1+1", "'@x", "'-2"]
    assert len(by_item["3"]) < 32_767 and by_item["5"] == texts[5]
    assert (
        len(
            read_scores(
                filled(tmp_path / "s.csv", "r.csv", lambda row: 3), read_key(tmp_path / "s.csv")
            )
        )
        == 6
    )


def change(rows, fields):
    rows[1].update(fields)
    return rows


BAD = {
    "no score": (lambda rows: change(rows, {"score": " "}), "with score ''"),
    "a half": (lambda rows: change(rows, {"score": "4.5"}), "with score '4.5'"),
    "twice": (lambda rows: change(rows, {"row": rows[0]["row"]}), "a second time"),
    "unknown": (lambda rows: change(rows, {"row": "r99"}), "row 'r99'"),
    "missing": (lambda rows: rows[1:], "have no score"),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_sheet_that_cannot_be_counted_is_an_error(bad, sheet):
    damage, problem = bad
    rows = damage([{**row, "score": "3"} for row in cells_of(sheet)])
    path = sheet.with_name("bad.csv")
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    with pytest.raises(UserError) as caught:
        read_scores(path, read_key(sheet))
    assert problem in caught.value.problem and caught.value.location == str(path)


# Krippendorff, Computing Krippendorff's alpha-reliability (2011), example D: four observers, twelve
# units, 0: no value
OBSERVERS = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, 0, 0, 0],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, 0, 3],
    [0, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, 0],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, 0],
]
UNITS = [[value for value in unit if value] for unit in zip(*OBSERVERS, strict=True)]


def test_alpha_is_the_published_one():
    assert alpha(UNITS) == pytest.approx(0.815, abs=0.0005)


def test_alpha_is_1_where_all_agree_and_not_measured_where_nothing_differs_or_one_rates():
    assert alpha([[1, 1], [5, 5, 5]]) == pytest.approx(1)
    assert alpha([[3, 3], [3, 3]]) is None
    assert alpha([[1], [5]]) is None
    assert agreement([[1], [5], []], seed=0) == {"ordinal": None}
