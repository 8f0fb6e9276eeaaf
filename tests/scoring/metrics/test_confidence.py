"""Intervals and tests of significance at figures that can be worked out by hand."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlite.core.records import Step
from agentlite.scoring.metrics.confidence import (
    holm,
    paired_differences,
    sign_flip_p,
    summary,
    weighted_share,
    wilson,
)


def steps(values):
    return {Step(f"r{n}", 1): value for n, value in enumerate(values)}


# Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
@pytest.mark.parametrize(
    ("successes", "count", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_gives_the_published_values(successes, count, low, high):
    assert wilson(successes, count) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    [(0, 0, 1.0), (3, 3, 1.0), (1, 0, 1.0), (5, 0, 1 / 16), (6, 1, 16 / 128), (0, 8, 1 / 128)],
)
def test_of_one_step_a_record_p_is_mcnemars_twice_the_smaller_tail_of_what_changed(gained, lost, p):
    before = steps([0] * gained + [1] * lost + [0, 1, 1])
    after = steps([1] * gained + [0] * lost + [0, 1, 1])
    assert paired_differences([(before, after)], 0)[0].p == pytest.approx(p)
    assert paired_differences([(after, before)], 0)[0].p == pytest.approx(p)
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


def test_p_is_there_for_thousands_of_records_and_for_none_that_changed():
    assert sign_flip_p([1.0] * 2100 + [-1.0] * 2000, 0) == pytest.approx(0.122, abs=0.001)
    assert sign_flip_p([0.0] * 9, 0) == 1.0
    assert all(0 < sign_flip_p([size] * 500, 0) < 0.001 for size in (0.3, 3e6))


def test_holm_multiplies_the_smallest_by_all_and_the_next_by_one_less():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == []


def test_a_summary_has_the_deviation_of_the_sample_where_there_are_two():
    assert summary([0.25, 0.75], 0).std == pytest.approx(0.125**0.5)
    assert summary([0.0, 1.0], 0).std == pytest.approx(0.5**0.5)
    assert summary([0.25], 0).std is None and summary([0.25], 0).count == 1
    assert (summary([0.25], 0).low, summary([0.25], 0).high) == (0.25, 0.25)


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
    found = paired_differences([(before, after)], 0)[0]
    assert (found.mean, found.count) == (0.75, 4)
    assert (found.low, found.high) == (0.0, 1.0)  # either record may be drawn twice


@pytest.mark.parametrize(("sign", "count", "beyond"), [(1, 6, True), (-1, 6, True), (1, 5, False)])
def test_a_difference_to_either_side_is_beyond_noise_from_six_records_on(sign, count, beyond):
    zero = steps([0.0] * 20)
    changed = steps([float(sign)] * count + [0.0] * (20 - count))
    assert paired_differences([(zero, changed)], 0)[0].beyond_noise is beyond


def test_steps_that_only_one_has_are_left_out_and_without_common_ones_there_is_no_difference():
    before, after = steps([0.0] * 50), steps([1.0] * 20 + [0.0] * 20)
    difference = paired_differences([(before, after)], 0)[0]
    assert (difference.mean, difference.count, difference.beyond_noise) == (0.5, 40, True)
    with pytest.raises(ValueError, match="no common steps"):
        paired_differences([(before, {})], 0)
