"""What a completion earns: its components, penalties and feedback, and their weighted total.

`docs/rewards.md` has the formula and the source of every component.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
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
        what, side = ("penalty", -1) if name in penalties else ("component", 1)
        if not math.isfinite(weight) or weight * side < 0:
            raise UserError(
                f"{weight:g} is no weight of a {what}.",
                f"Give a finite number, 0 or {'more' if side > 0 else 'less'}.",
                location=f"weights.{name}",
            )
        weights[name] = float(weight)
    if not any(weights.values()):
        problem = "all are zero: every candidate would score the same."
        raise UserError(problem, "Give one component a weight.", location="weights")
    return weights


# --- Feedback ---


def feedback(attempt: Attempt) -> str:
    """One plain line: the first thing that is wrong, or `right`."""
    problems = _of_step(attempt) if attempt.trace is None else _of_trace(attempt)
    line = next(filter(None, problems), "right")
    return printable(line.replace("\n", " "))[:LONGEST]


def _of_step(attempt: Attempt) -> Iterator[str]:
    tools = attempt.uses
    if not attempt.readable:
        yield attempt.parsed.problem if attempt.finished else "not finished"
    if not attempt.gold.known:
        yield "not compared: the prompt has no gold"
    if not attempt.gold.calls:
        yield _describe_unexpected(attempt)
        if not attempt.answers:
            yield attempt.fault or "says nothing"
        if not attempt.is_related:
            yield "has no word of the dialog"
    elif not attempt.made:
        yield f"no call where {', '.join(tools)} is expected"
    yield _of_tools(tools)
    if repeated := [name for name, use in tools.items() if use.repeated]:
        yield f"repeats a call of {', '.join(repeated)}"
    fits = [fit for _, fit in attempt.matches if fit]
    yield from (fit.problem for fit in fits)
    yield attempt.fault
    if words := attempt.excess_words:
        yield f"{words} words, more than the step needs"
    if any(fit.casts for fit in fits):
        yield "right once its values are cast"


def _describe_unexpected(attempt: Attempt) -> str:
    return f"calls {', '.join(attempt.uses)} where no call is expected" if attempt.made else ""


def _of_tools(tools: Mapping[str, CallUse]) -> str:
    """Which tools are called too often, or not often enough."""
    extra = [name for name, use in tools.items() if len(use.made) > len(use.expected)]
    lacking = [name for name, use in tools.items() if len(use.made) < len(use.expected)]
    if extra and lacking:
        return f"calls {', '.join(extra)}, not {', '.join(lacking)}"
    for name, use in tools.items():
        if name in extra and not use.expected:
            return f"calls {', '.join(extra)}, not expected"
        if name in (*extra, *lacking):
            calls = f"{len(use.made) or 'no'} {'calls' if len(use.made) > 1 else 'call'}"
            return f"{calls} of {name} where {len(use.expected)} expected"
    return ""


def _of_trace(attempt: Attempt) -> Iterator[str]:
    expected, steps, optimal = len(attempt.gold.calls), len(attempt.made), attempt.optimal_steps
    if not expected:
        yield _describe_unexpected(attempt)
    if attempt.carried_out < expected:
        yield f"{attempt.carried_out} of {expected} expected calls carried out"
    if attempt.failed_steps:
        yield f"carried out, but {attempt.failed_steps} of {steps} steps failed"
    if steps > optimal:
        yield f"carried out in {steps} steps, not {optimal}"
    if not attempt.readable:
        yield attempt.parsed.problem if attempt.finished else "not finished"
