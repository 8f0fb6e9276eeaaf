"""The newest answers of a stage that samples, whatever it keeps them in."""

from pathlib import Path
from typing import Any

import pytest

from agentlite.core.records import GOLD
from agentlite.core.row_files import write_rows
from agentlite.deploy.board.newest_answers import FILES, NewAnswer, newest_answers


def one(text: str, **fields: Any) -> dict[str, Any]:
    return {"record_id": "r", "turn": 1, "model": "m", "text": text, "ended": "turn", **fields}


def texts(folder: Path, most: int = 12) -> list[str]:
    return [answer.text for answer in newest_answers(folder, most)]


@pytest.mark.parametrize("name", FILES)
def test_they_come_newest_first_and_no_more_than_are_wanted(tmp_path: Path, name: str) -> None:
    write_rows(tmp_path / name, [one(str(number)) for number in range(20)])
    assert texts(tmp_path, 3) == ["19", "18", "17"]
    assert len(texts(tmp_path)) == 12 and newest_answers(tmp_path / "none") == []


def test_the_right_answers_of_the_records_were_not_sampled(tmp_path: Path) -> None:
    rows = [one("right", model=GOLD), one("right", model=GOLD), one("first"), one("second")]
    write_rows(tmp_path / "rollouts.jsonl", rows)
    assert texts(tmp_path) == ["second", "first"]


def test_an_answer_has_its_scores_its_step_and_what_is_wrong_with_it(tmp_path: Path) -> None:
    rows = [
        one("a", components={"exact": 1, "odd": "x"}, new_tokens=7, trained=4, feedback="good"),
        one("b", scores={"won": 0.5}, problem="no JSON"),
        one("c", components={"exact": 0.0}, error="failed", feedback="unseen", problem="unseen"),
        {"task": "shop", "turns": [{"text": "x"}, {"no": "text"}, "harmed", {"text": "y"}]},
    ]
    write_rows(tmp_path / "answers.jsonl", rows)
    whole = NewAnswer("r/1", "r", 1, "m", "a", "turn", 7, 4, {"exact": 1.0}, "good")
    scored = NewAnswer("r/1", "r", 1, "m", "b", "turn", None, None, {"won": 0.5}, "no JSON")
    failed = NewAnswer("r/1", "r", 1, "m", "c", "turn", None, None, {"exact": 0.0}, "failed")
    rollout = NewAnswer("shop", "", None, "", "x\ny", "", None, None, {}, "")
    assert newest_answers(tmp_path) == [rollout, failed, scored, whole]


@pytest.mark.parametrize(
    ("row", "about"),
    [({"turn": 0}, "r/0"), ({"turn": 3}, "r/3"), ({"turn": None}, "r"), ({"record_id": 0}, "0/1")],
)
def test_an_answer_is_about_its_record_and_its_turn_be_they_nought(
    row: dict[str, Any], about: str, tmp_path: Path
) -> None:
    write_rows(tmp_path / "answers.jsonl", [{**one("a"), **row}])
    (found,) = newest_answers(tmp_path)
    assert found.about == about
