"""Faults planted into good dialogs are found, and good dialogs are left alone."""

import copy
import json

import pytest

from agentlite.core.records import Call, Tool
from agentlite.environments.synthesis.blueprint import Blueprint, PlannedCall, PlannedTurn
from agentlite.environments.synthesis.checks import faults, invented


def tool(name, description, **properties):
    parameters = {"type": "object", "properties": properties, "required": [*properties]}
    return Tool(name, description, parameters)


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
TOOLS = [
    tool("find_order", "Finds an order.", customer=TEXT),
    tool("cancel_order", "Cancels an order.", order_id=NUMBER),
    tool("send_mail", "Sends a mail.", address=TEXT),
]
FIND = PlannedCall(
    Call("find_order", {"customer": "Ann"}), '{"order_id": 7712, "items": ["lamp", "desk"]}'
)
CANCEL = PlannedCall(
    Call("cancel_order", {"order_id": 7712}), '{"status": "cancelled"}', {"order_id": 0}
)
NAMES = tuple(one.name for one in TOOLS)
PLAN = Blueprint("several_turns", "", (PlannedTurn((FIND,)), PlannedTurn((CANCEL,))), NAMES, "s2")


def user(words):
    return {"role": "user", "content": words}


def agent(words):
    return {"role": "assistant", "content": words}


def called(planned, number=0):
    call = planned.call
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    wire = {"id": f"c{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [wire]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": planned.result},
    ]


GOOD = [
    user("What did Ann order?"),
    *called(FIND),
    agent("Ann has order 7712, with 2 items: a lamp and a desk."),
    user("Please cancel it."),
    *called(CANCEL, 1),
    agent("Order 7,712 is cancelled."),
]


def kinds(messages, plan=PLAN, state="s2"):
    return {fault.kind for fault in faults(plan, messages, TOOLS, state)}


def changed(number, **parts):
    messages = copy.deepcopy(GOOD)
    messages[number] |= parts
    return messages


def test_a_good_dialog_has_no_fault():
    assert kinds(GOOD) == set()


@pytest.mark.parametrize(
    ("messages", "kind"),
    [
        (changed(3, content="Ann has order 7713, a lamp and a desk."), "invented result"),
        (changed(3, content="Ann has order 7712 and the code A77-x9."), "invented result"),
        (changed(3, content="Ann (ann@shop.example) has order 7712."), "invented result"),
        (changed(3, content="Ann has order 7712, a 'green chair'."), "invented result"),
        (changed(7, content="That failed: the order cannot be cancelled."), "contradiction"),
        (changed(0, content="Use find_order to find what Ann has."), "leaked goal"),
        (changed(7, content='{"name": "cancel_order", "argum'), "nonsense"),
        (changed(7, content="订单已取消，谢谢您的耐心等待"), "nonsense"),
        (GOOD[:6], "no answer"),
    ],
)
def test_words_that_nothing_supports_are_found(messages, kind):
    assert kind in kinds(messages)


def test_a_call_with_another_value_is_not_learned_and_the_planned_one_is_missed():
    other = PlannedCall(Call("cancel_order", {"order_id": 7713}), CANCEL.result)
    messages = [*GOOD[:5], *called(other, 1), GOOD[7]]
    found = {(one.kind, one.message) for one in faults(PLAN, messages, TOOLS, "s2")}
    assert found == {("extra call", 5), ("wrong call", None)}


def test_a_world_in_another_state_and_a_missing_result_are_wrong_calls():
    assert kinds(GOOD, state="s1") == {"wrong call"}
    without = [GOOD[0], agent("Ann has nothing."), *GOOD[4:]]
    assert "wrong call" in kinds(without)


def test_the_agent_has_to_ask_for_what_is_missing():
    plan = Blueprint(
        "missing_parameter", "", (PlannedTurn((FIND,), missing="customer"),), NAMES, "s2"
    )
    asks = [user("What was ordered?"), agent("By whom?"), user("Ann."), *GOOD[1:4]]
    assert kinds(asks, plan) == set()
    assert "did not ask" in kinds(GOOD[:4], plan)


def test_where_no_tool_fits_the_agent_has_to_say_so():
    plan = Blueprint("no_tool", "", (PlannedTurn((FIND,), refused=True),), NAMES[1:], "s2")
    assert kinds([user("What did Ann order?"), agent("I cannot look that up.")], plan) == set()
    assert "invented result" in kinds([user("What did Ann order?"), agent("A lamp.")], plan)
    guess = [user("What did Ann order?"), *called(CANCEL), agent("I cannot see it.")]
    assert "call without need" in kinds(guess, plan)


RESULT = '{"price": 666.6666, "share": 0.67, "total": 12345, "kinds": [1, 2, 4], "by": "ann@a.ex"}'


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("666.67 or 667, of 12,345 and 12345.0", []),
        ("666.66", ["666.66"]),
        ("67.0 % of 5 by ann@a.ex", []),  # five values
        ("bob@a.ex and ANN@A.EX", ["bob@a.ex"]),
        ('"a lamp" and “a desk”', ["a lamp", "a desk"]),
        ("7) seven\n8. eight, 9. nine", ["9"]),
    ],
)
def test_what_was_named_nowhere_is_invented(words, found):
    assert sorted(invented(words, [RESULT, "Ask Ann."])) == sorted(found)
