"""Predictions at the steps of a dialog -> seed 002's metrics of the whole dialog.

The dialogs are recorded ones: at every step the model was shown what came before as it is recorded,
not as it would have done it itself. Such figures are called teacher-forced.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from agentlite.core.records import Prediction, Record
from agentlite.scoring.metrics.step_metrics import is_right

TEACHER_FORCED = "teacher-forced"


class Dialog(NamedTuple):
    """A dialog all of whose steps were asked, a rollout, or what followed on a user's turn in
    one: its metrics, and what a report slices by.
    """

    record_id: str
    metrics: dict[str, float]
    slices: dict[str, str]


class DialogCalls(NamedTuple):
    """By step: the names of the tools expected and called, and whether it was right."""

    expected: list[list[str]]
    called: list[list[str]]
    right: list[bool]


def dialogs(predictions: Sequence[Prediction], records: Mapping[str, Record]) -> list[Dialog]:
    """The dialogs whose asked steps all have a prediction, in the order of the predictions."""
    by_record: dict[str, list[Prediction]] = defaultdict(list)
    for prediction in predictions:
        by_record[prediction.record_id].append(prediction)
    return [
        _dialog(records[record_id], sorted(steps, key=lambda step: step.turn))
        for record_id, steps in by_record.items()
        if len(steps) == len(records[record_id].prompted_turns)
    ]


def plan_success_rate(dialog: DialogCalls) -> float:
    """The dialog calls the right tools in the right order.

    Calls of one step are made at once: they have no order.
    """
    return float(list(map(sorted, dialog.called)) == list(map(sorted, dialog.expected)))


def plan_partial(dialog: DialogCalls) -> float:
    """The share of the expected calls that are at their place in the dialog.

    In order, as SAGE counts: those that stand at their place in the order of those made.
    """
    expected, called = (
        [*chain.from_iterable(map(sorted, names))] for names in (dialog.expected, dialog.called)
    )
    return sum(a == b for a, b in zip(expected, called, strict=False)) / len(expected)


def step_efficiency(dialog: DialogCalls) -> float:
    """Expected calls per call made; 0 unless all expected ones were made.

    At most 1; by the names of the tools, each as often as expected.
    """
    expected, called = (
        Counter(chain.from_iterable(names)) for names in (dialog.expected, dialog.called)
    )
    return expected.total() / called.total() if expected <= called else 0.0


def end_to_end_success(dialog: DialogCalls) -> float:
    """Every step of the dialog is right.

    Its calls with their arguments, or no call where none was expected.
    """
    return float(all(dialog.right))


Metric = Callable[[DialogCalls], float]
METRICS: dict[str, Metric] = {
    metric.__name__: metric
    for metric in (plan_success_rate, plan_partial, step_efficiency, end_to_end_success)
}


def _dialog(record: Record, steps: Sequence[Prediction]) -> Dialog:
    golds = [record.gold_at(step.turn) for step in steps]
    is_planned = any(gold.calls for gold in golds) and all(
        gold.names_tools or not gold.calls for gold in golds
    )
    calls = DialogCalls(
        [[call.name for call in gold.calls] for gold in golds],
        [[call.name for call in step.calls] for step in steps],
        [is_right(step.metrics) for step in steps],
    )
    metrics = METRICS if is_planned else {"end_to_end_success": end_to_end_success}
    values = {name: metric(calls) for name, metric in metrics.items()}
    return Dialog(record.id, values, steps[0].slices)
