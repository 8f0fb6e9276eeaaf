"""How much a model forgot: losses of general rows and answers to questions, before and after."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from math import exp

from msgspec import Struct

from agentlite.core.records import Step
from agentlite.scoring.metrics.confidence import Difference, Summary, paired_differences, summary

CHARACTERS = "\u3040-\u30ff\u3400-\u9fff"
WORD = re.compile(f"[{CHARACTERS}]|[^\\W{CHARACTERS}]+")


class Perplexity(Struct, frozen=True, kw_only=True):
    """exp of a mean loss and of its 95 % interval."""

    mean: float
    low: float
    high: float
    count: int


FIGURES = {
    "forgetting": "How much harder general texts became to predict; 0.02 is 2 %.",
    "perplexity": "Of general texts, after tuning; lower is better.",
    "perplexity_before": "Of the same texts, before tuning.",
    "general_questions": "The share of general questions in English that is answered rightly.",
    "questions_forgotten": "By how much that share fell through tuning.",
    "general_questions_zh": "The share of general questions in Chinese that is answered rightly.",
    "questions_forgotten_zh": "By how much that share fell through tuning.",
}


class GeneralResults(Struct, frozen=True):
    """A model on general data: by record, nats per trained token; by question, English or Chinese,
    whether it is right.

    A record that is too long for the model is left out.
    """

    losses: Mapping[str, float]
    right: Mapping[str, bool]
    right_zh: Mapping[str, bool]


def forgetting(
    before: GeneralResults, after: GeneralResults, seed: int
) -> dict[str, Difference | Perplexity | Summary]:
    """`forgetting` is by how much the log of the perplexity rose, row by row."""
    risen, fallen, fallen_zh = paired_differences(
        [
            (_steps(before.losses), _steps(after.losses)),
            (_steps(after.right), _steps(before.right)),
            (_steps(after.right_zh), _steps(before.right_zh)),
        ],
        seed,
    )
    return {
        "forgetting": risen,
        "perplexity": _perplexity(after.losses, seed),
        "perplexity_before": _perplexity(before.losses, seed),
        "general_questions": summary([float(right) for right in after.right.values()], seed),
        "questions_forgotten": fallen,
        "general_questions_zh": summary([float(right) for right in after.right_zh.values()], seed),
        "questions_forgotten_zh": fallen_zh,
    }


def is_right(text: str, accepted: Sequence[str]) -> bool:
    """Whether the text has an accepted answer as words of its own; in Chinese and Japanese, where
    no blank ends a word, each character is one.
    """
    words = f" {_plain(text)} "
    return any(f" {_plain(answer)} " in words for answer in accepted)


def _perplexity(losses: Mapping[str, float], seed: int) -> Perplexity:
    loss = summary(list(losses.values()), seed)
    return Perplexity(mean=exp(loss.mean), low=exp(loss.low), high=exp(loss.high), count=loss.count)


def _steps(values: Mapping[str, float]) -> dict[Step, float]:
    return {Step(name, 0): float(value) for name, value in values.items()}


def _plain(text: str) -> str:
    return " ".join(WORD.findall(unicodedata.normalize("NFKC", text).casefold()))
