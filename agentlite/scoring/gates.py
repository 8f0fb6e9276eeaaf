"""Which conditions of `--gate tool_selection_accuracy>=0.8,forgetting<=0.02` a model fails."""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from agentlite.core.errors import UserError, nearest
from agentlite.scoring.metrics import kagentbench
from agentlite.scoring.metrics.model_metrics import GROUPS

COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
CONDITION = re.compile(
    r"\s*([A-Za-z_][\w.^]*)\s*(>=|<=|>|<)\s*([-+]?\d*\.?\d+(?:e[-+]?\d+)?)\s*(%?)\s*", re.ASCII
)
NAMES = (
    *(name for group in GROUPS.values() for name in group.names),
    *kagentbench.WEIGHTS,
    "overall",
)


class Condition(NamedTuple):
    """A figure, by name, and the bound of its mean."""

    name: str
    sign: str
    bound: float

    def __str__(self) -> str:
        return f"{self.name}{self.sign}{self.bound:g}"


def parse_gate(text: str) -> list[Condition]:
    """The conditions, all of which must hold. Raises UserError 2 for text that is not a condition,
    or names no figure.
    """
    conditions = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = CONDITION.fullmatch(part)
        if not match:
            raise UserError(
                f"'{part}' is not a condition.",
                "Write NAME>=NUMBER, as in tool_selection_accuracy>=0.8.",
                location="--gate",
            )
        name, sign, bound, percent = match.groups()
        check_figure(name, "--gate")
        conditions.append(Condition(name, sign, float(bound) / (100 if percent else 1)))
    return conditions


def check_figure(name: str, location: str) -> None:
    """Raises UserError 2 for a name that no figure has."""
    if name not in NAMES and not re.fullmatch(r"pass\^\d+", name):
        raise UserError(f"no figure is called '{name}'.", nearest(name, NAMES), location=location)


def failures(conditions: Sequence[Condition], means: Mapping[str, float | None]) -> list[str]:
    """In words. `means`: of each figure; one that was not measured, or is not there, fails."""
    failed = []
    for condition in conditions:
        mean = means.get(condition.name)
        if mean is None:
            failed.append(f"{condition}: not measured")
        elif not COMPARE[condition.sign](mean, condition.bound):
            failed.append(f"{condition}: it is {mean:.4g}")
    return failed
