"""What of a prompt is read again as it was sampled, and what is encoded."""

from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.environments.continuation import SeenTokens, next_prompt, seen_with


class Letters:
    """A template that encodes letter by letter, and knows what stands before them."""

    turn_end = "."

    def __init__(self):
        self.before: list[list[int]] = []

    def encode(self, text, before=()):
        self.before.append([*before])
        return [ord(letter) for letter in text]

    def token_id(self, text):
        return ord(text)


def dialog(text: str) -> Any:
    return SimpleNamespace(text=text, ids=[ord(letter) for letter in text])


def test_what_was_seen_stays_as_it_is_where_the_text_goes_on_from_it():
    template: Any = Letters()
    seen = SeenTokens("ab.", [1, 2, 46])
    assert next_prompt(seen, dialog("ab.cd"), template) == ([1, 2, 46, 99, 100], (99, 100), False)
    assert template.before == [[1, 2, 46]]  # a piece may be written otherwise at the beginning
    for other, text in ((None, "ab.cd"), (seen, "ab,cd"), (seen, "ab")):
        whole = dialog(text)
        assert next_prompt(other, whole, template) == (whole.ids, tuple(whole.ids), True)


@pytest.mark.parametrize(
    ("ended", "ids", "seen"),
    [
        ("turn", (7, 46), ("ax.", [97, 7, 46])),
        ("turn", (7, 8), None),  # another end than that of its text
        ("stop", (7, 8), ("ax", [97, 7, 8])),
        ("cut", (7, 46), ("ax", [97, 7, 46])),
        ("turn", (), None),
        ("cut", (), None),
    ],
)
def test_an_answer_is_seen_with_its_ids_and_its_end(ended, ids, seen):
    template: Any = Letters()
    assert seen_with(SeenTokens("a", [97]), "x", ended, ids, template) == seen
