"""agentlite.engine.training_log: rows of steps, and what a report makes of them."""

import pytest

from agentlite.engine.training_log import mean, or_none


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
