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
from agentlite.scoring.metrics.call_timing import Decision, timing
from agentlite.scoring.metrics.confidence import paired_differences, wilson
from agentlite.scoring.metrics.dialogs import DialogCalls, step_efficiency
from agentlite.scoring.metrics.tool_calls import call_problem, score_step

FIELDS = {
    "city": {"type": "string"},
    "days": {"type": "integer"},
    "radius": {"type": "number"},
    "hourly": {"type": "boolean"},
    "stations": {"type": "array", "items": {"type": "string"}},
    "levels": {"type": "array", "items": {"type": "number"}},
    "filters": {"type": "array", "items": {"type": "object"}},
    "user": {"type": "object"},
    "unit": {"type": "string"},
}
WEATHER = Tool(
    "weather",
    "The weather to come.",
    {"type": "object", "properties": FIELDS, "required": ["city", "days"]},
)
STOP = Tool("stop", "Ends the dialog.")
TOOLS = (WEATHER, STOP)
GOLD = GoldCall(
    "weather",
    {
        "city": ["Oslo, Norway", "Oslo", "the 'old' town"],
        "days": [3],
        "radius": [5.0],
        "hourly": [True],
        "stations": [["Blindern", "St. Hanshaugen"]],
        "levels": [[1.0, 1.5]],
        "filters": [
            [{"field": ["wind"], "above": [10, 10.0]}, {"field": ["rain"], "above": ["", 0]}]
        ],
        "user": [{"name": ["Kari"], "age": ["", 30]}],
        "unit": ["", "metric"],
    },
)
RIGHT = {
    "city": "Oslo",
    "days": 3,
    "radius": 5.0,
    "hourly": True,
    "stations": ["Blindern", "St. Hanshaugen"],
    "levels": [1.0, 1.5],
    "filters": [{"field": "wind", "above": 10}, {"field": "rain"}],
    "user": {"name": "Kari"},
}

ALSO_RIGHT = {
    "another accepted value": {"city": "Oslo, Norway"},
    "other case, blanks and stops": {"city": "OSLO Norway."},
    "other quotes": {"city": 'The "old" town'},
    "int for a float": {"radius": 5},
    "what may be left out, given": {"unit": "Metric", "user": {"name": "KARI", "age": 30}},
    "elements spelled otherwise": {"stations": ["blindern", "St-Hanshaugen"]},
}
WRONG = {
    "another value": {"city": "Bergen"},
    "another number": {"days": 4},
    "number as text": {"days": "3"},
    "float for an int": {"days": 3.0},
    "int for a bool": {"hourly": 1},
    "bool for an int": {"days": True},
    "null": {"city": None},
    "a list around it": {"city": ["Oslo"]},
    "reordered list": {"stations": ["St. Hanshaugen", "Blindern"]},
    "shorter list": {"stations": ["Blindern"]},
    "longer list": {"stations": ["Blindern", "St. Hanshaugen", "Blindern"]},
    "elements of another type": {"levels": [True, 1.5]},
    "reordered objects": {"filters": RIGHT["filters"][::-1]},
    "one object less": {"filters": RIGHT["filters"][:1]},
    "wrong value in an object of a list": {
        "filters": [{"field": "wind", "above": 11}, {"field": "rain"}]
    },
    "no object in a list of objects": {"filters": ["wind", "rain"]},
    "unknown key": {"user": {"name": "Kari", "height": 180}},
    "missing key": {"user": {"age": 30}},
    "wrong value of a key": {"user": {"name": "Ola"}},
    "extra parameter": {"language": "en"},
    "wrong value of what may be left out": {"unit": "kelvin"},
}


def test_our_verdicts_are_those_of_the_bfcl_package():
    reason = "bfcl_eval is not installed with what its checker imports"
    checker = pytest.importorskip(
        "bfcl_eval.eval_checker.ast_eval.ast_checker", reason=reason, exc_type=ImportError
    )
    names = {"object": "dict", "number": "float"}
    theirs = {"name": "weather", "parameters": in_their_words(WEATHER.parameters, names)}
    for change in [{}, *ALSO_RIGHT.values(), *WRONG.values()]:
        arguments = RIGHT | change
        verdict = checker.simple_function_checker(
            theirs,
            {"weather": arguments},
            {"weather": GOLD.arguments},
            checker.Language.PYTHON,
            "gpt-4o-2024-11-20",
        )
        assert verdict["valid"] == (
            call_problem(Call("weather", arguments), GOLD, WEATHER) == ""
        ), change


def in_their_words(schema, names):
    if isinstance(schema, dict):
        return {key: in_their_words(inner, names) for key, inner in schema.items()}
    return names.get(schema, schema) if isinstance(schema, str) else schema


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
    assert score_step(Parsed("", (call,)), Gold((GOLD,)), TOOLS)["format_compliance"] == 0.0


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
    assert {name: getattr(measured, name).mean for name in expected} == pytest.approx(expected)
    assert measured.f1.mean == pytest.approx(2 * (6 / 9) * (6 / 8) / (6 / 9 + 6 / 8))
    assert (measured.unreadable, measured.count, measured.timing_precision.count) == (
        1,
        16,
        9,
    )
    assert all(
        getattr(measured, name).low < getattr(measured, name).mean < getattr(measured, name).high
        for name in (*expected, "f1")
    )


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
