"""A wrong answer is of one kind, the first that holds; a right one is of none."""

from typing import Any

import pytest
from support.samples import TIME, WEATHER

from agentlite.core.records import Call, Gold, GoldCall, Parsed, Tool
from agentlite.scoring.metrics.tool_calls import (
    NOTHING,
    TOO_LONG,
    UNANSWERED,
    wrong_kind,
)

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
TOOLS = (BOOK, WEATHER, TIME)
RIGHT: dict[str, Any] = {"city": "Oslo", "nights": 2, "rate": 0.05, "extras": ["bed"]}
GOLD = Gold(
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


def kind(calls: list[Call], gold: Gold = GOLD, problem: str = "", **rest: Any) -> str:
    return wrong_kind(Parsed("Well.", tuple(calls), problem), gold, TOOLS, **rest)


def without(*names: str, **changed: Any) -> Call:
    kept = {name: value for name, value in RIGHT.items() if name not in names}
    return Call("book", {**kept, **changed})


WRONG = [
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
    # several mistakes: the first kind in the order of KINDS
    (without("city", "nights", stars=3), "missing_required"),
    (without("nights", stars=3, rate="5 %"), "missing_optional"),
    (without(city="Rome", nights="2"), "wrong_type"),
    (without(city="Rome", nights=3), "other_text"),
]


@pytest.mark.parametrize(("call", "expected"), WRONG)
def test_a_call_is_wrong_in_the_first_way_that_holds(call: Call, expected: str) -> None:
    assert kind([call]) == expected


def test_whether_and_how_often_to_call_comes_before_arguments() -> None:
    assert kind([]) == "no_call"
    assert kind([without(), without()]) == kind([without(), Call("get_time")]) == "number_of_calls"
    assert kind([Call("get_time"), Call("get_weather")]) == "wrong_tool"
    assert kind([], Gold()) == ""
    assert kind([without()], Gold()) == "unwanted_call"
    two = Gold((*GOLD.calls, GoldCall("get_weather", {"city": ["Oslo"]})))
    weather = Call("get_weather", {"city": "Oslo"})
    assert kind([weather, without()], two) == ""  # calls of one turn have no order
    assert kind([weather], two) == "number_of_calls"
    assert kind([weather, Call("get_time")], two) == "wrong_tool"
    assert kind([Call("get_weather", {"city": "Rome"}), without()], two) == "other_text"


@pytest.mark.parametrize("problem", [NOTHING, TOO_LONG, UNANSWERED])
def test_a_text_that_cannot_be_read_is_not_looked_into(problem: str) -> None:
    assert kind([], problem=problem, finished=False) == "no_answer"
    assert kind([without()], problem="call not closed") == "unreadable"
    assert kind([without()], problem="call not closed", finished=False) == "cut_off"
    assert kind([], Gold(), problem="says nothing") == "unreadable"
