"""Predictions -> the figures of metrics.json; several models at the same steps -> differences."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Protocol

import msgspec
from msgspec import UNSET

from agentlite.core.records import Parsed, Prediction, Record, Step
from agentlite.scoring.metrics import tool_calls
from agentlite.scoring.metrics.bfcl import category_of, group_scores
from agentlite.scoring.metrics.call_timing import Decision, timing
from agentlite.scoring.metrics.confidence import Summary, paired_differences, summary
from agentlite.scoring.metrics.dialogs import HOW, METRICS, Dialog
from agentlite.scoring.metrics.model_metrics import (
    BFCL,
    Comparison,
    Metrics,
    ModelDifference,
    SliceMetrics,
)
from agentlite.scoring.metrics.retrieval_loss import retrieval_loss
from agentlite.scoring.metrics.tool_f1 import AnsweredStep, parse_problems, tool_metrics
from agentlite.scoring.metrics.wrong_answers import count_kinds

Scores = Mapping[Step, Mapping[str, float]]  # the metrics of each step; see scores
WHOLE = -1  # the turn of a step that stands for a whole dialog
EXPECTED = "expected"  # among a prediction's metrics without being one: 1 if a call is expected


class Sliceable(Protocol):
    """A prediction or a dialog: it has metrics and a value of each slice."""

    @property
    def metrics(self) -> Mapping[str, float]: ...

    @property
    def slices(self) -> Mapping[str, str]: ...


def figures(
    predictions: Sequence[Prediction],
    whole: Sequence[Dialog],
    records: Mapping[str, Record],
    seed: int,
) -> Metrics:
    """Steps and dialogs with their intervals, over all and by slice; timing, problems and wrong
    answers by kind; names and parameters of calls; BFCL's groups over the records that are BFCL's
    own, if there are any; what retrieval cost.

    The groups that need more than the predictions are left out: judge, passes, forgetting,
    self-cognition. Raises KeyError if a prediction does not say whether a call is expected.
    """
    decisions = [
        Decision(p.metrics[EXPECTED] == 1, bool(p.calls), not p.problem) for p in predictions
    ]
    answers = [_answer(prediction, records[prediction.record_id]) for prediction in predictions]
    metrics = Metrics(
        prompts=len(predictions),
        metrics={**dict.fromkeys(tool_calls.METRICS), **summaries(predictions, seed)},
        dialogs={**dict.fromkeys(METRICS), **summaries(whole, seed)},
        dialogs_are=HOW,
        timing=timing(decisions, seed),
        by=by_slice(predictions, whole, seed),
        problems=dict(sorted(Counter(p.problem for p in predictions if p.problem).items())),
        wrong_answers=count_kinds(p.wrong for p in predictions),
        tools=tool_metrics(answers, seed),
        parse_problems=parse_problems([prediction.problem for prediction in predictions], seed),
        retrieval=retrieval_loss(predictions, records, seed) or UNSET,
    )
    verdicts: dict[str, list[float]] = defaultdict(list)
    for prediction in predictions:
        if BFCL in prediction.metrics:
            category = category_of(records[prediction.record_id])
            verdicts[category].append(prediction.metrics[BFCL])
    if not verdicts:
        return metrics
    scores = group_scores(verdicts)
    by_category = {category: summary(verdicts[category], seed) for category in sorted(verdicts)}
    return msgspec.structs.replace(
        metrics,
        bfcl={**scores.figures, **by_category},
        bfcl_is=scores.name,
        bfcl_not_measured=scores.not_measured,
    )


def _answer(prediction: Prediction, record: Record) -> AnsweredStep:
    """With the calls that the record has before the step: the model was shown these."""
    before = record.messages[: prediction.turn]
    return AnsweredStep(
        Parsed("", prediction.calls, prediction.problem),
        record.expected(prediction.turn),
        record.tools,
        tuple(call for message in before for call in message.calls),
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
    compared = []
    for first, second in pairs:
        for name in _names(answers[first].values()):
            before, after = (_values(name, answers[model]) for model in (first, second))
            if before.keys() & after.keys() and (not metrics or name in metrics):
                compared.append((name, first, second, (before, after)))
    differences = paired_differences([values for *_, values in compared], seed)
    return [
        ModelDifference(metric=name, first=first, second=second, **msgspec.structs.asdict(one))
        for (name, first, second, _), one in zip(compared, differences, strict=True)
    ]


def _values(name: str, steps: Scores) -> dict[Step, float]:
    return {step: metrics[name] for step, metrics in steps.items() if name in metrics}


def scores(
    predictions: Sequence[Prediction], whole: Sequence[Dialog]
) -> dict[Step, Mapping[str, float]]:
    """The metrics of each step, and those of each dialog."""
    of_dialogs = {Step(dialog.record_id, WHOLE): dialog.metrics for dialog in whole}
    return {**of_dialogs, **{prediction.step: prediction.metrics for prediction in predictions}}


def by_slice(
    predictions: Sequence[Sliceable], whole: Sequence[Dialog], seed: int
) -> dict[str, dict[str, SliceMetrics]]:
    """By slice and value: the metrics of the steps and the dialogs that have it."""
    slices: dict[str, dict[str, SliceMetrics]] = {}
    for name in sorted({name for prediction in predictions for name in prediction.slices}):
        steps, dialogs = _members(predictions, name), _members(whole, name)
        slices[name] = {
            value: SliceMetrics(
                len(steps[value]), summaries(steps[value], seed), summaries(dialogs[value], seed)
            )
            for value in sorted(steps)
        }
    return slices


def _members(scored: Sequence[Sliceable], name: str) -> dict[str, list[Sliceable]]:
    members: dict[str, list[Sliceable]] = defaultdict(list)
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
