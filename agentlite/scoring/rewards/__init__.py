"""What a completion earns: its components in [0, 1], penalties that are counts, and feedback; and
the weighted total.

`docs/rewards.md` has the formula and the source of every component.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from agentlite.core.console import printable
from agentlite.core.errors import UserError, suggest
from agentlite.core.records import Parsed, Record
from agentlite.scoring.metrics import step_metrics
from agentlite.scoring.rewards.attempt import Attempt as Attempt
from agentlite.scoring.rewards.attempt import TraceStep as TraceStep
from agentlite.scoring.rewards.call_matching import CallUse

Component = Callable[[Attempt], float]
JUDGE = "judge"  # the component that `--judge` adds
LONGEST = 200  # characters of a feedback: the names in it are the model's


def task_completion(attempt: Attempt) -> float:
    """At a sound step, the share of calls and arguments that are right; over a whole dialog, the
    share of expected calls that succeeded.
    """
    expected, called = len(attempt.gold.calls), len(attempt.calls)
    if attempt.trace is not None:
        steps = max(expected, attempt.carried_out_calls + attempt.failed_steps)
        return attempt.carried_out_calls / steps if expected else float(not called)
    if not expected:
        return float(attempt.is_answer)
    if not attempt.is_sound:
        return 0.0
    return sum([match.grade for _, match in attempt.assignments if match]) / max(expected, called)


def tool_accuracy(attempt: Attempt) -> float:
    """F1 of the tools called against the expected ones, repeated calls counted. Where no call is
    expected, a call leaves a half.
    """
    if not attempt.gold.calls:
        return 0.5 if attempt.calls else 1.0
    common = sum([min(len(use.expected), len(use.calls)) for use in attempt.uses.values()])
    return 2 * common / (len(attempt.gold.calls) + len(attempt.calls))


def efficiency(attempt: Attempt) -> float:
    """0 unless a sound step makes every expected call; else the share of needed calls or steps."""
    expected, called = len(attempt.gold.calls), len(attempt.calls)
    if attempt.trace is not None:
        succeeded = attempt.carried_out_calls == expected if expected else not called
        return attempt.optimal_steps / max(attempt.optimal_steps, called) if succeeded else 0.0
    if not expected:
        return float(attempt.is_answer)
    done = attempt.is_sound and all(match and not match.problem for _, match in attempt.assignments)
    return expected / max(expected, called) if done else 0.0


def timing_quality(attempt: Attempt) -> float:
    """1 if it called where a call is expected, and answered where none is. An empty text is not an
    answer, and a text that shares no word with the dialog is not one either.
    """
    if attempt.gold.calls:
        return float(bool(attempt.calls))
    return float(attempt.is_answer and attempt.is_related)


def format_compliance(attempt: Attempt) -> float:
    """1 for a finished text that can be read, with calls on offer whose arguments fit."""
    if not attempt.finished:
        return 0.0
    parsed = Parsed(attempt.parsed.content, tuple(attempt.calls), attempt.parsed.problem)
    return step_metrics.format_compliance(parsed, attempt.gold, attempt.tools)


def arguments(attempt: Attempt) -> float:
    """ToolRL's match: tools, then parameter names and values call by call; as a share of the most
    that can be earned.
    """
    if not attempt.gold.calls:
        return float(not attempt.calls)
    # At most 1 for the tools, and of each expected call 1 for the names of its parameters and 1 for
    # each value. A call that was not made earns nothing, and counts with what it needs.
    counts = [(len(use.expected), len(use.calls)) for use in attempt.uses.values()]
    points = sum([min(pair) for pair in counts]) / sum([max(pair) for pair in counts])
    most_points = 1
    for expected, match in attempt.assignments:
        most_points += 1 + (
            match.named + match.missing if match else len(step_metrics.required_names(expected, {}))
        )
        if match:
            parameters = match.supplied + match.missing
            points += match.right + (match.named / parameters if parameters else 1.0)
    return points / most_points


def exact(attempt: Attempt) -> float:
    """Tool-N1's binary: 1 if the calls are the expected ones, with no cast, and the text is
    finished, sound and not too long; or if it answers.
    """
    if not attempt.is_readable or len(attempt.calls) != len(attempt.gold.calls):
        return 0.0
    if not attempt.is_sound or attempt.excess_words:
        return 0.0
    if not attempt.gold.calls and attempt.trace is None:
        return float(attempt.is_answer and attempt.is_related)
    satisfied = sum([use.count_satisfied(strict=True) for use in attempt.uses.values()])
    return float(satisfied == len(attempt.calls))


def redundant_call(attempt: Attempt) -> int:
    """Calls beyond their expected number, or exact repetitions: one that is both counts once."""
    return sum(
        [
            max(len(use.calls) - len(use.expected) if use.expected else 0, len(use.repetitions))
            for use in attempt.uses.values()
        ]
    )


COMPONENTS: dict[str, Component] = {
    component.__name__: component
    for component in (
        task_completion,
        tool_accuracy,
        efficiency,
        timing_quality,
        format_compliance,
        arguments,
        exact,
    )
}
PENALTIES: dict[str, Callable[[Attempt], int]] = {
    # calls of tools of which no call is expected
    "wrong_tool": lambda attempt: sum(
        [len(use.calls) for use in attempt.uses.values() if not use.expected]
    ),
    "redundant_call": redundant_call,
    # 1 if the text could not be read in full
    "format_error": lambda attempt: int(bool(attempt.parsed.problem)),
    # 1 for a text cut off at the limit, and 1 for every step of a trace that ran out of time
    "timeout": lambda attempt: (
        (not attempt.finished) + sum([step.timed_out for step in attempt.trace or ()])
    ),
    # 1 if a call was expected and none was made
    "missed_call": lambda attempt: int(bool(attempt.gold.calls) and not attempt.calls),
    # 1 if a step has hundreds of words more than it needs
    "excess_text": lambda attempt: int(attempt.excess_words > 0),
}
# by default
WEIGHTS = {
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
    "excess_text": -0.6,
}
# what can be said of an answer alone: a prompt needs no gold for them
WITHOUT_GOLD = frozenset({"format_compliance", "format_error", "timeout", "excess_text"})


# --- Scores ---


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


def all_have_gold(records: Iterable[Record]) -> bool:
    """Whether it is known of every step of these records what is right at it."""
    return all(gold.known for record in records for gold in record.gold.values())


def refuse_without_gold(
    records: Iterable[Record], weights: Mapping[str, float], location: str
) -> None:
    """Raises UserError 2 where prompts have no gold, and a component with a weight needs it."""
    has_gold = [all_have_gold([record]) for record in records]
    missing, without_gold = has_gold.count(False), components_without_gold(weights)
    names = [name for name in weights if weights[name] and name not in without_gold]
    if missing and names:
        raise UserError(
            f"{missing} of {len(has_gold)} prompts have no gold to compare answers with: "
            f"{', '.join(names)}.",
            "Write the gold (`gold`, the expected calls, or the right answer as last turn), or do "
            "without it: --config recipes/no-gold.yaml sets those weights to 0, and "
            "--judge URL or --rewards file.py:function adds a reward.",
            location=location,
        )


def components_without_gold(components: Mapping[str, float]) -> dict[str, float]:
    """The components, and user functions, that need no gold."""
    comparisons = WEIGHTS.keys() - WITHOUT_GOLD
    return {name: value for name, value in components.items() if name not in comparisons}


def total(components: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Not clamped: a penalty always shows."""
    return sum([weight * components[name] for name, weight in weights.items()])


def settle_weights(
    changes: Mapping[str, float],
    user_functions: Iterable[str] = (),
    *,
    defaults: Mapping[str, float] = WEIGHTS,
    penalties: Collection[str] = PENALTIES,
) -> dict[str, float]:
    """The weight of every component and penalty: as `changes` has it, or the default, which is 1
    for a user function. Raises UserError 2, also for a weight that would turn a component into its
    opposite.
    """
    weights = {**defaults, **dict.fromkeys(user_functions, 1.0)}
    for name, weight in changes.items():
        if name not in weights:
            raise UserError(f"no component '{name}'.", suggest(name, weights), location="weights")
        noun, sign = ("penalty", -1) if name in penalties else ("component", 1)
        if not math.isfinite(weight) or weight * sign < 0:
            raise UserError(
                f"{weight:g} is no weight of a {noun}.",
                f"Give a finite number, 0 or {'more' if sign > 0 else 'less'}.",
                location=f"weights.{name}",
            )
        weights[name] = float(weight)
    if not any(weights.values()):
        raise UserError(
            "all are zero: every candidate would score the same.",
            "Give one component a weight.",
            location="weights",
        )
    return weights


# --- Feedback ---


def feedback(attempt: Attempt) -> str:
    """One plain line: the first thing that is wrong, or `right`."""
    problems = _step_problems(attempt) if attempt.trace is None else _trace_problems(attempt)
    line = next(filter(None, problems), "right")
    return printable(line.replace("\n", " "))[:LONGEST]


def _step_problems(attempt: Attempt) -> Iterator[str]:
    uses = attempt.uses
    if not attempt.is_readable:
        yield attempt.parsed.problem if attempt.finished else "not finished"
    if not attempt.gold.known:
        yield "not compared: the prompt has no gold"
    if not attempt.gold.calls:
        yield _describe_unexpected_calls(attempt)
        if not attempt.is_answer:
            yield attempt.fault or "says nothing"
        if not attempt.is_related:
            yield "has no word of the dialog"
    elif not attempt.calls:
        yield f"no call where {', '.join(uses)} is expected"
    yield _tool_problem(uses)
    if repeated_tools := [name for name, use in uses.items() if use.repetitions]:
        yield f"repeats a call of {', '.join(repeated_tools)}"
    matches = [match for _, match in attempt.assignments if match]
    yield from (match.problem for match in matches)
    yield attempt.fault
    if words := attempt.excess_words:
        yield f"{words} words, more than the step needs"
    if any(match.casts for match in matches):
        yield "right once its values are cast"


def _describe_unexpected_calls(attempt: Attempt) -> str:
    return f"calls {', '.join(attempt.uses)} where no call is expected" if attempt.calls else ""


def _tool_problem(uses: Mapping[str, CallUse]) -> str:
    """Which tools are called too often, or not often enough."""
    extra = [name for name, use in uses.items() if len(use.calls) > len(use.expected)]
    missing = [name for name, use in uses.items() if len(use.calls) < len(use.expected)]
    if extra and missing:
        return f"calls {', '.join(extra)}, not {', '.join(missing)}"
    for name, use in uses.items():
        if name in extra and not use.expected:
            return f"calls {', '.join(extra)}, not expected"
        if name in (*extra, *missing):
            calls = f"{len(use.calls) or 'no'} {'calls' if len(use.calls) > 1 else 'call'}"
            return f"{calls} of {name} where {len(use.expected)} expected"
    return ""


def _trace_problems(attempt: Attempt) -> Iterator[str]:
    expected, steps, optimal = len(attempt.gold.calls), len(attempt.calls), attempt.optimal_steps
    if not expected:
        yield _describe_unexpected_calls(attempt)
    if attempt.carried_out_calls < expected:
        yield f"{attempt.carried_out_calls} of {expected} expected calls carried out"
    if attempt.failed_steps:
        yield f"carried out, but {attempt.failed_steps} of {steps} steps failed"
    if steps > optimal:
        yield f"carried out in {steps} steps, not {optimal}"
    if not attempt.is_readable:
        yield attempt.parsed.problem if attempt.finished else "not finished"
