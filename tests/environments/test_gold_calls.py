"""The share of the right calls: whatever else is called, and in whatever order."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlite.core.records import Call, call_key
from agentlite.environments.mcp_world import gold_share

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=4,
)
CALLS = st.builds(
    lambda name, arguments: {"name": name, "arguments": arguments},
    st.sampled_from(["buy", "look"]),
    st.dictionaries(st.text(max_size=2), VALUES, max_size=2),
)


def shuffled(value):
    """The same JSON, written otherwise."""
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(value)}
    if isinstance(value, list):
        return [shuffled(one) for one in value]
    return float(value) if type(value) is int else value


@pytest.mark.long
@given(st.lists(CALLS, min_size=1, max_size=5), st.lists(CALLS, max_size=5), st.randoms())
def test_the_right_calls_are_found_among_others(gold, others, order: random.Random):
    made = [{"name": one["name"], "arguments": shuffled(one["arguments"])} for one in gold] + others
    order.shuffle(made)
    assert gold_share(gold, made) == 1.0
    # without one of them, the share is less, unless another call was the same
    first, *less = made
    needed, left = (
        sum(call_key(Call(**one)) == call_key(Call(**first)) for one in calls)
        for calls in (gold, less)
    )
    missing = int(left < needed)
    assert gold_share(gold, less) == pytest.approx(1 - missing / len(gold))


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), (0, False), (1, "1"), (None, {}), ([1, 2], [2, 1]), (1.5, 1), ("a", "A")],
)
def test_other_values_are_other_calls(one, other):
    first, second = ({"name": "buy", "arguments": {"item": value}} for value in (one, other))
    assert gold_share([first], [second]) == 0.0
