"""What a completion earns: its components, penalties and feedback, and their weighted total.

`docs/rewards.md` has the formula and the source of every component.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from agentlite.core.console import printable
from agentlite.core.errors import UserError, nearest
from agentlite.core.records import Record
from agentlite.scoring.rewards.attempt import Attempt, TraceStep
from agentlite.scoring.rewards.call_matching import CallUse
from agentlite.scoring.rewards.components import (
    COMPONENTS,
    PENALTIES,
    WEIGHTS,
    WITHOUT_GOLD,
    Component,
)

__all__ = [
    "COMPONENTS",
    "JUDGE",
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
JUDGE = "judge"  # the component that `--judge` adds
LONGEST = 200  # characters of a feedback: the names in it are the model's


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
            "--judge URL or --rewards file.py:function adds a reward.",
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


# --- Feedback ---


def feedback(attempt: Attempt) -> str:
    """One plain line: the first thing that is wrong, or `right`."""
    line = _of_step(attempt) if attempt.trace is None else _of_trace(attempt)
    return printable(line.replace("\n", " "))[:LONGEST]


def _of_step(attempt: Attempt) -> str:
    expected, made, tools = attempt.gold.calls, attempt.made, attempt.uses
    if not attempt.readable:
        return attempt.parsed.problem if attempt.finished else "not finished"
    if not attempt.gold.known:
        return "not compared: the prompt has no gold"
    if not expected:
        if made:
            return f"calls {', '.join(tools)} where no call is expected"
        if not attempt.answers:
            return attempt.fault or "says nothing"
        if not attempt.is_related:
            return "has no word of the dialog"
        return _too_long(attempt) or "right"
    if not made:
        return f"no call where {', '.join(tools)} is expected"
    if any(len(use.expected) != len(use.made) for use in tools.values()):
        return _of_tools(tools)
    if repeated := [name for name, use in tools.items() if use.repeated]:
        return f"repeats a call of {', '.join(repeated)}"
    fits = [fit for _, fit in attempt.matches if fit]
    if wrong := next((fit.problem for fit in fits if fit.problem), ""):
        return wrong
    if problem := attempt.fault or _too_long(attempt):
        return problem
    return "right once its values are cast" if any(fit.casts for fit in fits) else "right"


def _too_long(attempt: Attempt) -> str:
    words = attempt.excess_words
    return f"{words} words, more than the step needs" if words else ""


def _of_tools(tools: Mapping[str, CallUse]) -> str:
    """Which tools are called too often, or not often enough."""
    extra = [name for name, use in tools.items() if len(use.made) > len(use.expected)]
    lacking = [name for name, use in tools.items() if len(use.made) < len(use.expected)]
    if extra and lacking:
        return f"calls {', '.join(extra)}, not {', '.join(lacking)}"
    name = next(name for name in tools if name in (*extra, *lacking))
    if not tools[name].expected:
        return f"calls {', '.join(extra)}, not expected"
    made = len(tools[name].made)
    calls = f"{made or 'no'} {'calls' if made > 1 else 'call'}"
    return f"{calls} of {name} where {len(tools[name].expected)} expected"


def _of_trace(attempt: Attempt) -> str:
    expected, steps, optimal = len(attempt.gold.calls), len(attempt.made), attempt.optimal_steps
    if steps and not expected:
        return f"calls {', '.join(attempt.uses)} where no call is expected"
    if attempt.carried_out < expected:
        return f"{attempt.carried_out} of {expected} expected calls carried out"
    if attempt.failed_steps:
        return f"carried out, but {attempt.failed_steps} of {steps} steps failed"
    if steps > optimal:
        return f"carried out in {steps} steps, not {optimal}"
    if not attempt.readable:
        return attempt.parsed.problem if attempt.finished else "not finished"
    return "right"
