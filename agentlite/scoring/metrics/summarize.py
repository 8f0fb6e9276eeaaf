"""Predictions -> the means of their metrics; several models at the same steps -> differences."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Protocol, TypeVar

import msgspec

from agentlite.core.records import Prediction, Step
from agentlite.scoring.metrics import tool_calls
from agentlite.scoring.metrics.call_timing import Decision, timing
from agentlite.scoring.metrics.confidence import Summary, paired_differences, summary
from agentlite.scoring.metrics.dialogs import HOW, METRICS, Dialog
from agentlite.scoring.metrics.model_metrics import (
    Comparison,
    Metrics,
    ModelDifference,
    SliceMetrics,
)
from agentlite.scoring.metrics.wrong_answers import count_kinds

S = TypeVar("S", bound="Sliceable")
Scores = Mapping[Step, Mapping[str, float]]  # the metrics of each step; see scores
WHOLE = -1  # the turn of a step that stands for a whole dialog
EXPECTED = "expected"  # among a prediction's metrics without being one: 1 if a call is expected


class Sliceable(Protocol):
    """A prediction or a dialog: it has metrics and a value of each slice."""

    @property
    def metrics(self) -> Mapping[str, float]: ...

    @property
    def slices(self) -> Mapping[str, str]: ...


def summarize(predictions: Sequence[Prediction], whole: Sequence[Dialog], seed: int) -> Metrics:
    """The metrics of steps and of dialogs with their intervals, over all and by slice; timing;
    problems; wrong answers by kind.

    Raises KeyError if a prediction does not say whether a call is expected.
    """
    decisions = [
        Decision(p.metrics[EXPECTED] == 1, bool(p.calls), not p.problem) for p in predictions
    ]
    return Metrics(
        prompts=len(predictions),
        metrics={**dict.fromkeys(tool_calls.METRICS), **summaries(predictions, seed)},
        dialogs={**dict.fromkeys(METRICS), **summaries(whole, seed)},
        dialogs_are=HOW,
        timing=timing(decisions, seed),
        by=by_slice(predictions, whole, seed),
        problems=dict(sorted(Counter(p.problem for p in predictions if p.problem).items())),
        wrong_answers=count_kinds(p.wrong for p in predictions),
    )


def compare(by_model: Mapping[str, Scores], seed: int) -> Comparison:
    """What each model has over every earlier one, on the steps that all of them answered."""
    common = set.intersection(*(set(steps) for steps in by_model.values())) if by_model else set()
    differences = differences_of(combinations(by_model, 2), by_model, seed)
    prompts = sum(step.turn != WHOLE for step in common)
    return Comparison(prompts=prompts, models=list(by_model), differences=differences)


def differences_of(
    pairs: Iterable[tuple[str, str]],
    by_model: Mapping[str, Scores],
    seed: int,
    metrics: Sequence[str] = (),
) -> list[ModelDifference]:
    """What the second model of each pair has over the first, on the steps that all models answered,
    in `metrics`, or in all: one comparison, whose p are corrected together.
    """
    common = set.intersection(*(set(steps) for steps in by_model.values())) if by_model else set()
    answers = {model: {step: steps[step] for step in common} for model, steps in by_model.items()}
    compared = [
        (name, first, second, values)
        for first, second in pairs
        for name, values in _common_values(answers[first], answers[second])
        if not metrics or name in metrics
    ]
    return [
        ModelDifference(metric=name, first=first, second=second, **msgspec.structs.asdict(found))
        for (name, first, second, _), found in zip(
            compared, paired_differences([values for *_, values in compared], seed), strict=True
        )
    ]


def scores(
    predictions: Sequence[Prediction], whole: Sequence[Dialog]
) -> dict[Step, Mapping[str, float]]:
    """The metrics of each step, and those of each dialog."""
    of_dialogs = {Step(dialog.record_id, WHOLE): dialog.metrics for dialog in whole}
    return {**of_dialogs, **{prediction.step: prediction.metrics for prediction in predictions}}


def _common_values(
    before: Scores, after: Scores
) -> Iterator[tuple[str, tuple[dict[Step, float], dict[Step, float]]]]:
    """Every metric that both have at some step, with the values of each."""
    for name in _names(before.values()):
        first, second = (
            {step: metrics[name] for step, metrics in steps.items() if name in metrics}
            for steps in (before, after)
        )
        if first.keys() & second.keys():
            yield name, (first, second)


def by_slice(
    predictions: Sequence[S], whole: Sequence[Dialog], seed: int
) -> dict[str, dict[str, SliceMetrics]]:
    """By slice and value: the metrics of the steps and the dialogs that have it."""
    slices: dict[str, dict[str, SliceMetrics]] = {}
    for name in sorted({name for prediction in predictions for name in prediction.slices}):
        dialogs = _members(whole, name)
        slices[name] = {
            value: SliceMetrics(
                len(steps), summaries(steps, seed), summaries(dialogs.get(value, []), seed)
            )
            for value, steps in sorted(_members(predictions, name).items())
        }
    return slices


def _members(scored: Iterable[S], name: str) -> dict[str, list[S]]:
    members: dict[str, list[S]] = defaultdict(list)
    for one in scored:
        if name in one.slices:
            members[one.slices[name]].append(one)
    return members


def summaries(scored: Sequence[Sliceable], seed: int) -> dict[str, Summary]:
    """Each metric over those that have it."""
    return {
        name: summary([one.metrics[name] for one in scored if name in one.metrics], seed)
        for name in _names(one.metrics for one in scored)
    }


def _names(metrics: Iterable[Mapping[str, float]]) -> list[str]:
    return sorted({name for of_one in metrics for name in of_one} - {EXPECTED})
