"""Predictions -> metrics.json; the predictions of several models at the same steps -> compare.json."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from msgspec import to_builtins

from agentlite.metrics.intervals import paired_difference, summary
from agentlite.metrics.timing import Decision, timing
from agentlite.records import Prediction, Step

DUE = "due"  # stands among a prediction's metrics without being one: 1 if a call was due, else 0


def summarize(predictions: Sequence[Prediction], seed: int) -> dict[str, Any]:
    """What metrics.json holds: every metric with its interval, over all prompts and by slice; timing; problems.

    Raises KeyError if a prediction does not say whether a call was due.
    """
    decisions = [Decision(p.metrics[DUE] == 1, bool(p.calls), not p.problem) for p in predictions]
    return {
        **_counted(predictions, seed),
        "timing": to_builtins(dict(sorted(timing(decisions, seed).items()))),
        "by": {name: _by_slice(predictions, name, seed) for name in sorted({n for p in predictions for n in p.slices})},
        "problems": dict(sorted(Counter(p.problem for p in predictions if p.problem).items())),
    }


def compare(by_model: Mapping[str, Sequence[Prediction]], seed: int) -> dict[str, Any]:
    """What compare.json holds: what each model has over every earlier one, on the prompts all of them answered."""
    metrics = {model: {p.step: p.metrics for p in predictions} for model, predictions in by_model.items()}
    common = set.intersection(*(set(steps) for steps in metrics.values())) if metrics else set()
    answers = [(model, {step: steps[step] for step in common}) for model, steps in metrics.items()]
    differences = [row for earlier, later in combinations(answers, 2) for row in _differences(earlier, later, seed)]
    return {"prompts": len(common), "models": list(by_model), "differences": differences}


def _differences(
    first: tuple[str, Mapping[Step, Mapping[str, float]]],
    second: tuple[str, Mapping[Step, Mapping[str, float]]],
    seed: int,
) -> Iterator[dict[str, Any]]:
    for name in _names(first[1].values()):
        before, after = ({step: m[name] for step, m in steps.items() if name in m} for _, steps in (first, second))
        if before.keys() & after.keys():
            difference = to_builtins(paired_difference(before, after, seed))
            yield {"metric": name, "first": first[0], "second": second[0], **difference}


def _by_slice(predictions: Sequence[Prediction], name: str, seed: int) -> dict[str, Any]:
    members: dict[str, list[Prediction]] = {}
    for prediction in predictions:
        if name in prediction.slices:
            members.setdefault(prediction.slices[name], []).append(prediction)
    return {value: _counted(members[value], seed) for value in sorted(members)}


def _counted(predictions: Sequence[Prediction], seed: int) -> dict[str, Any]:
    values = {
        name: [p.metrics[name] for p in predictions if name in p.metrics]
        for name in _names(p.metrics for p in predictions)
    }
    metrics = {name: to_builtins(summary(values[name], seed)) for name in values}
    return {"prompts": len(predictions), "metrics": metrics}


def _names(metrics: Iterable[Mapping[str, float]]) -> list[str]:
    return sorted({name for of_one in metrics for name in of_one} - {DUE})
