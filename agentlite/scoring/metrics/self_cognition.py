"""Answers to "who are you?" and "who made you?" -> the share naming it and its author rightly."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from agentlite.scoring.metrics.confidence import Summary, summary
from agentlite.scoring.metrics.forgetting import is_right

FIGURES = {
    "own_name": "The share of answers to who it is that have the model's name.",
    "own_name_zh": "The same in Chinese.",
    "own_name_en": "The same in English.",
    "own_author": "The share of answers to who made it that have the author's name.",
    "own_author_zh": "The same in Chinese.",
    "own_author_en": "The same in English.",
}


class Identity(Struct, frozen=True):
    """The names and the authors that count as right, in any language; [] where none is known.
    `system`: the system text of the questions, "" for that of the chat template.
    """

    name: list[str]
    author: list[str]
    system: str = ""


class IdentityAnswer(NamedTuple):
    question: str
    about: Literal["name", "author"]
    language: Literal["zh", "en"]
    text: str
    right: bool


def names_itself(text: str, about: str, identity: Identity) -> bool:
    """Whether an answer contains the name, or the author, as words of its own."""
    return is_right(text, identity.name if about == "name" else identity.author)


def self_cognition(answers: Sequence[IdentityAnswer], seed: int) -> dict[str, Summary | None]:
    """None where no name, or no author, is known."""
    figures: dict[str, Summary | None] = {}
    for about in ("name", "author"):
        for suffix, languages in (("", ("zh", "en")), ("_zh", ("zh",)), ("_en", ("en",))):
            right = [
                float(answer.right)
                for answer in answers
                if answer.about == about and answer.language in languages
            ]
            figures[f"own_{about}{suffix}"] = summary(right, seed) if right else None
    return figures
