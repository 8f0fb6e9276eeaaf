"""Whether a call was due and made, by step -> precision, recall, F1, balanced accuracy, specificity of calling."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from agentlite.metrics.intervals import Summary, middle, redrawn, summary


class Decision(NamedTuple):
    due: bool
    called: bool
    readable: bool


def timing(decisions: Sequence[Decision], seed: int) -> dict[str, Summary | int | None]:
    """The metrics of calling as the positive class, and how many texts could not be read.

    None where there is nothing to measure it on: no call made has no precision. Text that cannot be read is never a
    right "no call": where none was due it lowers `specificity`.
    """
    called = [float(d.due) for d in decisions if d.called]
    due = [float(d.called) for d in decisions if d.due]
    not_due = [float(_right_no_call(d)) for d in decisions if not d.due]
    return {
        "timing_precision": summary(called, seed) if called else None,
        "recall": summary(due, seed) if due else None,
        "specificity": summary(not_due, seed) if not_due else None,
        "f1": _resampled(f1, decisions, seed),
        "balanced_accuracy": _resampled(balanced_accuracy, decisions, seed),
        "unreadable": sum(not d.readable for d in decisions),
        "count": len(decisions),
    }


def f1(decisions: Sequence[Decision]) -> float | None:
    """The harmonic mean of precision and recall. None if no call was due and none made."""
    due, called = sum(d.due for d in decisions), sum(d.called for d in decisions)
    return 2 * sum(d.due and d.called for d in decisions) / (due + called) if due + called else None


def balanced_accuracy(decisions: Sequence[Decision]) -> float | None:
    """The mean of recall and specificity. None unless there are steps of both kinds."""
    due = sum(d.due for d in decisions)
    if not 0 < due < len(decisions):
        return None
    recall = sum(d.due and d.called for d in decisions) / due
    return (recall + sum(map(_right_no_call, decisions)) / (len(decisions) - due)) / 2


def _right_no_call(decision: Decision) -> bool:
    return not decision.due and not decision.called and decision.readable


def _resampled(
    measure: Callable[[Sequence[Decision]], float | None], decisions: Sequence[Decision], seed: int
) -> Summary | None:
    mean = measure(decisions)
    if mean is None:
        return None
    low, high = middle(value for drawn in redrawn(sorted(decisions), seed) if (value := measure(drawn)) is not None)
    return Summary(mean=mean, std=None, count=len(decisions), low=low, high=high, interval="bootstrap")
