"""agentlite.environments.making: what a blueprint becomes in words, for readers and for players."""

import pytest
from msgspec.structs import replace

from agentlite.core.records import Call, Tool
from agentlite.environments.making.blueprint import Blueprint, PlannedTurn
from agentlite.environments.making.checks import made_calls
from agentlite.environments.making.dialog import in_plain_words, row_of
from agentlite.environments.making.user_profile import profile_of
from agentlite.environments.making.walk import PlannedCall

TOOLS = {
    name: Tool(name, text)
    for name, text in {
        "find_order": "Finds an order of a customer. Slow.",
        "cancel_order": "Cancels an order.",
        "send_mail": "Sends a mail.",
    }.items()
}
# the values say which argument they are of, so that a text shows what it holds
FIND = PlannedCall(
    Call("find_order", {"customer": "Ann-1", "shop": "Oslo-2"}), '{"order_id": 7712}'
)
CANCEL = PlannedCall(
    Call("cancel_order", {"order_id": 7712, "reason": "late-3"}), '{"ok": true}', {"order_id": 0}
)
MAIL = PlannedCall(Call("send_mail", {"customer": "Bob-4", "addresses": ["x-5", "y-6"]}), "{}")
WRONG = PlannedCall(
    Call("find_order", {"customer": "An1", "shop": "Oslo-2"}), '{"error": "no customer An1."}'
)
TURNS = {
    "plain": (PlannedTurn((FIND, CANCEL)), PlannedTurn((MAIL,))),
    "together": (PlannedTurn((FIND, MAIL), together=True),),
    "missing": (PlannedTurn((FIND,), missing="customer"), PlannedTurn((CANCEL,))),
    "slip": (PlannedTurn((FIND,), missing="customer", slip=WRONG),),
    "refused": (PlannedTurn((FIND,)), PlannedTurn((replace(MAIL, result=""),), refused=True)),
}
SEEDS = range(3)


def plan(turns):
    return Blueprint("any", "", turns, (*TOOLS,), "")


@pytest.mark.parametrize("kind", TURNS)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_user_says_each_argument_that_no_result_gives_and_only_when_it_should(kind, seed):
    """Before the call, and one that is missing only after the agent has asked."""
    messages = in_plain_words(plan(TURNS[kind]), TOOLS, seed)
    said = ""
    calls = made_calls(messages)
    assert calls == [
        replace(planned.call, id=f"call{number:05}")
        for number, planned in enumerate(plan(TURNS[kind]).made)
    ]
    for message in messages:
        if message["role"] == "user":
            said += message["content"]
        for call in made_calls([message]):
            for value in call.arguments.values():
                for one in value if isinstance(value, list) else [value]:
                    assert (str(one) in said) == (one != 7712)
    if kind in ("missing", "slip"):
        asked, told = messages[0]["content"], next(m for m in messages[1:] if m["role"] == "user")
        assert "Ann-1" not in asked and "Oslo-2" in asked and ("An1" in asked) == (kind == "slip")
        assert "Ann-1" in told["content"] and "Oslo-2" not in told["content"]
    takes = [one for turn in TURNS[kind] for one in turn.calls if one.sources and not turn.refused]
    assert said.count("Take the order id from the result before.") == len(takes)


def test_a_row_says_what_it_was_made_from_and_by_what_it_was_verified():
    made = plan(TURNS["plain"])
    row = row_of(made, in_plain_words(made, TOOLS, 0), [*TOOLS.values()], ["results", "state"])
    verified = {"verified": ["results", "state"]}
    assert row["id"] == made.id
    assert row["meta"] == {"blueprint": made.id, "kind": "any", "task": "", **verified}
    calls = [call for gold in row["gold"].values() for call in gold["calls"]]
    # each argument has a list of right values, also one that is a list itself
    assert calls[-1] == {
        "name": "send_mail",
        "arguments": {"customer": ["Bob-4"], "addresses": [["x-5", "y-6"]]},
    }


def test_a_player_knows_what_to_tell_and_what_only_on_request():
    profile = profile_of(plan(TURNS["plain"]), TOOLS)
    assert profile.goal == (
        "Ask the assistant to find an order of a customer, and then to cancel an order. "
        "When that is done, ask the assistant to send a mail."
    )
    assert profile.facts == {
        "customer": "Ann-1",
        "shop": "Oslo-2",
        "reason": "late-3",
        "customer to send a mail": "Bob-4",
        "addresses": ["x-5", "y-6"],
    }
    assert profile.on_request == ()
    missing = profile_of(plan(TURNS["missing"]), TOOLS)
    assert missing.facts == {"shop": "Oslo-2", "customer": "Ann-1", "reason": "late-3"}
    assert missing.on_request == ("customer",)
    slip = profile_of(plan(TURNS["slip"]), TOOLS)
    assert slip.goal.endswith("You say the customer wrongly at first; correct it if asked.")
    assert slip.facts == {"customer at first": "An1", "shop": "Oslo-2", "right customer": "Ann-1"}
    assert slip.on_request == ("right customer",)
