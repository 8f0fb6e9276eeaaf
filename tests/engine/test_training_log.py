"""agentlite.engine.training_log: rows of steps, and what a report makes of them."""

import time

import pytest

from agentlite.core.row_files import read_rows
from agentlite.engine.training_log import Journal, Pace, mean, or_none


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([1.0, 2.0], 1.5),
        ([0.0, 1.0], 0.5),  # a reward of nothing counts
        ([0.0, 0.0], 0.0),
        ([None, 3.0], 3.0),
        ([None, 0.0, 3.0], 1.5),
        ([None], 0.0),
        ([], 0.0),
        ([-1.0, 1.0, 0.0], 0.0),
        ([1 / 3], 0.3333),
    ],
)
def test_a_mean_is_over_all_that_was_measured_zeros_too(values, found):
    rows = [{"step": step, "reward": value} for step, value in enumerate(values)]
    assert mean(rows, "reward") == found
    assert mean([*rows, {"step": 99}], "reward") == found


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_is_null(value):
    assert or_none(value) is None and or_none(0.0) == 0.0


def test_the_pace_is_a_row_for_each_step_and_stops_nothing(tmp_path):
    pace = Pace(tmp_path)
    pace.note(1, 9, None, 2.5)
    pace.note(2, 9, 1200.0, 2.5)
    first, second = read_rows(tmp_path / "pace.jsonl")
    assert (first["step"], first["steps"], first["memory_gib"]) == (1, 9, 2.5)
    assert "tokens" not in first and second["tokens"] == 1200.0
    assert 0 <= second["at"] - first["at"] < 60
    assert abs(second["at"] - time.time()) < 60  # also of a run that another machine carries on
    Pace(tmp_path / "gone").note(1, 9, None, 2.5)  # a folder that was removed, or a full disk


def test_steps_within_one_second_have_moments_of_their_own(tmp_path, monkeypatch):
    clock = iter((1000.25, 1000.5004, 1001.0))
    monkeypatch.setattr(time, "time", lambda: next(clock))
    for step in (1, 2, 3):
        Pace(tmp_path).note(step, 9, None, 2.5)
    assert [row["at"] for row in read_rows(tmp_path / "pace.jsonl")] == [1000.25, 1000.5, 1001.0]


def test_a_dev_loss_of_nothing_is_known_to_the_run_that_carries_on(tmp_path):
    with Journal(tmp_path) as journal:
        for step, loss in ((1, 0.0), (2, None)):
            journal.add(step, {"loss": 1.0, "dev_loss": loss})
    with Journal(tmp_path) as journal:
        assert journal.dev == {1: 0.0}
