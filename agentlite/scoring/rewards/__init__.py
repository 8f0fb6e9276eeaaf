"""What a completion earns: its components, penalties and feedback, and their weighted total.

`docs/rewards.md` has the formula and the source of every component.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from agentlite.core.errors import UserError, nearest
from agentlite.core.records import Record
from agentlite.scoring.rewards.attempt import Attempt
from agentlite.scoring.rewards.components import (
    COMPONENTS,
    PENALTIES,
    WEIGHTS,
    WITHOUT_GOLD,
    Component,
)
from agentlite.scoring.rewards.feedback import feedback
from agentlite.scoring.rewards.trace import TraceStep

__all__ = [
    "COMPONENTS",
    "PENALTIES",
    "WEIGHTS",
    "WITHOUT_GOLD",
    "Attempt",
    "Component",
    "ComponentError",
    "RewardResult",
    "TraceStep",
    "have_gold",
    "refuse_without_gold",
    "score_attempt",
    "settle_weights",
    "total",
    "without_comparisons",
]


class ComponentError(Exception):
    """A user function gave no value: which one, and what happened."""


class RewardResult(NamedTuple):
    """Every component and penalty, without weights; one line of feedback; and why user functions
    gave no value, if any failed.
    """

    components: dict[str, float]
    feedback: str
    error: str = ""


def score_attempt(attempt: Attempt, user_functions: Mapping[str, Component] = {}) -> RewardResult:
    """A user function that gives no value is left out, and is the error."""
    components = {name: component(attempt) for name, component in COMPONENTS.items()}
    errors = []
    for name, component in user_functions.items():
        try:
            components[name] = component(attempt)
        except ComponentError as error:
            errors.append(str(error))
    for name, count in PENALTIES.items():
        components[name] = float(count(attempt))
    return RewardResult(components, feedback(attempt), "; ".join(errors))


def have_gold(records: Iterable[Record]) -> bool:
    """Whether it is known of every step of these records what is right at it."""
    return all(gold.known for record in records for gold in record.gold.values())


def refuse_without_gold(
    records: Iterable[Record], weights: Mapping[str, float], location: str
) -> None:
    """Raises UserError 2 where prompts have no gold, and a component with a weight needs it."""
    records = list(records)
    lacking = sum(not have_gold([record]) for record in records)
    uncompared = without_comparisons(weights)
    compared = [name for name in weights if weights[name] and name not in uncompared]
    if lacking and compared:
        raise UserError(
            f"{lacking} of {len(records)} prompts have no gold to compare answers with: "
            f"{', '.join(compared)}.",
            "Write the gold (`gold`, the expected calls, or the right answer as last turn), or do "
            "without it: --config recipes/no-gold.yaml sets those weights to 0, and "
            "--rewards file.py:function adds a reward of yours.",
            location=location,
        )


def without_comparisons(components: Mapping[str, float]) -> dict[str, float]:
    """The components, and user functions, that need no gold."""
    compared = WEIGHTS.keys() - WITHOUT_GOLD
    return {name: value for name, value in components.items() if name not in compared}


def total(components: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Not clamped: a penalty always shows."""
    return sum([weight * components[name] for name, weight in weights.items()])


def settle_weights(
    changed: Mapping[str, float],
    user_functions: Iterable[str] = (),
    *,
    defaults: Mapping[str, float] = WEIGHTS,
    penalties: Collection[str] = PENALTIES,
) -> dict[str, float]:
    """The weight of every component and penalty: as `changed` has it, or the default, which is 1
    for a user function. Raises UserError 2, also for a weight that would turn a component into its
    opposite.
    """
    weights = {**defaults, **dict.fromkeys(user_functions, 1.0)}
    for name, weight in changed.items():
        if name not in weights:
            raise UserError(f"no component '{name}'.", nearest(name, weights), location="weights")
        problem = fix = ""
        if not math.isfinite(weight):
            problem, fix = f"{weight} is not a weight.", "Give a finite number."
        elif name in penalties and weight > 0:
            problem = f"{weight:g} would reward a fault."
            fix = f"Weights of penalties are 0 or less: {-weight:g}."
        elif name not in penalties and weight < 0:
            problem = f"{weight:g} would punish what is right."
            fix = "Weights of components are 0 or more."
        if problem:
            raise UserError(problem, fix, location=f"weights.{name}")
        weights[name] = float(weight)
    if not any(weights.values()):
        problem = "all are zero: every candidate would score the same."
        raise UserError(problem, "Give one component a weight.", location="weights")
    return weights
