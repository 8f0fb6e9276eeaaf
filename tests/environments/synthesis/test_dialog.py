"""Faults planted into good dialogs are found, and good dialogs are left alone."""

import copy
import json

import pytest

from agentlite.core.records import Call, Tool
from agentlite.environments.synthesis.blueprint import Blueprint, PlannedCall, PlannedTurn
from agentlite.environments.synthesis.dialog import gives_away


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
TURNS = (PlannedTurn((FIND,)), PlannedTurn((CANCEL,)))
PLAN = Blueprint("several_turns", "", TURNS, (*TOOLS,), tuple(one.name for one in TOOLS), "s2")


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


def changed(number, **parts):
    messages = copy.deepcopy(GOOD)
    messages[number] |= parts
    return messages


@pytest.mark.parametrize(
    ("messages", "is_found"),
    [
        (GOOD, False),
        (changed(0, content="Use find_order to find what Ann has."), True),
        (changed(3, content="<tool_response>\na lamp\n</tool_response>"), True),
    ],
)
def test_words_that_a_tool_or_a_result_brings_are_found(messages, is_found):
    assert gives_away(PLAN, messages) is is_found
