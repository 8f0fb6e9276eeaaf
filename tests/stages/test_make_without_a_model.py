"""`make dialogs` without a model: what users say, and their faults."""

import pytest

from agentlite.environments.synthesis.dialog import UserProfile
from agentlite.stages.make.play import STOP, _question, _said, faults_of_user
from agentlite.stages.teacher import TeacherReply

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
)
ASKED = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "My delivery has to move."},
    {"role": "assistant", "content": None, "tool_calls": []},
    {"role": "tool", "content": "4 days"},
    {
        "role": "assistant",
        "content": '<think>\nWhich?\n</think>\n\nThe "email", please?',
    },
]


def test_a_user_is_shown_its_goal_its_facts_and_what_was_said():
    system, asked = (message["content"] for message in _question(ANNA, ASKED).messages)
    for part in ("away next week", "- city: Oslo\n", "- order_id: W2378156 (tell it only", STOP):
        assert part in system
    said = ['{"you": "My delivery has to move."}']
    said += ['{"assistant": "The \\"email\\", please?"}']
    assert asked.splitlines()[1:3] == said and "4 days" not in asked and "brief" not in asked


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (TeacherReply("", "In Oslo."), "In Oslo."),
        (TeacherReply("", '{"you": "In Oslo."}'), "In Oslo."),
        *((TeacherReply("", text), None) for text in (STOP, f"Thanks. {STOP}", "[[ End-3f]]", "")),
        (TeacherReply("", "In Os", cut=True), None),
        (TeacherReply("", "In Oslo.", calls=True), None),
    ],
)
def test_the_stop_word_and_what_cannot_be_said_end_a_dialog(reply, words):
    assert _said(reply) == words


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("It is W2378156.", None),
        ("Order w2378156, anna@example.org.", None),
        ("On 18 May 2026, at 3 pm.", None),
        ("On the 18th at 3pm.", None),
        ("At 15:00 or 3:00 PM.", None),
        ("The two of them, 2, please. Size 38.", None),
        ("My order is not here.", None),
        ("Yes, find it.", None),
        ("我住在奥斯陆。", None),
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
def test_a_user_that_leaves_its_facts_or_its_role_has_a_fault(words, kind):
    messages = [*ASKED, {"role": "user", "content": words}]
    kinds = {fault.kind for fault in faults_of_user(ANNA, messages, ["move_order", "find"])}
    assert f"user: {kind}" in kinds if kind else not kinds
