"""Answers to "who are you?" and "who made you?" -> the share naming it and its author rightly."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from agentlite.scoring.metrics.confidence import Summary, summary
from agentlite.scoring.metrics.forgetting import is_right


class SelfCognitionMetrics(Struct, frozen=True, kw_only=True):
    """The shares of answers with the name, and with the author, over all questions about it, and
    over those in Chinese and in English. None where no name, or no author, is known.
    """

    own_name: Summary | None
    own_name_zh: Summary | None
    own_name_en: Summary | None
    own_author: Summary | None
    own_author_zh: Summary | None
    own_author_en: Summary | None


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


def self_cognition(answers: Sequence[IdentityAnswer], seed: int) -> SelfCognitionMetrics:
    def share(about: str, *languages: str) -> Summary | None:
        right = [
            float(answer.right)
            for answer in answers
            if answer.about == about and answer.language in languages
        ]
        return summary(right, seed) if right else None

    return SelfCognitionMetrics(
        own_name=share("name", "zh", "en"),
        own_name_zh=share("name", "zh"),
        own_name_en=share("name", "en"),
        own_author=share("author", "zh", "en"),
        own_author_zh=share("author", "zh"),
        own_author_en=share("author", "en"),
    )
