"""Predictions -> metrics.json; the predictions of several models at the same steps ->
compare.json.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Protocol, TypeVar

from msgspec import to_builtins

from agentlite.core.records import Prediction, Step
from agentlite.scoring.metrics import tool_calls
from agentlite.scoring.metrics.call_timing import Decision, timing
from agentlite.scoring.metrics.confidence import mcnemar, paired_difference, summary
from agentlite.scoring.metrics.dialogs import HOW, METRICS, Dialog

S = TypeVar("S", bound="Sliceable")
WHOLE = -1  # stands for a turn where all of a dialog is meant
BFCL = "bfcl"  # the verdict of BFCL's own rules, where a record is BFCL's
DUE = "due"  # stands among a prediction's metrics without being one: 1 if a call was due, else 0


class Sliceable(Protocol):
    """What has metrics and can be sliced: a prediction, or a dialog."""

    @property
    def metrics(self) -> Mapping[str, float]: ...

    @property
    def slices(self) -> Mapping[str, str]: ...


def summarize(
    predictions: Sequence[Prediction], whole: Sequence[Dialog], seed: int
) -> dict[str, Any]:
    """What metrics.json holds: the metrics of steps and of dialogs with their intervals, over all
    and by slice; timing; problems. None is a figure that there was nothing to measure on.

    Raises KeyError if a prediction does not say whether a call was due.
    """
    decisions = [Decision(p.metrics[DUE] == 1, bool(p.calls), not p.problem) for p in predictions]
    return {
        "prompts": len(predictions),
        "metrics": {**dict.fromkeys(tool_calls.METRICS), **_summaries(predictions, seed)},
        "dialogs": {**dict.fromkeys(METRICS), **_summaries(whole, seed)},
        "dialogs_are": HOW,
        "timing": to_builtins(dict(sorted(timing(decisions, seed).items()))),
        "by": _by(predictions, whole, seed),
        "problems": dict(sorted(Counter(p.problem for p in predictions if p.problem).items())),
    }


def compare(
    by_model: Mapping[str, Mapping[Step, Mapping[str, float]]], seed: int
) -> dict[str, Any]:
    """What compare.json holds: what each model has over every earlier one, on what all of them
    answered. See scores.
    """
    common = set.intersection(*(set(steps) for steps in by_model.values())) if by_model else set()
    answers = [(model, {step: steps[step] for step in common}) for model, steps in by_model.items()]
    differences = [
        row
        for earlier, later in combinations(answers, 2)
        for row in _differences(earlier, later, seed)
    ]
    prompts = sum(step.turn != WHOLE for step in common)
    return {"prompts": prompts, "models": list(by_model), "differences": differences}


def scores(
    predictions: Sequence[Prediction], whole: Sequence[Dialog]
) -> dict[Step, Mapping[str, float]]:
    """The metrics of each step, and those of each dialog."""
    found: dict[Step, Mapping[str, float]] = {
        Step(one.record_id, WHOLE): one.metrics for one in whole
    }
    return found | {one.step: one.metrics for one in predictions}


def _differences(
    first: tuple[str, Mapping[Step, Mapping[str, float]]],
    second: tuple[str, Mapping[Step, Mapping[str, float]]],
    seed: int,
) -> Iterator[dict[str, Any]]:
    for name in _names(first[1].values()):
        before, after = (
            {step: m[name] for step, m in steps.items() if name in m}
            for _, steps in (first, second)
        )
        if before.keys() & after.keys():
            difference = to_builtins(paired_difference(before, after, seed))
            yield {
                "metric": name,
                "first": first[0],
                "second": second[0],
                **difference,
                "mcnemar": mcnemar(before, after),
            }


def _by(predictions: Sequence[Prediction], whole: Sequence[Dialog], seed: int) -> dict[str, Any]:
    """By slice and value: the metrics of the steps and the dialogs in it."""
    names = sorted({name for one in predictions for name in one.slices})
    return {
        name: {
            value: {
                "prompts": len(steps),
                "metrics": _summaries(steps, seed),
                "dialogs": _summaries(_members(whole, name).get(value, []), seed),
            }
            for value, steps in sorted(_members(predictions, name).items())
        }
        for name in names
    }


def _members(scored: Iterable[S], name: str) -> dict[str, list[S]]:
    members: dict[str, list[S]] = defaultdict(list)
    for one in scored:
        if name in one.slices:
            members[one.slices[name]].append(one)
    return members


def _summaries(scored: Sequence[Sliceable], seed: int) -> dict[str, Any]:
    return {
        name: to_builtins(
            summary([one.metrics[name] for one in scored if name in one.metrics], seed)
        )
        for name in _names(one.metrics for one in scored)
    }


def _names(metrics: Iterable[Mapping[str, float]]) -> list[str]:
    return sorted({name for of_one in metrics for name in of_one} - {DUE})
