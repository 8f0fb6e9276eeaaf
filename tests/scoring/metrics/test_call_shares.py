"""Whether to call, and micro figures of calls, by counts made by hand."""

import pytest

from agentlite.core.records import Call, Gold, GoldCall, Tool
from agentlite.scoring.metrics.call_shares import SHARES, TIMING, count_calls, count_timing, timing
from agentlite.scoring.metrics.confidence import ratios

FIELDS = {"city": {"type": "string"}, "days": {"type": "integer"}, "user": {"type": "object"}}
WEATHER = Tool("weather", "", {"type": "object", "properties": FIELDS, "required": ["city"]})
TIME = Tool("time", "", {"type": "object", "properties": {"city": {"type": "string"}}})
TOOLS = (WEATHER, TIME)
DUE = Gold(
    (
        GoldCall(
            "weather", {"city": ["Oslo", "oslo"], "days": [3], "user": ["", {"name": ["Kari"]}]}
        ),
    )
)


def answer(*calls, gold=DUE, earlier=()):
    return count_calls(calls, gold, TOOLS, earlier)


def tool_metrics(answers):
    return ratios(answers, SHARES, 0)


def figures(*answers):
    return {name: figure and figure.mean for name, figure in tool_metrics(answers).items()}


def decided(expected, called, problem=""):
    """A step at which a call is expected or not, and made or not."""
    calls = [Call("weather", {"city": "Oslo"})] if called else []
    return count_timing(calls, DUE if expected else Gold(), problem)


def test_timing_counts_unreadable_text_against_specificity():
    steps = [decided(True, True)] * 6 + [decided(True, False)] * 2
    steps += [decided(False, True)] * 3 + [decided(False, False)] * 4
    measured = timing([*steps, decided(False, False, "torn")], 0)
    expected = {
        "timing_precision": 6 / 9,
        "recall": 6 / 8,
        "specificity": 4 / 8,
        "balanced_accuracy": 5 / 8,
        "f1": 12 / 17,
    }
    assert {name: measured[name].mean for name in expected} == pytest.approx(expected)
    assert measured["count"] == 16
    assert (measured["timing_precision"].count, measured["f1"].count) == (9, 16)
    assert all(measured[name].low < measured[name].mean < measured[name].high for name in TIMING)
    silent = timing([decided(False, False)] * 3, 0)
    assert [name for name in TIMING if silent[name]] == ["specificity"]
    called = timing([decided(True, True, "torn")] * 3, 0)
    assert [name for name in TIMING if called[name]] == ["timing_precision", "recall", "f1"]


def test_counts_are_summed_before_they_are_divided():
    answers = [
        answer(Call("weather", {"city": "Oslo", "days": 4})),  # 1 of 1 names, 1 of 2 parameters
        answer(Call("time", {"city": "Oslo"}), Call("sing")),  # no name, no parameter is right
        answer(),
        answer(Call("time", {}), gold=Gold()),
    ]
    assert figures(*answers) == {
        "name_precision": 1 / 4,
        "name_recall": 1 / 3,
        "name_f1": 2 / 7,
        "parameter_precision": 1 / 3,
        "parameter_recall": 1 / 6,
        "parameter_f1": 2 / 9,
        "schema_validity": 1.0,
        "hallucinated_tools": 1 / 4,
        "repeated_calls": 0.0,
    }
    assert {name: figure.count for name, figure in tool_metrics(answers).items()} == {
        "name_precision": 4,
        "name_recall": 3,
        "name_f1": 7,
        "parameter_precision": 3,
        "parameter_recall": 6,
        "parameter_f1": 9,
        "schema_validity": 3,
        "hallucinated_tools": 4,
        "repeated_calls": 4,
    }


@pytest.mark.parametrize(
    ("value", "accepted", "agrees"),
    [
        ({"name": "Kari"}, {"name": ["Kari"]}, True),
        ({"name": "Kari", "age": 3}, {"name": ["Kari"]}, False),  # a key too many
        ({"name": "Ola"}, {"name": ["Kari", ""]}, False),
        ({}, {"name": ["Kari", ""]}, True),
        ({}, {"name": ["Kari"]}, False),
        ({"name": ["Kari"]}, {"name": ["Kari"]}, True),  # the accepted object itself
        ([1, 2], [1], False),
        ([1], [1, 2], False),
        ([1, "b"], ["1", "b"], True),
        ([[1.0]], [[1]], True),
        (60, 60.0, True),
        (True, 1, False),
        (2.5, "2.5", True),
        (None, "null", True),
    ],
)
def test_a_value_agrees_in_all_its_parts(value, accepted, agrees):
    gold = Gold((GoldCall("weather", {"user": [accepted]}),))
    found = answer(Call("weather", {"user": value}), gold=gold)
    assert (found.supplied, found.needed, found.agreeing) == (1, 1, int(agrees))


def test_due_calls_of_one_tool_take_the_calls_that_agree_most():
    gold = Gold(tuple(GoldCall("time", {"city": [city]}) for city in ("Oslo", "Lyon")))
    assert figures(
        answer(Call("time", {"city": "Lyon"}), Call("time", {"city": "Oslo"}), gold=gold)
    ) == figures(answer(Call("time", {"city": "Oslo"}), Call("time", {"city": "Lyon"}), gold=gold))


def test_a_call_made_again_is_repeated_unless_it_is_due_again():
    call = Call("time", {"city": "Oslo"})
    gold, other = (GoldCall("time", {"city": [city]}) for city in ("Oslo", "Rome"))
    repeated = {
        "once": answer(call),
        "twice": answer(call, call),
        "twice where it is due twice": answer(call, call, gold=Gold((gold, gold))),
        "twice where another is due too": answer(call, call, gold=Gold((gold, other))),
        "made before": answer(call, earlier=(call,)),
        "made before and due": answer(call, gold=Gold((gold,)), earlier=(call,)),
    }
    assert [one.repeated for one in repeated.values()] == [0, 1, 0, 1, 1, 0]


def test_without_calls_nothing_is_measured_and_no_figure_is_0_or_1():
    assert set(figures(answer(gold=Gold())).values()) == {None}
    assert tool_metrics([]) == dict.fromkeys(SHARES)
    silent = figures(answer())
    assert silent["name_precision"] is None and silent["name_recall"] == 0
    assert silent["name_f1"] == silent["parameter_f1"] == 0
    unwanted = figures(answer(Call("time", {"city": "Oslo"}), gold=Gold()))
    assert unwanted["name_f1"] == unwanted["parameter_f1"] == 0
    assert unwanted["name_recall"] is None and unwanted["name_precision"] == 0
