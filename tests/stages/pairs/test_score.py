"""Scores that are there are not made again, unless a reward function failed for them."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import agentlite
from agentlite.core.errors import UserError
from agentlite.core.records import Candidate, Score
from agentlite.core.row_files import read_rows
from agentlite.scoring.rewards.scorer import Tally
from agentlite.stages.pairs.score import score_candidates

CANDIDATES = [Candidate("r", 1, "hermes", "m", number, "Yes.", "turn", 2) for number in range(5)]


TOOL = {
    "name": "get_tide",
    "parameters": {"type": "object", "properties": {"port": {"type": "string"}}},
}
CALL = {"name": "get_tide", "arguments": {"port": "Tarn"}}
PROMPT = {"prompt": "High tide in Tarn?", "tools": [TOOL], "gold": [CALL]}
DIALOG = {
    "messages": [
        {"role": "user", "content": "High tide in Tarn?"},
        {"role": "assistant", "tool_calls": [{"function": CALL}]},
    ],
    "tools": [TOOL],
}


@pytest.mark.parametrize("row", [PROMPT, DIALOG])
def test_a_response_is_scored_from_python_as_pairs_does(row: dict[str, Any]) -> None:
    right = f"<tool_call>\n{json.dumps(CALL)}\n</tool_call>"
    best = agentlite.score(right, row)
    assert (best.total, best.feedback, best.components["exact"]) == (pytest.approx(1), "right", 1)
    worse = agentlite.score(right.replace("Tarn", "Dole"), row)
    assert worse.total == pytest.approx(0.45)
    assert worse.feedback == "port has a value that is not accepted"
    react = 'Thought: I look.\nAction: get_tide\nAction Input: {"port": "Tarn"}'
    assert agentlite.score(react, row, protocol="react").total == pytest.approx(1)
    assert agentlite.score("No.", row, weights={"missed_call": -1.0}).total == pytest.approx(-0.9)


@pytest.mark.parametrize(
    ("row", "options", "location"),
    [
        ({"text": 5}, {}, "row"),
        ({"messages": [{"role": "user", "content": "Hi."}]}, {}, "row"),
        (PROMPT, {"protocol": "hermess"}, "--protocol"),
        (PROMPT, {"weights": {"exat": 1.0}}, "weights"),
    ],
)
def test_what_cannot_be_scored_is_refused(
    row: dict[str, Any], options: dict[str, Any], location: str
) -> None:
    with pytest.raises(UserError) as refused:
        agentlite.score("No.", row, **options)
    assert refused.value.location == location and refused.value.fix


class Scorer:
    """Fails for some samples, and notes for which it was called."""

    def __init__(self, *failing: int):
        self.failing, self.called = failing, list[int]()

    def __call__(self, candidates: Iterable[Candidate]) -> Iterator[Score]:
        for one in candidates:
            self.called.append(one.sample)
            error = "it failed" if one.sample in self.failing else ""
            yield Score(*one.key, {} if error else {"exact": 1.0}, "", error)


def scored(folder: Path, scorer: Scorer, limit: float = 1.0) -> dict[int, str]:
    found = score_candidates(folder, CANDIDATES, scorer, Tally(limit, folder, "Correct it."))
    rows = {row["sample"]: row["error"] for row in read_rows(folder / "scores.jsonl")}
    assert rows == {key.sample: score.error for key, score in found.items()}
    return rows


def test_a_score_with_an_error_is_made_again_and_no_other(tmp_path: Path) -> None:
    first, second, third = Scorer(1, 3), Scorer(3), Scorer()
    assert scored(tmp_path, first) == {0: "", 1: "it failed", 2: "", 3: "it failed", 4: ""}
    assert scored(tmp_path, second) == {0: "", 1: "", 2: "", 3: "it failed", 4: ""}
    assert scored(tmp_path, third) == dict.fromkeys(range(5), "")
    assert (first.called, second.called, third.called) == ([0, 1, 2, 3, 4], [1, 3], [3])


def test_too_many_failures_end_it_and_what_was_scored_is_kept(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="failed for 2 candidates") as error:
        scored(tmp_path, Scorer(1, 2), limit=0.2)
    assert error.value.exit_code == 4
    kept = [row["sample"] for row in read_rows(tmp_path / "scores.jsonl")]
    again = Scorer()
    assert kept == [0, 1, 2] and scored(tmp_path, again) == dict.fromkeys(range(5), "")
    assert again.called == [1, 2, 3, 4]
