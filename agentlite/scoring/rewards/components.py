"""The components of a reward, each in [0, 1], and its penalties, each a count: a function each."""

from collections.abc import Callable

from agentlite.core.records import Parsed
from agentlite.scoring.metrics import step_metrics
from agentlite.scoring.rewards.attempt import Attempt

Component = Callable[[Attempt], float]


def task_completion(attempt: Attempt) -> float:
    """At a sound step, the share of calls and arguments that are right; over a whole dialog, the
    share of expected calls that succeeded.
    """
    expected, made = len(attempt.gold.calls), len(attempt.made)
    if attempt.trace is not None:
        steps = max(expected, attempt.carried_out + attempt.failed_steps)
        return attempt.carried_out / steps if expected else float(not made)
    if not expected:
        return float(attempt.answers)
    if not attempt.is_sound:
        return 0.0
    return sum([fit.grade for _, fit in attempt.matches if fit]) / max(expected, made)


def tool_accuracy(attempt: Attempt) -> float:
    """F1 of the tools called against the expected ones, repeated calls counted. Where no call is
    expected, a call leaves a half.
    """
    if not attempt.gold.calls:
        return 0.5 if attempt.made else 1.0
    common = sum([min(len(use.expected), len(use.made)) for use in attempt.uses.values()])
    return 2 * common / (len(attempt.gold.calls) + len(attempt.made))


def efficiency(attempt: Attempt) -> float:
    """0 unless every expected call was made, in a sound step; else the share of needed calls, or
    steps.
    """
    expected, made = len(attempt.gold.calls), len(attempt.made)
    if attempt.trace is not None:
        succeeded = attempt.carried_out == expected if expected else not made
        return attempt.optimal_steps / max(attempt.optimal_steps, made) if succeeded else 0.0
    if not expected:
        return float(attempt.answers)
    done = attempt.is_sound and all(fit and not fit.problem for _, fit in attempt.matches)
    return expected / max(expected, made) if done else 0.0


def timing_quality(attempt: Attempt) -> float:
    """1 if it called where a call is expected, and answered where none is. An empty text is not an
    answer, and a text that shares no word with the dialog is not one either.
    """
    if attempt.gold.calls:
        return float(bool(attempt.made))
    return float(attempt.answers and attempt.is_related)


def format_compliance(attempt: Attempt) -> float:
    """1 if the text is finished and can be read, every tool called is offered, and the arguments
    fit their schemas.
    """
    parsed = attempt.parsed
    if attempt.trace is not None:
        parsed = Parsed(parsed.content, tuple(attempt.made), parsed.problem)
    return (
        step_metrics.format_compliance(parsed, attempt.gold, attempt.tools)
        if attempt.finished
        else 0.0
    )


def arguments(attempt: Attempt) -> float:
    """ToolRL's match: tools, then parameter names and values call by call; as a share of the most
    that can be earned.
    """
    if not attempt.gold.calls:
        return float(not attempt.made)
    numbers = [(len(use.expected), len(use.made)) for use in attempt.uses.values()]
    earned = sum([min(pair) for pair in numbers]) / sum([max(pair) for pair in numbers])
    most = 1
    for expected, fit in attempt.matches:
        most += 1 + (
            fit.named + fit.missing if fit else len(step_metrics.required_names(expected, {}))
        )
        if fit:
            every = fit.supplied + fit.missing
            earned += fit.right + (fit.named / every if every else 1.0)
    return earned / most


def exact(attempt: Attempt) -> float:
    """Tool-N1's binary: 1 if the calls are the expected ones, with no cast, and the text is
    finished, sound and not too long; or if it answers.
    """
    if not attempt.readable or len(attempt.made) != len(attempt.gold.calls):
        return 0.0
    if not attempt.is_sound or attempt.excess_words:
        return 0.0
    if not attempt.gold.calls and attempt.trace is None:
        return float(attempt.answers and attempt.is_related)
    return float(sum([use.hits(strict=True) for use in attempt.uses.values()]) == len(attempt.made))


def wrong_tool(attempt: Attempt) -> int:
    """Calls of tools of which no call is expected."""
    return sum([len(use.made) for use in attempt.uses.values() if not use.expected])


def redundant_call(attempt: Attempt) -> int:
    """Calls of an expected tool beyond their number, and exact repetitions; a call that is both
    counts once.
    """
    if len(attempt.made) < 2:
        return 0
    return sum(
        [
            max(len(use.made) - len(use.expected) if use.expected else 0, len(use.repeated))
            for use in attempt.uses.values()
        ]
    )


def format_error(attempt: Attempt) -> int:
    """1 if the text could not be read in full."""
    return int(bool(attempt.parsed.problem))


def excess_text(attempt: Attempt) -> int:
    """1 if a step has hundreds of words more than it needs."""
    return int(attempt.excess_words > 0)


def timeout(attempt: Attempt) -> int:
    """1 for a text cut off at the limit, and 1 for every step of a trace that ran out of time."""
    return (not attempt.finished) + sum([step.timed_out for step in attempt.trace or ()])


def missed_call(attempt: Attempt) -> int:
    """1 if a call was expected and none was made."""
    return int(bool(attempt.gold.calls) and not attempt.made)


# with their default weights
_COMPONENTS: dict[Component, float] = {
    task_completion: 0.40,
    tool_accuracy: 0.25,
    efficiency: 0.15,
    timing_quality: 0.10,
    format_compliance: 0.10,
    arguments: 0.0,
    exact: 0.0,
}
_PENALTIES: dict[Callable[[Attempt], int], float] = {
    wrong_tool: -0.3,
    redundant_call: -0.2,
    format_error: -0.1,
    timeout: -0.5,
    missed_call: -0.3,
    excess_text: -0.6,
}
COMPONENTS = {component.__name__: component for component in _COMPONENTS}
PENALTIES = {penalty.__name__: penalty for penalty in _PENALTIES}
WEIGHTS = {one.__name__: weight for one, weight in (*_COMPONENTS.items(), *_PENALTIES.items())}
# what can be said of an answer alone: a prompt needs no gold for them
WITHOUT_GOLD = frozenset({"format_compliance", "format_error", "timeout", "excess_text"})
