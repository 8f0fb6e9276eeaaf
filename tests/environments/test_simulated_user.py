"""A user that a model plays: it is asked with its own prompt, and its end cannot be mistaken."""

import pytest

from agentlite.core.errors import RowError
from agentlite.environments.simulated_user import (
    SimulatedUser,
    UserProfile,
    faults,
    read_profile,
)
from agentlite.environments.simulators import SimulatorReply

FACTS = {"city": "Oslo", "order": 7}
GIVEN = {"goal": "Know whether it rains.", "facts": FACTS, "on_request": ["order"], "style": "rude"}
PROFILE = read_profile(GIVEN)
DIALOG = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello."},
    {"role": "assistant", "content": None, "tool_calls": []},
    {"role": "tool", "content": "4 mm"},
    {"role": "assistant", "content": '<think>\nWhere?\n</think>\n\nWhich "city"?'},
]


def said(user, text, **more):
    """What the user says, and what it was asked with."""
    asking = user.reply(DIALOG, ["rain"])
    question = next(asking)
    try:
        asking.send(SimulatorReply("", text, **more))
    except StopIteration as done:
        return done.value, question
    raise AssertionError("asked twice")


def kinds(user):
    return [fault.kind for fault in user.turns.faults]


def test_the_prompt_has_the_role_and_the_question_has_what_was_said():
    user = SimulatedUser(PROFILE, 5)
    words, question = said(user, "In Oslo.")
    assert words == "In Oslo." and kinds(user) == [] and user.turns.replies == ["In Oslo."]
    system, asked = (one["content"] for one in question.messages)
    assert system == user.turns.prompt and question.role == "user"
    for part in ("Know whether it rains.", "- city: Oslo\n", "- order: 7 (tell it only", "rude"):
        assert part in system
    assert PROFILE.stop_word in system
    # neither the calls nor what the assistant was told to do
    assert asked.splitlines()[1:3] == ['{"you": "Hello."}', '{"assistant": "Which \\"city\\"?"}']
    assert "4 mm" not in asked and "brief" not in asked


def test_the_stop_word_ends_it_and_is_not_shown_to_the_assistant():
    for text in (PROFILE.stop_word, f"Thanks. {PROFILE.stop_word}", f"\n{PROFILE.stop_word}\n"):
        user = SimulatedUser(PROFILE, 5)
        assert said(user, text)[0] is None and kinds(user) == [] and not user.is_stopped


def test_a_user_that_never_stops_is_stopped_without_a_question():
    user = SimulatedUser(PROFILE, 2)
    assert [said(user, "In Oslo.")[0] for _ in range(2)] == ["In Oslo."] * 2
    with pytest.raises(StopIteration) as done:
        next(user.reply(DIALOG, []))
    assert done.value.value is None and kinds(user) == ["no end"] and user.is_stopped


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("Anna", "user: an object is expected, and this is a text"),
        ({}, "goal is missing"),
        ({"goal": " "}, "goal is empty"),
        ({"goal": "a", "fact": {}}, "fact is not known"),
        ({"goal": "a", "on_request": ["city"]}, "on_request names city"),
    ],
)
def test_a_user_that_cannot_be_played_is_refused(value, reason):
    with pytest.raises(RowError) as found:
        read_profile(value)
    assert found.value.code == "E201" and reason in found.value.reason


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


def faults_of(words, mine=("My delivery has to move.",), theirs=ASKED, profile=ANNA):
    return [kind for kind, _ in faults(profile, mine, theirs, words, ["move_order", "find"])]


@pytest.mark.parametrize(
    "words",
    [
        "It is W2378156.",
        "Order w2378156, anna@example.org.",
        "On 18 May 2026, at 3 pm.",
        "On the 18th at 3pm.",
        "At 15:00 or 3:00 PM.",
        "The two of them, 2, please. Size 38.",
        "My order is not here.",
        "Yes, find it.",
        "我住在奥斯陆。",
    ],
)
def test_a_user_that_keeps_to_its_facts_has_no_fault(words):
    assert faults_of(words) == []


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("It is W2378157.", "contradiction"),
        ("Write to anna@example.com.", "contradiction"),
        ("The day is 2026-05-19.", "contradiction"),
        ("I need 4 of them.", "contradiction"),
        ("At 16:00.", "contradiction"),
        ("On the 19th.", "contradiction"),
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
    assert kind in faults_of(words)
