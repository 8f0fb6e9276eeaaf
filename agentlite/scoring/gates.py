"""Which conditions of `--gate tool_selection_accuracy>=0.8,forgetting<=0.02` a model fails."""

import re
from collections.abc import Mapping, Sequence

from agentlite.core.conditions import Condition, parse_condition
from agentlite.core.errors import UserError, nearest
from agentlite.scoring.metrics import kagentbench
from agentlite.scoring.metrics.model_metrics import GROUPS

NAMES = (
    *(name for group in GROUPS.values() for name in group.figures),
    *kagentbench.WEIGHTS,
    "overall",
)


def parse_gate(text: str, *, own_scores: bool = False) -> list[Condition]:
    """The conditions, all of which must hold. `own_scores`: an environment may have figures of its
    own. Raises UserError 2 for text that is not a condition, or names no figure.
    """
    conditions = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        condition = parse_condition(part, "--gate", "tool_selection_accuracy>=0.8")
        if not own_scores:
            check_figure(condition.name, "--gate")
        conditions.append(condition)
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
        elif not condition.holds(mean):
            failed.append(f"{condition}: it is {mean:.4g}")
    return failed
