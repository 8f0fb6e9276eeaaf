"""Intervals and tests of significance at figures that can be worked out by hand."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlite.core.records import Step
from agentlite.scoring.metrics.confidence import (
    bootstrap,
    holm,
    middle,
    paired_difference,
    redrawn,
    redrawn_sums,
    sign_flip_p,
    summary,
    weighted_share,
    wilson,
)


def steps(values):
    return {Step(f"r{n}", 1): value for n, value in enumerate(values)}


@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    [(0, 0, 1.0), (3, 3, 1.0), (1, 0, 1.0), (5, 0, 1 / 16), (6, 1, 16 / 128), (0, 8, 1 / 128)],
)
def test_of_one_step_a_record_p_is_mcnemars_twice_the_smaller_tail_of_what_changed(gained, lost, p):
    before = steps([0] * gained + [1] * lost + [0, 1, 1])
    after = steps([1] * gained + [0] * lost + [0, 1, 1])
    assert paired_difference(before, after, 0).p == pytest.approx(p)
    assert paired_difference(after, before, 0).p == pytest.approx(p)
    coins = product((0, 1), repeat=gained + lost)
    as_far = [sum(one) for one in coins]
    far = [n for n in as_far if min(n, gained + lost - n) <= min(gained, lost)]
    assert len(far) / len(as_far) == pytest.approx(p)


@pytest.mark.parametrize("changes", [[3, 1, -1], [2, 2, 1, -1, 0], [0.5, 0.25, 0.25], [0.1] * 8])
def test_p_is_the_share_of_flips_of_signs_with_a_sum_as_far_from_zero(changes):
    every = [
        sum(sign * change for sign, change in zip(signs, changes, strict=True))
        for signs in product((-1, 1), repeat=len(changes))
    ]
    share = sum(abs(one) >= abs(sum(changes)) - 1e-9 for one in every) / len(every)
    drawn = any(not float(change).is_integer() for change in changes)
    assert sign_flip_p(changes, 0) == pytest.approx(share, abs=0.02 if drawn else 1e-12)


@pytest.mark.parametrize("size", [*(n / 10 for n in range(1, 10)), 1 / 3, 2 / 7])
def test_that_sums_of_floats_are_rounded_makes_no_flip_less_far_from_zero(size):
    # all to one side: only the two flips of every sign are as far, also where the sum added up
    # one by one is a little more than the product
    for count in range(1, 8):
        assert sign_flip_p([size] * count, 0) == pytest.approx(2 / 2**count, abs=0.02)
        assert sign_flip_p([size, 2 * size] * count, 0) == pytest.approx(2 / 4**count, abs=0.02)


def test_p_is_there_for_thousands_of_records_and_for_none_that_changed():
    assert sign_flip_p([1.0] * 2100 + [-1.0] * 2000, 0) == pytest.approx(0.122, abs=0.001)
    assert sign_flip_p([0.0] * 9, 0) == 1.0
    assert 0 < sign_flip_p([0.3] * 500, 0) < 0.001


def test_holm_multiplies_the_smallest_by_all_and_the_next_by_one_less():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == []


def test_an_interval_leaves_out_a_40th_at_each_end():
    assert middle(range(1001)) == (25, 975)
    assert middle(reversed(range(41))) == (1, 39)


@pytest.mark.parametrize("resamples", [1, 99, 100, 250, 2000])
def test_as_many_resamples_are_drawn_as_are_asked_for_and_each_has_as_many_rows(resamples):
    drawn = redrawn_sums([(1.0, 0.0), (1.0, 1.0), (1.0, 4.0)], 0, resamples).tolist()
    assert len(drawn) == resamples
    assert all(count == 3 and 0 <= total <= 12 for count, total in drawn)
    assert [len(one) for one in redrawn("abc", 0, resamples)] == [3] * resamples


def test_two_thousand_are_drawn_unless_another_number_is_given():
    assert len(redrawn_sums([(1.0,)], 0)) == len(list(redrawn("a", 0))) == 2000
    assert bootstrap([0.0, 0.5, 1.0], 3) == bootstrap([1.0, 0.0, 0.5], 3, 2000)


def test_rows_are_drawn_alike_however_often_they_occur():
    rows = [(0.0,)] * 3 + [(1.0,)]
    drawn = redrawn_sums(rows, 0, 4000)[:, 0].tolist()
    assert sum(drawn) / len(drawn) == pytest.approx(1, abs=0.05)
    # binomial of 4 draws with a chance of 1/4: the variance is 3/4
    assert sum((one - 1) ** 2 for one in drawn) / len(drawn) == pytest.approx(0.75, abs=0.06)
    with pytest.raises(ValueError, match="nothing to draw from"):
        redrawn_sums([], 0)


def test_a_summary_has_the_deviation_of_the_sample_where_there_are_two():
    assert summary([0.25, 0.75], 0).std == pytest.approx(0.125**0.5)
    assert summary([0.0, 1.0], 0).std == pytest.approx(0.5**0.5)
    assert summary([0.25], 0).std is None and summary([0.25], 0).count == 1
    assert (summary([0.25], 0).low, summary([0.25], 0).high) == (0.25, 0.25)


def test_wilson_reaches_the_ends_only_at_the_ends():
    assert wilson(0, 0) == (0, 1)
    assert wilson(0, 5).low == 0 < wilson(1, 5).low
    assert wilson(5, 5).high == 1 > wilson(4, 5).high


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.5, 1.0, 3.0]),
            st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=12),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_a_weighted_share_of_one_part_is_wilsons_and_that_of_the_wrong_ones_its_mirror(parts):
    for weight, values in parts:
        alone = weighted_share([(weight, values)])
        expected = wilson(round(sum(values)), len(values))
        assert (alone.low, alone.high) == pytest.approx(expected)
    right = weighted_share(parts)
    wrong = weighted_share([(weight, [1 - one for one in values]) for weight, values in parts])
    assert (wrong.low, wrong.mean, wrong.high) == pytest.approx(
        (1 - right.high, 1 - right.mean, 1 - right.low)
    )


def test_a_difference_is_weighed_by_steps_and_drawn_by_records():
    before = {Step("a", n): 0.0 for n in range(3)} | {Step("b", 0): 0.0}
    after = {Step("a", n): 1.0 for n in range(3)} | {Step("b", 0): 0.0, Step("c", 0): 1.0}
    found = paired_difference(before, after, 0)
    assert (found.mean, found.count) == (0.75, 4)
    assert (found.low, found.high) == (0.0, 1.0)  # either record may be drawn twice


@pytest.mark.parametrize(("sign", "count", "beyond"), [(1, 6, True), (-1, 6, True), (1, 5, False)])
def test_a_difference_to_either_side_is_beyond_noise_from_six_records_on(sign, count, beyond):
    zero = steps([0.0] * 20)
    changed = steps([float(sign)] * count + [0.0] * (20 - count))
    assert paired_difference(zero, changed, 0).beyond_noise is beyond


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_interval_that_touches_zero_is_within_noise(sign):
    zero = steps([0.5] * 40)
    changed = steps([0.5 + sign / 2] * 8 + [0.5 - sign / 2] * 2 + [0.5] * 30)
    found = paired_difference(zero, changed, 0)
    assert 0.0 in (found.low, found.high) and found.mean == pytest.approx(0.075 * sign)
    assert not found.beyond_noise
