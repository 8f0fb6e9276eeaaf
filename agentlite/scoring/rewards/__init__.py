"""A reading and its gold -> what it earns, part by part, and why in a line; parts and weights ->
one number.

`docs/rewards.md` has the formula and the source of every part.
"""

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from agentlite.core.errors import UserError
from agentlite.scoring.rewards.attempt import Attempt, TraceStep
from agentlite.scoring.rewards.components import COMPONENTS, PENALTIES, Component
from agentlite.scoring.rewards.feedback import feedback

__all__ = [
    "COMPONENTS",
    "PENALTIES",
    "WEIGHTS",
    "Attempt",
    "Component",
    "ComponentError",
    "Judged",
    "TraceStep",
    "judge",
    "settle_weights",
    "total",
]

WEIGHTS: dict[str, float] = {
    "task_completion": 0.40,
    "tool_accuracy": 0.25,
    "efficiency": 0.15,
    "timing_quality": 0.10,
    "format_compliance": 0.10,
    "arguments": 0.0,
    "exact": 0.0,
    "wrong_tool": -0.3,
    "redundant_call": -0.2,
    "format_error": -0.1,
    "timeout": -0.5,
    "missed_call": -0.3,
}


class ComponentError(Exception):
    """A component of the user's own gave no value: which, and what happened."""


class RewardParts(NamedTuple):
    """Every part, raw; one line of feedback; and why components of the user's own gave no value, if
    any did not.
    """

    parts: dict[str, float]
    feedback: str
    error: str = ""


def judge(attempt: Attempt, own: Mapping[str, Component] = {}) -> RewardParts:
    """Every part of an attempt. A component of the user's own that gives no value is left out, and
    is the error.
    """
    parts = {name: component(attempt) for name, component in COMPONENTS.items()}
    errors = []
    for name, component in own.items():
        try:
            parts[name] = component(attempt)
        except ComponentError as error:
            errors.append(str(error))
    for name, count in PENALTIES.items():
        parts[name] = float(count(attempt))
    return RewardParts(parts, feedback(attempt), "; ".join(errors))


def total(parts: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Not clamped: a penalty always shows."""
    return sum([weight * parts[name] for name, weight in weights.items()])


def settle_weights(given: Mapping[str, float], own: Iterable[str] = ()) -> dict[str, float]:
    """The weight of every part: the default (1 for the user's own), or what is given. Raises
    UserError 2.
    """
    weights = {**WEIGHTS, **dict.fromkeys(own, 1.0)}
    for name, weight in given.items():
        _refuse(name, weight, weights)
        weights[name] = float(weight)
    if not any(weights.values()):
        raise UserError(
            "all are zero: every candidate would score the same.",
            "Give one part a weight.",
            location="weights",
        )
    return weights


def _refuse(name: str, weight: float, known: Iterable[str]) -> None:
    """Raises UserError 2 for a weight that no part has, or that would turn a part into its
    opposite.
    """
    if name not in (known := list(known)):
        near = difflib.get_close_matches(name, known, n=1)
        fix = f"Did you mean '{near[0]}'?" if near else f"Known: {', '.join(known)}."
        raise UserError(f"no part '{name}'.", fix, location="weights")
    if not math.isfinite(weight):
        raise UserError(
            f"{weight} is no weight.", "Give a finite number.", location=f"weights.{name}"
        )
    if name in PENALTIES and weight > 0:
        raise UserError(
            f"{weight:g} would reward a fault.",
            f"Weights of penalties are 0 or less: {-weight:g}.",
            location=f"weights.{name}",
        )
    if name not in PENALTIES and weight < 0:
        raise UserError(
            f"{weight:g} would punish what is right.",
            "Weights of components are 0 or more.",
            location=f"weights.{name}",
        )
