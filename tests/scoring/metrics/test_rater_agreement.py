"""Krippendorff's alpha by hand, and its interval."""

from functools import partial

import pytest

from agentlite.scoring.metrics import rater_agreement
from agentlite.scoring.metrics.confidence import redrawn
from agentlite.scoring.metrics.rater_agreement import agreement, alpha


def test_an_interval_leaves_out_the_draws_in_which_all_values_are_one():
    found = agreement([[0, 0], [5, 5], [3]], seed=0)
    for figure in found.values():
        assert (figure.mean, figure.low, figure.high, figure.count) == (1.0, 1.0, 1.0, 2)
        assert (figure.std, figure.interval) == (None, "bootstrap")
    assert agreement([[4, 4], [4, 4]], seed=0) == {"ordinal": None, "interval": None}
    assert agreement([[4], []], seed=0) == {"ordinal": None, "interval": None}


def test_the_order_of_units_and_raters_changes_no_interval_and_the_seed_does(monkeypatch):
    monkeypatch.setattr(rater_agreement, "redrawn", partial(redrawn, resamples=50))
    units = [[0, 1], [5, 4, 5], [3, 3], [2, 5], [1, 1], [4, 0]]
    found = agreement(units, seed=1)
    assert agreement([one[::-1] for one in units[::-1]], seed=1) == found != agreement(units, 2)


def test_alpha_is_one_less_observed_over_expected_disagreement():
    """Of 1 1, 1 2, 2 2: two of six ordered pairs disagree; of all pairs of three 1 and three 2, 18
    of 30 do."""
    assert alpha([[1, 1], [1, 2], [2, 2]], "interval") == pytest.approx(1 - (2 / 6) / (18 / 30))
    assert alpha([[1, 1], [1, 2], [2, 2]], "ordinal") == pytest.approx(1 - (2 / 6) / (18 / 30))
    # values of three raters weigh half: each is in two pairs
    three = alpha([[1, 1, 1], [2, 2, 2], [1, 2, 2]], "interval")
    assert three == pytest.approx(1 - (2 * 2 / 2 / 9) / (2 * 4 * 5 / 72))


def test_a_wider_disagreement_costs_more_and_by_rank_no_more_than_there_are_values_between():
    near, far = ([[0, 0], [5, 5], [0, other]] for other in (1, 5))
    assert alpha(near, "interval") > alpha(far, "interval")
    # by rank 0 and 1, or 0 and 5, are as far apart where nobody gave a value between
    one, other = ([[0, 0], [wide, wide], [0, wide]] for wide in (1, 5))
    assert alpha(one, "ordinal") == pytest.approx(alpha(other, "ordinal"))
    assert alpha(one, "interval") == pytest.approx(alpha(other, "interval"))
