"""What a model forgot of general talk through tuning, and who it says it is."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from math import exp

from msgspec import Struct

from agentlite.core.records import Step
from agentlite.scoring.metrics.confidence import Difference, Summary, paired_differences, summary

CHARACTERS = "\u3040-\u30ff\u3400-\u9fff"
WORD = re.compile(f"[{CHARACTERS}]|[^\\W{CHARACTERS}]+")


def is_right(text: str, accepted: Sequence[str]) -> bool:
    """Whether the text has an accepted answer as words of its own; in Chinese and Japanese, where
    no blank ends a word, each character is one.
    """
    words = f" {_plain_words(text)} "
    return any(f" {_plain_words(answer)} " in words for answer in accepted)


def _plain_words(text: str) -> str:
    return " ".join(WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


# --- Forgetting: losses of general rows and answers to questions, before and after ---

FORGETTING = {
    "forgetting": "How much harder general texts became to predict; 0.02 is 2 %.",
    "perplexity": "Of general texts, after tuning; lower is better.",
    "perplexity_before": "Of the same texts, before tuning.",
    "general_questions": "The share of general questions in English that is answered rightly.",
    "questions_forgotten": "By how much that share fell through tuning.",
    "general_questions_zh": "The share of general questions in Chinese that is answered rightly.",
    "questions_forgotten_zh": "By how much that share fell through tuning.",
}


# of a model: nats per trained token by record that is not too long for it; and by question, in
# English and in Chinese, 1 if it is right
GeneralResults = Sequence[Mapping[str, float]]


def forgetting(
    before: GeneralResults, after: GeneralResults, seed: int
) -> dict[str, Difference | Summary | dict[str, float]]:
    """`forgetting` is by how much the log of the perplexity rose, row by row."""
    (losses_before, *answers_before), (losses, *answers) = before, after
    pairs = [(losses_before, losses), *zip(answers, answers_before, strict=True)]
    loss_rise, share_fall, share_fall_zh = paired_differences(
        [(_by_step(first), _by_step(second)) for first, second in pairs], seed
    )
    right, right_zh = ([float(value) for value in language.values()] for language in answers)
    return {
        "forgetting": loss_rise,
        "perplexity": _perplexity(losses, seed),
        "perplexity_before": _perplexity(losses_before, seed),
        "general_questions": summary(right, seed),
        "questions_forgotten": share_fall,
        "general_questions_zh": summary(right_zh, seed),
        "questions_forgotten_zh": share_fall_zh,
    }


def _by_step(values: Mapping[str, float]) -> dict[Step, float]:
    return {Step(name, 0): float(value) for name, value in values.items()}


def _perplexity(losses: Mapping[str, float], seed: int) -> dict[str, float]:
    """exp of the mean loss and of its 95 % interval."""
    loss = summary(list(losses.values()), seed)
    return {
        "mean": exp(loss.mean),
        "low": exp(loss.low),
        "high": exp(loss.high),
        "count": loss.count,
    }


# --- Self-cognition: answers to "who are you?" and "who made you?" ---

SELF_COGNITION = {
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


def self_cognition(
    answers: Sequence[tuple[str, str, bool]], seed: int
) -> dict[str, Summary | None]:
    """None where no name, or no author, is known. `answers`: which of the two is asked for, in
    which language, and whether the text has it.
    """
    figures: dict[str, Summary | None] = {}
    for figure in SELF_COGNITION:
        about, _, language = figure.removeprefix("own_").partition("_")
        right = [
            float(has_answer)
            for question, question_language, has_answer in answers
            if question == about and language in ("", question_language)
        ]
        figures[figure] = summary(right, seed) if right else None
    return figures
