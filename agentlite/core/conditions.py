"""`exact_call>=0.8,forgetting<=0.02` -> conditions on figures, by name."""

import operator
import re
from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import NamedTuple

from agentlite.core.errors import UserError, suggest

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
CONDITION = re.compile(
    r"\s*([A-Za-z_][\w.^]*)\s*(>=|<=|>|<)\s*([-+]?\d*\.?\d+(?:e[-+]?\d+)?)\s*(%?)\s*", re.ASCII
)


class Condition(NamedTuple):
    """A figure, by name, and its bound."""

    name: str
    sign: str
    bound: float

    def __str__(self) -> str:
        return f"{self.name}{self.sign}{self.bound:g}"

    def holds(self, value: float) -> bool:
        return COMPARISONS[self.sign](value, self.bound)


def parse_condition(text: str, location: str, example: str) -> Condition:
    """Raises UserError 2, with an `example`, for text that is not a condition."""
    match = CONDITION.fullmatch(text)
    if not match:
        raise UserError(
            f"'{text}' is not a condition.",
            f"Write NAME>=NUMBER, as in {example}.",
            location=location,
        )
    name, sign, bound, percent = match.groups()
    return Condition(name, sign, float(bound) / (100 if percent else 1))


BEST = "best"


class Keep(NamedTuple):
    """`best`: of the rollouts of a task that meet all conditions, one is kept."""

    conditions: tuple[Condition, ...]
    best: bool


@cache
def parse_keep(text: str) -> Keep:
    """Raises UserError 2 for a term that is not `best` and not a condition."""
    terms = [term.strip() for term in text.split(",") if term.strip()]
    conditions = [
        parse_condition(term, "--keep", "--keep 'env>=1', or --keep best")
        for term in terms
        if term != BEST
    ]
    return Keep(tuple(conditions), BEST in terms)


def refuse_unknown(conditions: Iterable[Condition], known: Collection[str], location: str) -> None:
    """Raises UserError 2 for a condition on a score that is not there."""
    for condition in conditions:
        if condition.name not in known:
            problem = f"there is no score {condition.name}."
            raise UserError(problem, suggest(condition.name, known or ["none"]), location=location)
