"""Precision, recall, F1, balanced accuracy and specificity of the decision to call a tool."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from agentlite.scoring.metrics.confidence import Summary, bootstrapped, redrawn_sums, summary


class Decision(NamedTuple):
    expected: bool
    called: bool
    readable: bool

    @property
    def rightly_silent(self) -> bool:
        return not self.expected and not self.called and self.readable


class TimingCounts(NamedTuple):
    """At how many of all steps a call was expected, was made, both, and was rightly not made."""

    expected: float
    called: float
    both: float
    right_no_call: float
    steps: float


FIGURES = {
    "timing_precision": "Of the calls that were made, the share where a call was needed.",
    "recall": "Of the questions that need a tool, the share with a call.",
    "f1": "The harmonic mean of timing precision and recall.",
    "balanced_accuracy": "The mean of recall and specificity.",
    "specificity": "Of the questions that need no tool, the share without a call.",
}


def timing(decisions: Sequence[Decision], seed: int) -> dict[str, Summary | int | None]:
    """The figures of calling as the positive class, over `count` steps; `unreadable`: how many
    texts could not be read. A figure is None where there is nothing to measure it on: no call made
    has no precision.

    Text that cannot be read is never a right "no call": where no call is expected it lowers
    `specificity`.
    """

    def share(values: list[bool]) -> Summary | None:
        return summary([float(value) for value in values], seed) if values else None

    return {
        "balanced_accuracy": _resampled(balanced_accuracy, decisions, seed),
        "count": len(decisions),
        "f1": _resampled(f1, decisions, seed),
        "recall": share([d.called for d in decisions if d.expected]),
        "specificity": share([d.rightly_silent for d in decisions if not d.expected]),
        "timing_precision": share([d.expected for d in decisions if d.called]),
        "unreadable": sum(not d.readable for d in decisions),
    }


def f1(counts: TimingCounts) -> float | None:
    """The harmonic mean of precision and recall. None if no call was expected and none made."""
    calls = counts.expected + counts.called
    return 2 * counts.both / calls if calls else None


def balanced_accuracy(counts: TimingCounts) -> float | None:
    """The mean of recall and specificity. None unless there are steps of both kinds."""
    if not 0 < counts.expected < counts.steps:
        return None
    specificity = counts.right_no_call / (counts.steps - counts.expected)
    return (counts.both / counts.expected + specificity) / 2


def _resampled(
    measure: Callable[[TimingCounts], float | None], decisions: Sequence[Decision], seed: int
) -> Summary | None:
    rows = [
        (d.expected, d.called, d.expected and d.called, d.rightly_silent, True) for d in decisions
    ]
    mean = measure(TimingCounts(*map(sum, zip(*rows, strict=True)))) if rows else None
    if mean is None:
        return None
    resampled = (measure(TimingCounts(*sums)) for sums in redrawn_sums(rows, seed).tolist())
    return bootstrapped(mean, (one for one in resampled if one is not None), len(decisions))
