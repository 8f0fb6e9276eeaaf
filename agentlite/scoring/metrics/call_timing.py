"""Whether a call was due and made, by step -> precision, recall, F1, balanced accuracy, specificity
of calling.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from agentlite.scoring.metrics.confidence import Summary, middle, redrawn_sums, summary


class Decision(NamedTuple):
    expected: bool
    called: bool
    readable: bool


class TimingCounts(NamedTuple):
    """Of how many steps a call was due, was made, both, and was rightly left undone, of all."""

    expected: float
    called: float
    both: float
    right_no_call: float
    steps: float


def timing(decisions: Sequence[Decision], seed: int) -> dict[str, Summary | int | None]:
    """The metrics of calling as the positive class, and how many texts could not be read.

    None where there is nothing to measure it on: no call made has no precision. Text that cannot be
    read is never a right "no call": where none was due it lowers `specificity`.
    """
    called = [float(d.expected) for d in decisions if d.called]
    expected = [float(d.called) for d in decisions if d.expected]
    unexpected = [float(_right_no_call(d)) for d in decisions if not d.expected]
    return {
        "timing_precision": summary(called, seed) if called else None,
        "recall": summary(expected, seed) if expected else None,
        "specificity": summary(unexpected, seed) if unexpected else None,
        "f1": _resampled(f1, decisions, seed),
        "balanced_accuracy": _resampled(balanced_accuracy, decisions, seed),
        "unreadable": sum(not d.readable for d in decisions),
        "count": len(decisions),
    }


def f1(counts: TimingCounts) -> float | None:
    """The harmonic mean of precision and recall. None if no call was due and none made."""
    return (
        2 * counts.both / (counts.expected + counts.called)
        if counts.expected + counts.called
        else None
    )


def balanced_accuracy(counts: TimingCounts) -> float | None:
    """The mean of recall and specificity. None unless there are steps of both kinds."""
    if not 0 < counts.expected < counts.steps:
        return None
    return (
        counts.both / counts.expected + counts.right_no_call / (counts.steps - counts.expected)
    ) / 2


def _right_no_call(decision: Decision) -> bool:
    return not decision.expected and not decision.called and decision.readable


def _resampled(
    measure: Callable[[TimingCounts], float | None], decisions: Sequence[Decision], seed: int
) -> Summary | None:
    rows = [
        (d.expected, d.called, d.expected and d.called, _right_no_call(d), True) for d in decisions
    ]
    mean = measure(TimingCounts(*map(sum, zip(*rows, strict=True)))) if rows else None
    if mean is None:
        return None
    drawn = (measure(TimingCounts(*sums)) for sums in redrawn_sums(rows, seed))
    low, high = middle(value for value in drawn if value is not None)
    return Summary(
        mean=mean, std=None, count=len(decisions), low=low, high=high, interval="bootstrap"
    )
