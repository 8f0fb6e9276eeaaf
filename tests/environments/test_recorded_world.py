"""An equal call has its recorded answer, any other an error; the user says what is recorded."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlite.environments.recorded_world import RecordedWorld


def tool(name):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def world(*recorded, users=(), gold=None):
    """`recorded`: the name, the arguments and the result of each call."""
    made = RecordedWorld()
    made.reset(
        [tool("look"), tool("buy")],
        users,
        [{"name": name, "arguments": arguments} for name, arguments, _ in recorded],
        [result for *_, result in recorded],
        gold,
    )
    return made


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("look", {"at": "fig", "n": 1}, "two figs"),
        ("look", {"n": 1.0, "at": "fig"}, "two figs"),
        ("look", {"at": "fig", "n": True}, "Error: no answer is recorded for look"),
        ("look", {"at": "fig"}, "Error: no answer is recorded for look"),
        ("look", {"at": "fig", "n": 1, "m": None}, "Error: no answer is recorded for look"),
        ("buy", {"at": "fig", "n": 1}, "Error: no answer is recorded for buy"),
        ("buy", {}, "(no result was recorded)"),
        ("sell", {}, "Error: no tool sell. The tools: look, buy."),
    ],
)
def test_only_an_equal_call_is_answered(name, arguments, result):
    one = world(("look", {"at": "fig", "n": 1}, "two figs"), ("buy", {}, None))
    assert one.call(name, arguments).startswith(result)


def test_a_call_that_was_made_several_times_has_its_answers_in_order():
    one = world(*[("look", {}, text) for text in ("two", "one", "none")], ("buy", {}, "bought"))
    said = [one.call("look", {}), one.call("buy", {}), *(one.call("look", {}) for _ in range(3))]
    assert said == ["two", "bought", "one", "none", "none"]


def test_the_user_says_what_is_recorded_and_then_nothing():
    one = world(users=["And a pear?", ""])
    assert [one.next_user("Yes.") for _ in range(4)] == ["And a pear?", "", None, None]


def test_the_score_is_the_share_of_the_right_calls():
    look = {"name": "look", "arguments": {}}
    one = world(("look", {}, "two"), gold=[look, look])
    assert one.get_scores() == {"gold_calls": 0.0}
    one.call("look", {})
    assert one.get_scores() == {"gold_calls": 0.5}
    assert world(("look", {}, "two")).get_scores() == {}


ORDER = st.permutations(["look", "buy", "look", "sell", "user"])


@given(ORDER, ORDER)
def test_equal_states_answer_the_same_from_there_on(one, other):
    """Whatever was called in whatever order: what is done next has the same result."""
    worlds = [
        world(("look", {}, "two"), ("look", {}, "one"), ("buy", {}, "bought"), users=("More.",))
        for _ in range(2)
    ]
    for made, actions in zip(worlds, (one, other), strict=True):
        for action in actions[:3]:
            made.next_user("") if action == "user" else made.call(action, {})
    first, second = worlds
    assert json.dumps(first.state())
    if first.state() == second.state():
        for name in ("look", "buy", "look", "sell"):
            assert first.call(name, {}) == second.call(name, {})
        assert first.next_user("") == second.next_user("")


@given(ORDER, ORDER)
def test_the_same_answered_calls_in_any_order_are_the_same_place(one, other):
    """So `--credit state` compares turns that stand at one place."""
    worlds = [world(("look", {}, "two"), ("buy", {}, "bought"), users=("More.",)) for _ in range(2)]
    for made, actions in zip(worlds, (one, other), strict=True):
        for action in actions[:3]:
            made.next_user("") if action == "user" else made.call(action, {})
    # a tool that is not there changes nothing
    places = [sorted(action for action in of[:3] if action != "sell") for of in (one, other)]
    assert (worlds[0].state() == worlds[1].state()) is (places[0] == places[1])
