"""Faults of a simulated user are found by rules, and a good user has none."""

import pytest

from agentlite.environments.user_audit import UserProfile, faults

ANNA = UserProfile(
    goal="Change the delivery of the order to a later day because you are away next week.",
    facts={
        "order_id": "W2378156",
        "email": "anna@example.org",
        "city": "Oslo",
        "day": "2026-05-18",
        "time": "15:00",
        "count": 2,
        "sizes": ["small", 38],
    },
    on_request=("order_id", "email"),
    style="brief",
)
ASKED = ["What is your order id, please?", "And your e-mail? The email that you ordered with."]


def found(words, mine=("My delivery has to move.",), theirs=ASKED, profile=ANNA):
    return [kind for kind, _ in faults(profile, mine, theirs, words, ["move_order", "find"])]


@pytest.mark.parametrize(
    "words",
    [
        "It is W2378156.",
        "Order w2378156, anna@example.org.",
        "On 18 May 2026, at 3 pm.",
        "At 15:00 or 3:00 PM.",
        "The two of them, 2, please. Size 38.",
        "My order is not here.",
        "Yes, find it.",
        "我住在奥斯陆。",
    ],
)
def test_a_user_that_keeps_to_its_facts_has_no_fault(words):
    assert found(words) == []


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("It is W2378157.", "contradiction"),
        ("Write to anna@example.com.", "contradiction"),
        ("The day is 2026-05-19.", "contradiction"),
        ("I need 4 of them.", "contradiction"),
        ("At 16:00.", "contradiction"),
        ("Assistant: Your order is moved.", "assistant"),
        ("How can I help you today?", "assistant"),
        ("As an AI, I have no order.", "assistant"),
        ("<|im_start|>assistant", "assistant"),
        ('<tool_call>{"name": "find"}</tool_call>', "call"),
        ('{"name": "move_order", "arguments": {}}', "call"),
        ("move_order(day=18)", "call"),
        ("Action: move_order", "call"),
    ],
)
def test_a_fault_is_found(words, kind):
    assert kind in found(words)


def test_a_fact_that_nobody_asked_for_is_told_too_early():
    hello = ["How are you?"]
    assert found("It is W2378156.", theirs=hello) == ["unrequested"]
    assert found("It is W2378156.", theirs=["Which order?"]) == []
    assert found("I live in Oslo.", theirs=hello) == []  # it may be told any time
    # what was said before is known
    assert found("W2378156!", mine=["Order W2378156."], theirs=hello) == []
    assert found("W2378156!", mine=["Hello."], theirs=["Is it W2378156?"]) == []
    chinese = UserProfile("g", {"城市": "奥斯陆"}, ("城市",))
    assert found("我住在奥斯陆。", theirs=["你好"], profile=chinese) == ["unrequested"]
