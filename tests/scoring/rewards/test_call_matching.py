"""Which call is assigned to which expected one, how well it fits, and the default weights."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlite.core.records import Call, Gold, GoldCall, Parsed, Tool
from agentlite.scoring.rewards import WEIGHTS, Attempt, TraceStep, score_attempt
from agentlite.scoring.rewards.call_matching import assign, fit, needed
from agentlite.scoring.rewards.user_functions import UserFunctions


def test_the_default_weights_are_those_of_the_documentation():
    assert WEIGHTS == {
        "task_completion": 0.40,
        "tool_accuracy": 0.25,
        "efficiency": 0.15,
        "timing_quality": 0.10,
        "format_compliance": 0.10,
        "arguments": 0.0,
        "exact": 0.0,
        "wrong_tool": -0.3,
        "redundant_call": -0.2,
        "format_error": -0.1,
        "timeout": -0.5,
        "missed_call": -0.3,
        "excess_text": -0.1,
    }


def best(worth):
    """The highest sum of any assignment, by trying all."""
    rows, columns = len(worth), len(worth[0])
    if rows < columns:
        return best([*zip(*worth, strict=True)])
    return max(
        sum(worth[row][column] for column, row in enumerate(chosen))
        for chosen in permutations(range(rows), columns)
    )


tables = st.integers(1, 5).flatmap(
    lambda columns: st.lists(
        st.lists(st.sampled_from([0, 0.25, 0.5, 1]), min_size=columns, max_size=columns),
        min_size=1,
        max_size=5,
    )
)


@given(tables)
def test_an_assignment_is_the_best_there_is_and_takes_nothing_twice(worth):
    pairs = assign(worth)
    assert sum(worth[row][column] for row, column in pairs) == best(worth)
    assert all(worth[row][column] for row, column in pairs)
    assert len({row for row, _ in pairs}) == len({column for _, column in pairs}) == len(pairs)


@pytest.mark.parametrize(("count", "earned"), [(2, 4), (6, 8), (7, 8)])
def test_up_to_six_calls_are_assigned_at_their_best_and_more_one_after_the_other(count, earned):
    """The first row takes 3 where it is greedy, and leaves 0 to the second: 3 instead of 4."""
    worth = [[0.0] * count for _ in range(count)]
    worth[0][:2], worth[1][:2] = [3.0, 2.0], [2.0, 0.0]
    for n in range(2, count):
        worth[n][n] = 1.0
    assert sum(worth[row][column] for row, column in assign(worth)) == earned
    longer = [*worth, [0.0] * count]  # the shorter side counts
    assert sum(longer[row][column] for row, column in assign(longer)) == earned
    assert sorted((column, row) for row, column in assign([*zip(*longer, strict=True)])) == sorted(
        assign(longer)
    )


@pytest.mark.parametrize("worth", [[], [[0.0]], [[0.0, 0.0]]])
def test_what_is_worth_nothing_is_not_assigned(worth):
    assert assign(worth) == []


SCHEMA = {
    "type": "object",
    "properties": {name: {"type": "integer"} for name in ("a", "b", "c")},
    "required": ["a", "c"],
}
EXPECTED = GoldCall("f", {"a": [1], "b": ["", 2]})


@pytest.mark.parametrize(
    ("given_", "counts", "grade", "strict"),
    [
        # right, given, named, missing, casts
        ({"a": 1, "c": 3}, (1, 2, 1, 0, 0), 1 / 2, False),  # the gold has no c
        ({"a": 1}, (1, 1, 1, 1, 0), 1 / 2, False),
        ({"a": "1", "b": 2}, (2, 2, 2, 1, 1), 2 / 3, False),
        ({}, (0, 0, 0, 2, 0), 0, False),
        ({"a": 9, "b": "x"}, (0, 2, 2, 1, 0), 0, False),
    ],
)
def test_a_call_is_counted_against_an_expected_one(given_, counts, grade, strict):
    found = fit(Call("f", given_), EXPECTED, SCHEMA)
    assert tuple(found)[:5] == counts and found.problem
    assert found.grade == pytest.approx(grade) and found.strict is strict


def test_a_call_is_strictly_right_without_a_problem_and_without_a_cast():
    right, cast = (
        fit(Call("f", {"a": a}), EXPECTED, {"properties": SCHEMA["properties"]}) for a in (1, "1")
    )
    assert (right.strict, right.grade, right.problem) == (True, 1.0, "")
    assert (cast.strict, cast.grade, cast.problem, cast.casts) == (False, 1.0, "", 1)
    assert needed(EXPECTED, SCHEMA) == ["a", "c"] and needed(EXPECTED, {}) == ["a"]


def test_where_the_gold_has_a_number_of_steps_it_goes_before_five():
    tool = Tool("f", "", {"type": "object"})
    call = Call("f", {})
    steps = tuple(TraceStep(Call("f", {"x": n}) if n else call, True) for n in range(4))
    for optimal, efficiency in ((None, 1.0), (3, 3 / 4), (2, 1 / 2)):
        gold = Gold((GoldCall("f", {}),), optimal)
        found = score_attempt(Attempt(Parsed("Done."), gold, (tool,), trace=steps))
        assert found.components["efficiency"] == pytest.approx(efficiency)


def test_a_function_has_ten_seconds_unless_told_otherwise():
    assert (UserFunctions([]).code.seconds, UserFunctions([], 0.5).code.seconds) == (10.0, 0.5)
