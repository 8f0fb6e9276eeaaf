"""What a turn earns beside the others of its group, by hand and for any numbers."""

from math import isfinite
from statistics import fmean, stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlite.environments.rollout_rewards import ScoredRollout, turn_advantages
from agentlite.environments.trajectories import ModelTurn, Trajectory


def rollout(score: float, *turns: tuple[str, int], sample: int = 0, ended: Any = "user"):
    """`turns`: the state that each begins in, and how many of its calls fail."""
    made = [
        ModelTurn("t", sample, n, "", "turn", 1, (("no", True),) * failed, state=state)
        for n, (state, failed) in enumerate(turns)
    ]
    one = Trajectory("t", sample, "", [], [], made, ended, {"env": score})
    counted = {"turns": len(made), "calls": one.calls, "failed_calls": one.failed_calls}
    return ScoredRollout(one, {"env": score, **counted} if ended != "world" else None)


WEIGHTS = {"env": 1.0, "turns": -0.1, "calls": 0.0, "failed_calls": -0.5}


def rounded(advantages):
    return [[round(one, 6) for one in of] for of in advantages]


def test_a_turn_is_compared_with_the_same_turn_of_the_others_by_what_comes_after():
    group = [
        rollout(1.0, ("a", 1), ("b", 0)),  # returns .3, .9
        rollout(1.0, ("a", 0), ("c", 0)),  # .8, .9
        rollout(0.0, ("a", 0)),  # -.1
    ]
    mean = (0.3 + 0.8 - 0.1) / 3
    assert rounded(turn_advantages(group, WEIGHTS, "turn", scaled=False)) == rounded(
        [[0.3 - mean, 0.0], [0.8 - mean, 0.0], [-0.1 - mean]]
    )


def test_a_state_is_compared_wherever_it_was_reached_and_the_whole_is_added():
    group = [
        rollout(1.0, ("a", 0), ("b", 0)),  # returns .8, .9
        rollout(0.0, ("a", 0), ("a", 0), ("b", 0)),  # -.3, -.2, -.1
    ]
    whole = 0.55  # of .8 and -.3
    at_a, at_b = fmean([0.8, -0.3, -0.2]), fmean([0.9, -0.1])
    assert rounded(turn_advantages(group, WEIGHTS, "state", scaled=False)) == rounded(
        [
            [whole + 0.8 - at_a, whole + 0.9 - at_b],
            [-whole - 0.3 - at_a, -whole - 0.2 - at_a, -whole - 0.1 - at_b],
        ]
    )


NUMBERS = st.floats(-4, 4).map(lambda number: round(number, 3))
GROUPS = st.lists(
    st.tuples(NUMBERS, st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=4)),
    min_size=1,
    max_size=5,
)


@given(GROUPS, st.sampled_from(["turn", "state"]), st.booleans())
def test_every_turn_has_a_finite_advantage_and_only_differences_count(made, credit, scaled):
    group = [rollout(score, *turns, sample=n) for n, (score, turns) in enumerate(made)]
    found = turn_advantages(group, WEIGHTS, credit, scaled)
    assert [len(of) for of in found] == [len(one.rollout.turns) for one in group]
    assert all(isfinite(one) for of in found for one in of)
    # what is added to every score changes nothing
    shifted = [rollout(score + 7, *turns, sample=n) for n, (score, turns) in enumerate(made)]
    again = turn_advantages(shifted, WEIGHTS, credit, scaled)
    for of, of_again in zip(found, again, strict=True):
        assert of == pytest.approx(of_again, abs=1e-6)


def scaled_by_hand(compared):
    """(x - mean) / (standard deviation + 1e-4), as TRL has it; one alone is not divided."""
    spread = stdev(compared) + 1e-4 if len(compared) > 1 else 1.0
    return [(one - fmean(compared)) / spread for one in compared]


@given(st.lists(NUMBERS, min_size=1, max_size=5))
def test_scaled_advantages_are_divided_by_the_spread_of_what_is_compared(scores):
    """Of rollouts of one turn each, which all began in one state: by turn and by state the same
    numbers are compared, and by state those of the whole rollouts are added.
    """
    group = [rollout(score, ("a", 0), sample=n) for n, score in enumerate(scores)]
    expected = scaled_by_hand(scores)
    for credit, times in (("turn", 1), ("state", 2)):
        found = turn_advantages(group, WEIGHTS, credit, scaled=True)
        for of, one in zip(found, expected, strict=True):
            assert of == pytest.approx([times * one], rel=1e-6, abs=1e-6)
