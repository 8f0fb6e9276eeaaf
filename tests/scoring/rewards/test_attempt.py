"""How many words may stand beside a call, and which words are an answer of the dialog."""

import pytest

from agentlite.core.records import Call, Gold, Message, Parsed
from agentlite.scoring.rewards.attempt import MOST_WORDS, Attempt


@pytest.mark.parametrize(
    ("words", "recorded", "excess"),
    [
        (MOST_WORDS, 0, False),
        (MOST_WORDS + 1, 0, True),
        (MOST_WORDS + 1, 75, True),
        (MOST_WORDS + 10, MOST_WORDS + 5, False),
        (2 * MOST_WORDS + 10, MOST_WORDS + 5, False),
        (2 * MOST_WORDS + 11, MOST_WORDS + 5, True),
    ],
)
def test_excess_words_are_more_than_a_thought_needs_and_twice_the_recorded(words, recorded, excess):
    attempt = Attempt(
        Parsed("word " * words, (Call("f"),)), Gold(), (), reference="word " * recorded
    )
    assert attempt.excess_words == (words if excess else 0)
    assert not Attempt(Parsed("word " * words), Gold(), ()).excess_words  # without a call


DIALOG = (
    Message("system", "Be brief."),
    Message("user", "Rain in Tromsø?"),
    Message("assistant", "", (Call("f"),)),
    Message("tool", "4 mm"),
)


@pytest.mark.parametrize(
    ("said", "recorded", "related"),
    [
        ("TROMSØ", "", True),  # a word of the first message, in other letters
        ("Brief", "", True),
        ("mm", "", True),
        ("yes", "Yes, it does.", True),
        ("xqz", "Yes, it does.", False),
        ("xqz", "", False),
        (" ! ", "!", True),  # the record itself says no more
        ("! !", "!", False),
    ],
)
def test_an_answer_is_related_by_a_word_of_any_message_or_by_being_the_recorded_one(
    said, recorded, related
):
    attempt = Attempt(Parsed(said), Gold(), (), messages=DIALOG, reference=recorded)
    assert attempt.is_related is related
    assert Attempt(Parsed(said), Gold(), ()).is_related  # nothing to compare it with
