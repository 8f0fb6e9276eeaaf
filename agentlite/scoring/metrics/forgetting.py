"""Losses of general rows, and answers to general questions, before and after tuning -> what was
forgotten.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from math import exp
from typing import Any

from msgspec import to_builtins

from agentlite.core.records import Step
from agentlite.scoring.metrics.confidence import paired_difference, summary


def forgetting(
    before: Mapping[str, float], after: Mapping[str, float], seed: int
) -> dict[str, Any]:
    """`forgetting`: by how much the log of the perplexity rose, row by row; .02 is about 2 % more.
    With both perplexities.
    """
    risen = paired_difference(_steps(before), _steps(after), seed)
    return {
        "forgetting": to_builtins(risen),
        "perplexity": _perplexity(after, seed),
        "perplexity_before": _perplexity(before, seed),
    }


def questions_forgotten(
    before: Mapping[str, bool], after: Mapping[str, bool], seed: int
) -> dict[str, Any]:
    """The share of general questions answered rightly, and by how much that fell."""
    fallen = paired_difference(_steps(after), _steps(before), seed)
    return {
        "general_questions": to_builtins(summary([float(right) for right in after.values()], seed)),
        "questions_forgotten": to_builtins(fallen),
    }


def is_right(text: str, accepted: Sequence[str]) -> bool:
    """Whether an accepted answer stands in the text as words of its own."""
    said = f" {_plain(text)} "
    return any(f" {_plain(answer)} " in said for answer in accepted)


def _perplexity(losses: Mapping[str, float], seed: int) -> dict[str, Any]:
    found = summary(list(losses.values()), seed)
    return {
        "mean": exp(found.mean),
        "low": exp(found.low),
        "high": exp(found.high),
        "count": found.count,
    }


def _steps(values: Mapping[str, float]) -> dict[Step, float]:
    return {Step(name, 0): float(value) for name, value in values.items()}


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold()))
