"""Which metrics apply to a step, what each says of an answer, what spelling is forgiven; and of
which one kind a wrong answer is.
"""

from typing import Any

import pytest
from support.samples import TIME, WEATHER

from agentlite.core.records import ANY_TOOL, Call, Gold, GoldCall, Parsed, Tool
from agentlite.scoring.metrics.step_metrics import (
    NO_PREDICTION,
    TOO_LONG,
    UNANSWERED,
    calls_right,
    score_step,
    wrong_kind,
)

OSLO, ROME = Call("get_weather", {"city": "Oslo"}), Call("get_weather", {"city": "Rome"})
CLOCK, UNKNOWN = Call("get_time", {"city": "Oslo"}), Call("fly", {})
ODD = Call("get_weather", {"city": 3})
DUE = Gold((GoldCall("get_weather", {"city": ["Oslo"]}),))
NAMES = ("tool_selection_accuracy", "exact_call", "call_decision", "format_compliance")


@pytest.mark.parametrize(
    ("gold", "calls", "problem", "values"),
    [
        (DUE, [OSLO], "", (1, 1, 1, 1)),
        (DUE, [OSLO], "torn", (0, 0, 1, 0)),
        (DUE, [ROME], "", (1, 0, 1, 1)),
        (DUE, [ODD], "", (1, 0, 1, 0)),
        (DUE, [CLOCK], "", (0, 0, 1, 1)),
        (DUE, [UNKNOWN], "", (0, 0, 1, 0)),
        (DUE, [OSLO, OSLO], "", (0, 0, 1, 1)),
        (DUE, [], "", (0, 0, 0, 1)),
        (DUE, [], "torn", (0, 0, 0, 0)),
        (Gold(), [], "", (None, None, 1, 1)),
        (Gold(), [], "torn", (None, None, 0, 0)),
        (Gold(), [OSLO], "", (None, None, 0, 1)),
        (Gold((GoldCall(ANY_TOOL, {}),)), [CLOCK], "", (None, None, 1, 1)),
        (Gold((GoldCall(ANY_TOOL, {}),)), [], "", (None, None, 0, 1)),
    ],
)
def test_a_step_has_the_metrics_that_apply_to_it(gold, calls, problem, values):
    found = score_step(Parsed("", tuple(calls), problem), gold, (WEATHER, TIME))
    expected = dict(zip(NAMES, values, strict=True))
    assert found == {name: value for name, value in expected.items() if value is not None}


FIELDS = {
    "city": {"type": "string"},
    "days": {"type": "integer"},
    "stations": {"type": "array", "items": {"type": "string"}},
    "user": {"type": "object"},
}
PARAMETERS = {"type": "object", "properties": FIELDS, "required": ["city", "days"]}
TOOLS = (Tool("book", "Books a room.", PARAMETERS), Tool("stop", "Ends the dialog."))


@pytest.mark.parametrize(
    "call",
    [
        Call("forecast"),
        Call("book", {"city": "Oslo"}),
        Call("book", {"city": "Oslo", "days": "1"}),
        Call("book", {"city": "Oslo", "days": True}),
        Call("book", {"city": "Oslo", "days": 1, "wind": 1}),
        Call("book", {"city": "Oslo", "days": 1, "stations": [1]}),
        Call("book", {"city": "Oslo", "days": 1, "user": []}),
        Call("stop", {"now": True}),
    ],
    ids=str,
)
def test_a_call_that_does_not_fit_its_schema_is_not_compliant(call):
    gold = Gold((GoldCall("book", {"city": ["Oslo"], "days": [3]}),))
    assert score_step(Parsed("", (call,)), gold, TOOLS)["format_compliance"] == 0.0


def test_each_expected_call_has_a_call_of_its_own_that_satisfies_it():
    either, only = (
        GoldCall("get_weather", {"city": cities}) for cities in (["Oslo", "Rome"], ["Rome"])
    )
    tools = (WEATHER,)
    for calls in ([OSLO, ROME], [ROME, OSLO]):
        for expected in ((either, only), (only, either)):
            assert calls_right(calls, Gold(expected), tools)
    assert not calls_right([OSLO, OSLO], Gold((either, only)), tools)


@pytest.mark.parametrize(
    ("value", "accepted", "is_right"),
    [
        ("new york", "New-York", True),
        ("2024/01/02", "2024-01-02", True),
        ("1,000", "1000", True),
        ("1.0", "1.0", True),
        (" 15 ", "15", True),
        ("1.5", "15", False),
        ("-5", "5", False),
        ("/", "-", False),
        ("", "-", False),
        ("2/3", "2*3", False),
        ("(2)-3", "(2)/3", False),
        ("2 * 3", "2*3", True),
        ("a*b", "ab", True),
        ("ab" + "-" * 22, "ab", True),  # twice as long, and 20 characters more
        ("ab" + " " * 23, "ab", False),
        ("a" * 50 + "." * 70, "a" * 50, True),
        ("a" * 50 + "." * 71, "a" * 50, False),
    ],
)
def test_punctuation_is_forgiven_in_a_text_unless_it_is_what_the_text_says(
    value, accepted, is_right
):
    gold = Gold((GoldCall("get_weather", {"city": [accepted]}),))
    for given, expected in ((value, gold), ([value], replaced(gold, [[accepted]]))):
        call = Call("get_weather", {"city": given})
        tool = Tool("get_weather", "", {"type": "object", "properties": {"city": {}}})
        assert calls_right([call], expected, (tool,)) is is_right


def replaced(gold, accepted):
    return Gold((GoldCall(gold.calls[0].name, {"city": accepted}),))


@pytest.mark.parametrize("accepted", [[5, "five"], ["five", 5]])
def test_accepted_values_of_several_types_are_right_where_no_type_is_declared(accepted):
    tool = Tool("get_weather", "", {"type": "object", "properties": {"city": {"anyOf": []}}})
    gold = Gold((GoldCall("get_weather", {"city": accepted}),))
    for value, is_right in ((5, True), ("five", True), (6, False), ("six", False), ([5], False)):
        call = Call("get_weather", {"city": value})
        assert calls_right([call], gold, (tool,)) is is_right


def test_an_argument_that_a_combined_schema_names_is_as_right_as_a_listed_one():
    more = {"properties": {"days": {"type": "integer"}}}
    tools = (Tool("f", "", {"type": "object", "properties": {"city": {}}, "allOf": [more]}),)
    gold = Gold((GoldCall("f", {"city": ["Oslo"], "days": [2]}),))
    for days, is_right in ((2, True), (3, False)):
        call = Call("f", {"city": "Oslo", "days": days})
        assert calls_right([call], gold, tools) is is_right


# --- The kind of a wrong answer: the first that holds ---

BOOK = Tool(
    "book",
    "Book a room.",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "nights": {"type": "integer"},
            "rate": {"type": "number"},
            "extras": {"type": "array", "items": {"type": "string"}},
            "late": {"type": "boolean"},
        },
        "required": ["city"],
    },
)
OFFERED = (BOOK, WEATHER, TIME)
RIGHT: dict[str, Any] = {"city": "Oslo", "nights": 2, "rate": 0.05, "extras": ["bed"]}
BOOKED = Gold(
    (
        GoldCall(
            "book",
            {
                "city": ["Oslo", "Oslo, Norway"],
                "nights": [2],
                "rate": [0.05],
                "extras": [["bed"]],
                "late": [False, ""],
            },
        ),
    )
)


def kind(calls: list[Call], gold: Gold = BOOKED, problem: str = "", **rest: Any) -> str:
    return wrong_kind(Parsed("Well.", tuple(calls), problem), gold, OFFERED, **rest)


def without(*names: str, **changed: Any) -> Call:
    kept = {name: value for name, value in RIGHT.items() if name not in names}
    return Call("book", {**kept, **changed})


KINDS = [
    (without(), ""),
    (without(city="oslo, norway", late=False), ""),
    (without("city"), "missing_required"),
    (without("nights"), "missing_optional"),
    (without(stars=3), "extra_parameter"),
    (without(nights="2"), "wrong_type"),
    (without(extras="bed"), "wrong_type"),
    (without(extras=[1]), "wrong_type"),
    (without(city="Rome"), "other_text"),
    (without(nights=3), "other_value"),
    (without(rate=5), "other_value"),
    (without(extras=["bed", "cot"]), "other_value"),
    (without(late=True), "other_value"),
    (Call("get_weather", {"city": "Oslo"}), "wrong_tool"),
    (Call("nowhere", {}), "wrong_tool"),
    # several mistakes: the first kind in the order of WRONG_KINDS
    (without("city", "nights", stars=3), "missing_required"),
    (without("nights", stars=3, rate="5 %"), "missing_optional"),
    (without(city="Rome", nights="2"), "wrong_type"),
    (without(city="Rome", nights=3), "other_text"),
]


@pytest.mark.parametrize(("call", "expected"), KINDS)
def test_a_call_is_wrong_in_the_first_way_that_holds(call: Call, expected: str) -> None:
    assert kind([call]) == expected


def test_whether_and_how_often_to_call_comes_before_arguments() -> None:
    assert kind([]) == "no_call"
    assert kind([without(), without()]) == kind([without(), Call("get_time")]) == "number_of_calls"
    assert kind([Call("get_time"), Call("get_weather")]) == "wrong_tool"
    assert kind([], Gold()) == ""
    assert kind([without()], Gold()) == "unwanted_call"
    two = Gold((*BOOKED.calls, GoldCall("get_weather", {"city": ["Oslo"]})))
    weather = Call("get_weather", {"city": "Oslo"})
    assert kind([weather, without()], two) == ""  # calls of one turn have no order
    assert kind([weather], two) == "number_of_calls"
    assert kind([weather, Call("get_time")], two) == "wrong_tool"
    assert kind([Call("get_weather", {"city": "Rome"}), without()], two) == "other_text"


@pytest.mark.parametrize("problem", [NO_PREDICTION, TOO_LONG, UNANSWERED])
def test_a_text_that_cannot_be_read_is_not_looked_into(problem: str) -> None:
    assert kind([], problem=problem, finished=False) == "no_answer"
    assert kind([without()], problem="call not closed") == "unreadable"
    assert kind([without()], problem="call not closed", finished=False) == "cut_off"
    assert kind([], Gold(), problem="says nothing") == "unreadable"
