"""Faults planted into good dialogs are found, and good dialogs are left alone."""

import copy
import json
from itertools import product

import pytest

from agentlite.core.records import Call, Tool
from agentlite.environments.making.blueprint import Blueprint, PlannedTurn, _misspelt
from agentlite.environments.making.checks import Replay, copy_key, faults, invented
from agentlite.environments.making.walk import PlannedCall


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


def replay(messages, state="s2"):
    return Replay([one["content"] for one in messages if one["role"] == "tool"], state)


def kinds(messages, plan=PLAN, known=None):
    return {fault.kind for fault in faults(plan, messages, TOOLS, known or replay(messages))}


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


@pytest.mark.parametrize(
    "ends", [*product((True, False), repeat=1), *product((True, False), repeat=2)]
)
@pytest.mark.parametrize("says", ["Ann has it.", "That has been found.", "One of them failed."])
def test_words_contradict_a_last_call_that_failed_or_calls_that_none_of_failed(ends, says):
    """`ends`: of each call before the words, whether it succeeded."""
    results = ['{"found": "lamp"}' if good else '{"error": "no such order"}' for good in ends]
    calls = [called(PlannedCall(FIND.call, result), n) for n, result in enumerate(results)]
    messages = [GOOD[0], *(message for call in calls for message in call), agent(says)]
    wrong = (not ends[-1] and "has been" in says) or (all(ends) and "failed" in says)
    assert ("contradiction" in kinds(messages)) == wrong


def test_a_world_in_another_state_and_a_missing_result_are_wrong_calls():
    assert kinds(GOOD, known=replay(GOOD, "s1")) == {"wrong call"}
    without = [GOOD[0], agent("Ann has nothing."), *GOOD[4:]]
    assert "wrong call" in kinds(without)


def test_a_planned_call_is_made_with_its_arguments_even_if_the_world_cannot_tell():
    other = PlannedCall(Call("find_order", {"customer": "Anna"}), FIND.result)
    messages = [GOOD[0], *called(other), *GOOD[3:]]
    assert kinds(messages) == {"wrong call", "extra call"}


def test_an_argument_more_is_no_other_call():
    more = PlannedCall(Call("find_order", {"customer": "Ann", "limit": 5}), FIND.result)
    tools = [tool("find_order", "", customer=TEXT, limit=NUMBER), *TOOLS[1:]]
    messages = [GOOD[0], *called(more), *GOOD[3:]]
    assert faults(PLAN, messages, tools, replay(messages)) == []


def test_results_that_a_fresh_world_does_not_return_are_invented():
    assert kinds(GOOD, known=replay(changed(6, content='{"status": "gone"}'))) == {
        "invented result"
    }


def test_a_planned_call_that_was_not_made_is_named_though_the_state_is_the_same():
    made = [*GOOD[:5], GOOD[7]]
    missing = [fault for fault in faults(PLAN, made, TOOLS, replay(made)) if fault.message is None]
    assert any(fault.reason.endswith("was not made") for fault in missing)
    assert {"wrong call"} <= {fault.kind for fault in missing}


@pytest.mark.parametrize("planned", range(1, 4))
@pytest.mark.parametrize("made", range(1, 4))
def test_an_equal_call_is_to_be_made_as_often_as_it_is_planned(planned, made):
    plan = Blueprint("long", "", (PlannedTurn((FIND,)),) * planned, NAMES, "s2")
    messages = []
    for n in range(made):
        messages += [user("What did Ann order?"), *called(FIND, n), agent("A lamp.")]
    found = faults(plan, messages, TOOLS, replay(messages))
    extra = [fault for fault in found if fault.kind == "extra call"]
    missing = [fault for fault in found if fault.reason.endswith("was not made")]
    assert (len(extra), len(missing)) == (max(0, made - planned), max(0, planned - made))


def test_a_call_that_is_not_needed_is_not_learned_and_the_dialog_stays():
    more = PlannedCall(Call("find_order", {"customer": "Bob"}), '{"order_id": 1}')
    messages = [GOOD[0], *called(more, 5), *GOOD[1:]]
    found = faults(PLAN, messages, TOOLS, replay(messages))
    assert [(fault.kind, fault.message) for fault in found] == [("extra call", 1)]


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


@pytest.mark.parametrize(
    "words",
    ["about 666.67", "67 %", "12,345 in all", "3 of them", "1. one\n2. two"],
)
def test_rounded_numbers_shares_and_lengths_are_not_invented(words):
    assert not [*invented(words, ['{"a": 666.6666, "b": 0.67, "c": 12345, "d": [1, 2, 4]}'])]


def test_copies_are_known_by_words_and_calls():
    again = changed(7, content="It is cancelled.")
    again[0]["content"] = "what did ANN order"
    assert copy_key(GOOD) == copy_key(again)
    assert copy_key(GOOD) != copy_key(changed(0, content="What has Bob ordered?"))
    other_way = [GOOD[0], *called(CANCEL, 1), *GOOD[3:5], *called(FIND), GOOD[7]]
    assert copy_key(GOOD) == copy_key(other_way) != copy_key(GOOD[:5] + GOOD[7:])


RESULT = '{"price": 666.6666, "share": 0.67, "total": 12345, "kinds": [1, 2, 4], "by": "ann@a.ex"}'


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("666.67 or 667, of 12,345 and 12345.0", []),
        ("666.66", ["666.66"]),
        ("66.7 %", ["66.7"]),
        ("67.0 % of 5 by ann@a.ex", []),  # five values
        ("68 % of 6", ["68", "6"]),
        ("1,23 and 123", ["23", "123"]),
        ("bob@a.ex and ANN@A.EX", ["bob@a.ex"]),
        (
            "A7 and A77",
            ["7", "A77"],
        ),  # a code has three letters
        ("'price', and ‘x’ by 'Ann.'", []),
        ('"a lamp" and “a desk”', ["a lamp", "a desk"]),
        ("it's Ann's", []),
        ("7) seven\n8. eight, 9. nine", ["9"]),
    ],
)
def test_what_was_named_nowhere_is_invented(words, found):
    assert sorted(invented(words, [RESULT, "Ask Ann."])) == sorted(found)


@pytest.mark.parametrize("place", ["user", "result", "call", "earlier words"])
def test_what_anybody_has_named_before_is_not_invented(place):
    said = [user("Is it 4321?" if place == "user" else "Is it?")]
    call = Call("find_order", {"customer": "4321" if place == "call" else "Ann"})
    said += called(PlannedCall(call, "4321" if place == "result" else "{}"))
    later = [agent("It may be 4321."), user("Is it?")] if place == "earlier words" else []
    for words, known in ((agent("It is 4321."), True), (agent("It is 4322."), False)):
        messages = [*said, *later, words]
        found = faults(PLAN, messages, TOOLS, replay(messages))
        reasons = [fault.reason for fault in found if "was in no result" in fault.reason]
        first = ["4321 was in no result (message 3)"] if later else []
        last = [] if known else [f"4322 was in no result (message {len(messages) - 1})"]
        assert reasons == [*first, *last]


def test_a_user_who_slips_need_not_be_asked_and_one_who_is_asked_has_to_answer():
    slip = PlannedCall(Call("find_order", {"customer": "Anne"}), '{"error": "no such customer"}')
    turn = PlannedTurn((FIND,), missing="customer", slip=slip)
    plan = Blueprint("slip", "", (turn,), NAMES, "s2")
    corrected = [GOOD[0], *called(slip), *called(FIND, 1), GOOD[3]]
    assert "did not ask" not in kinds(corrected, plan)
    plan = Blueprint("missing", "", (PlannedTurn((FIND,), missing="customer"),), NAMES, "s2")
    reasons = [
        fault.reason for fault in faults(plan, GOOD[:1] + GOOD[3:4], TOOLS, Replay([], "s2"))
    ]
    assert "the agent never hears customer" in reasons


@pytest.mark.parametrize(
    ("name", "question", "leaked"),
    [
        ("find_order", "Does find_order work?", True),
        ("find_order", "Does find_orders or refind_order work?", False),
        ("findOrder", "Does findOrder work?", True),
        ("find", "Can you find it?", False),
        ("Find", "Find it.", False),
    ],
)
def test_a_goal_is_leaked_by_the_name_of_a_tool_that_is_no_word_of_english(name, question, leaked):
    call = PlannedCall(Call(name, {}), "{}")
    plan = Blueprint("one", "", (PlannedTurn((call,)),), (name,), "s2")
    messages = [user(question), *called(call), agent("Done.")]
    found = faults(plan, messages, [tool(name, "")], replay(messages))
    assert any(fault.kind == "leaked goal" for fault in found) is leaked


@pytest.mark.parametrize(
    ("value", "slip"), [("Oslo", "Oso"), ("Ann", "An"), ("An", None), ("", None), (123, None)]
)
def test_a_user_misspells_texts_of_three_letters_or_more(value, slip):
    assert _misspelt(value) == slip
