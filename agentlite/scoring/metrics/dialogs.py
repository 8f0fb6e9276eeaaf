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

HOW = "teacher-forced"


class Dialog(NamedTuple):
    """A dialog all of whose steps were asked, a rollout, or what followed on a user's turn in
    one: its metrics, and what a report slices by.
    """

    record_id: str
    metrics: dict[str, float]
    slices: dict[str, str]


class DialogCalls(NamedTuple):
    """The tools expected and those called, in order, one list per step; and whether each step was
    right."""

    expected: list[list[str]]
    called: list[list[str]]
    right: list[bool]


def dialogs(predictions: Sequence[Prediction], records: Mapping[str, Record]) -> list[Dialog]:
    """The dialogs whose asked steps all have a prediction, in the order of the predictions."""
    by_record: dict[str, list[Prediction]] = defaultdict(list)
    for prediction in predictions:
        by_record[prediction.record_id].append(prediction)
    return [
        _dialog(records[record_id], sorted(steps, key=lambda one: one.turn))
        for record_id, steps in by_record.items()
        if len(steps) == len(records[record_id].prompted_turns)
    ]


def plan_success_rate(taken: DialogCalls) -> float:
    """The dialog calls the right tools in the right order.

    Calls of one step are made at once: they have no order.
    """
    return float(list(map(sorted, taken.called)) == list(map(sorted, taken.expected)))


def plan_partial(taken: DialogCalls) -> float:
    """The share of the expected calls that are at their place in the dialog.

    In order, as SAGE counts: those that stand at their place in the order of those made.
    """
    expected, called = (
        [*chain.from_iterable(map(sorted, names))] for names in (taken.expected, taken.called)
    )
    return sum(one == other for one, other in zip(expected, called, strict=False)) / len(expected)


def step_efficiency(taken: DialogCalls) -> float:
    """Expected calls per call made; 0 unless all expected ones were made.

    At most 1; by the names of the tools, each as often as expected.
    """
    expected, called = (
        Counter(chain.from_iterable(names)) for names in (taken.expected, taken.called)
    )
    return expected.total() / called.total() if expected <= called else 0.0


def end_to_end_success(taken: DialogCalls) -> float:
    """Every step of the dialog is right.

    Its calls with their arguments, or no call where none was expected.
    """
    return float(all(taken.right))


Metric = Callable[[DialogCalls], float]
METRICS: dict[str, Metric] = {
    metric.__name__: metric
    for metric in (plan_success_rate, plan_partial, step_efficiency, end_to_end_success)
}


def _dialog(record: Record, steps: Sequence[Prediction]) -> Dialog:
    gold = [record.gold_at(one.turn) for one in steps]
    is_planned = any(one.calls for one in gold) and all(
        one.names_tools or not one.calls for one in gold
    )
    taken = DialogCalls(
        [[call.name for call in one.calls] for one in gold],
        [[call.name for call in one.calls] for one in steps],
        [is_right(one.metrics) for one in steps],
    )
    metrics = METRICS if is_planned else {"end_to_end_success": end_to_end_success}
    values = {name: metric(taken) for name, metric in metrics.items()}
    return Dialog(record.id, values, steps[0].slices)
