"""agentlite.scoring.metrics: what counts as right, how sure a figure is, and how figures are summed
up.
"""

import pytest

from agentlite.core.records import (
    Call,
    Gold,
    GoldCall,
    Parsed,
    Step,
    Tool,
)
from agentlite.scoring.metrics.call_timing import FIGURES, Decision, timing
from agentlite.scoring.metrics.confidence import paired_differences, wilson
from agentlite.scoring.metrics.dialogs import DialogCalls, step_efficiency
from agentlite.scoring.metrics.tool_calls import score_step

FIELDS = {
    "city": {"type": "string"},
    "days": {"type": "integer"},
    "stations": {"type": "array", "items": {"type": "string"}},
    "user": {"type": "object"},
}
PARAMETERS = {"type": "object", "properties": FIELDS, "required": ["city", "days"]}
TOOLS = (Tool("weather", "The weather to come.", PARAMETERS), Tool("stop", "Ends the dialog."))


@pytest.mark.parametrize(
    "call",
    [
        Call("forecast"),
        Call("weather", {"city": "Oslo"}),
        Call("weather", {"city": "Oslo", "days": "1"}),
        Call("weather", {"city": "Oslo", "days": True}),
        Call("weather", {"city": "Oslo", "days": 1, "wind": 1}),
        Call("weather", {"city": "Oslo", "days": 1, "stations": [1]}),
        Call("weather", {"city": "Oslo", "days": 1, "user": []}),
        Call("stop", {"now": True}),
    ],
    ids=str,
)
def test_a_call_that_does_not_fit_its_schema_is_not_compliant(call):
    gold = Gold((GoldCall("weather", {"city": ["Oslo"], "days": [3]}),))
    assert score_step(Parsed("", (call,)), gold, TOOLS)["format_compliance"] == 0.0


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


def steps(values, turns=1):
    return {Step(f"record {i // turns}", i % turns): value for i, value in enumerate(values)}


def test_a_paired_difference_is_that_of_the_second_over_the_first_on_common_steps():
    before, after = steps([0.0] * 50), steps([1.0] * 20 + [0.0] * 20)
    difference = paired_differences([(before, after)], 0)[0]
    assert (difference.mean, difference.count, difference.beyond_noise) == (0.5, 40, True)
    back = paired_differences([(after, before)], 0)[0]
    assert back.mean == -0.5 and (back.low, back.high) == pytest.approx(
        (-difference.high, -difference.low), abs=0.1
    )
    with pytest.raises(ValueError, match="no common steps"):
        paired_differences([(before, {})], 0)[0]


def test_timing_counts_unreadable_text_against_specificity():
    decisions = [Decision(True, True, True)] * 6 + [Decision(True, False, True)] * 2
    decisions += [Decision(False, True, True)] * 3 + [Decision(False, False, True)] * 4
    decisions += [Decision(False, False, False)]
    measured = timing(decisions, 0)
    expected = {
        "timing_precision": 6 / 9,
        "recall": 6 / 8,
        "specificity": 4 / 8,
        "balanced_accuracy": 5 / 8,
    }
    assert {name: measured[name].mean for name in expected} == pytest.approx(expected)
    assert measured["f1"].mean == pytest.approx(2 * (6 / 9) * (6 / 8) / (6 / 9 + 6 / 8))
    assert (measured["unreadable"], measured["count"]) == (1, 16)
    assert measured["timing_precision"].count == 9
    assert all(measured[name].low < measured[name].mean < measured[name].high for name in FIGURES)


@pytest.mark.parametrize(
    ("expected", "called", "efficiency"),
    [
        ([["f"], ["g"]], [["f"], ["g"]], 1.0),
        ([["f"], ["g"]], [["g", "f"], []], 1.0),  # in any order
        ([["f"], ["g"]], [["f", "f"], ["g", "h"]], 0.5),
        ([["f"], ["f"]], [["f"], []], 0.0),  # as often as expected, or nothing
        ([["f"], ["g"]], [["f"], ["h"]], 0.0),
    ],
)
def test_efficiency_is_the_calls_expected_by_those_made(expected, called, efficiency):
    assert step_efficiency(DialogCalls(expected, called, [])) == efficiency
