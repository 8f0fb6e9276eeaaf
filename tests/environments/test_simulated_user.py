"""A user that a model plays: it is asked with its own prompt, and its end cannot be mistaken."""

import pytest

from agentlite.core.errors import RowError
from agentlite.environments.simulated_user import SimulatedUser, read_profile, stop_word
from agentlite.environments.simulators import SimulatorReply

FACTS = {"city": "Oslo", "order": 7}
GIVEN = {"goal": "Know whether it rains.", "facts": FACTS, "on_request": ["order"], "style": "rude"}
PROFILE = read_profile(GIVEN)
DIALOG = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello."},
    {"role": "assistant", "content": None, "tool_calls": []},
    {"role": "tool", "content": "4 mm"},
    {"role": "assistant", "content": 'Which "city"?'},
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
    assert stop_word(PROFILE) in system
    # neither the calls nor what the assistant was told to do
    assert asked.splitlines()[1:3] == ['{"you": "Hello."}', '{"assistant": "Which \\"city\\"?"}']
    assert "4 mm" not in asked and "brief" not in asked


def test_the_stop_word_ends_it_and_is_not_shown_to_the_assistant():
    for text in (stop_word(PROFILE), f"Thanks. {stop_word(PROFILE)}", f"\n{stop_word(PROFILE)}\n"):
        user = SimulatedUser(PROFILE, 5)
        assert said(user, text)[0] is None and kinds(user) == [] and not user.is_stopped


@pytest.mark.parametrize(
    ("text", "more", "words", "faults"),
    [
        ("", {}, None, ["nothing"]),
        ("<think>Hm.</think>", {}, None, ["nothing"]),
        ("", {"calls": True}, None, ["call"]),
        ("In Os", {"cut": True}, "In Os", ["cut"]),
        ("<think>Say it.</think>In Oslo.", {}, "In Oslo.", []),
        ('{"you": "In Oslo."}', {}, "In Oslo.", []),
        ("In Paris, order 8.", {}, "In Paris, order 8.", ["contradiction"]),
        ("It is 7.", {}, "It is 7.", ["unrequested"]),
    ],
)
def test_faults_are_kept_with_the_reply(text, more, words, faults):
    user = SimulatedUser(PROFILE, 5)
    assert said(user, text, **more)[0] == words and kinds(user) == faults
    assert {fault.reply for fault in user.turns.faults} <= {1}


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
