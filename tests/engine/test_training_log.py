"""metrics.jsonl: the rows of steps, and what a report makes of them."""

import time

import pytest

from agentlite.core.row_files import read_rows
from agentlite.engine.watch import Journal, mean


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


def test_the_pace_is_a_row_for_each_step_and_stops_nothing(tmp_path):
    journal = Journal(tmp_path)
    journal.note_pace(1, 9)
    journal.note_pace(2, 9)
    first, second = read_rows(tmp_path / "pace.jsonl")
    assert (first["step"], first["steps"], second["step"]) == (1, 9, 2)
    assert 0 <= second["at"] - first["at"] < 60
    assert abs(second["at"] - time.time()) < 60  # also of a run that another machine carries on
    journal.folder = tmp_path / "gone"  # a folder that was removed, or a full disk
    journal.note_pace(3, 9)
