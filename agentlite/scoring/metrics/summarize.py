"""Predictions -> the figures of metrics.json; several models at the same steps -> differences."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import comb
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from agentlite.core.records import Prediction, Record, Step
from agentlite.scoring.metrics import call_shares, dialogs, step_metrics
from agentlite.scoring.metrics.bfcl import category_of, group_scores
from agentlite.scoring.metrics.confidence import (
    Difference,
    Summary,
    paired_differences,
    ratios,
    summary,
)
from agentlite.scoring.metrics.dialogs import Dialog
from agentlite.scoring.metrics.figures import BFCL, Json, Metrics

Scores = Mapping[Step, Mapping[str, float]]  # the metrics of each step; see scores
WHOLE = -1  # the turn of a step that stands for a whole dialog
RETRIEVED = "retrieved"  # in the meta of a record: how its tools were retrieved


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
    self-cognition.
    """
    decisions, counts = [], []
    verdicts: dict[str, list[float]] = defaultdict(list)
    for one in predictions:
        record = records[one.record_id]
        gold = record.gold_at(one.turn)
        earlier = [call for message in record.messages[: one.turn] for call in message.calls]
        decisions.append(call_shares.decide(one.calls, gold, one.problem))
        counts.append(call_shares.count(one.calls, gold, record.tools, earlier))
        if BFCL in one.metrics:
            verdicts[category_of(record)].append(one.metrics[BFCL])
    problems = Counter(one.problem for one in predictions if one.problem)
    wrong = Counter(one.wrong for one in predictions)
    return Metrics(
        prompts=len(predictions),
        metrics={**dict.fromkeys(step_metrics.METRICS), **summaries(predictions, seed)},
        dialogs={**dict.fromkeys(dialogs.METRICS), **summaries(whole, seed)},
        dialogs_are=dialogs.HOW,
        timing={**call_shares.timing(decisions, seed), "unreadable": problems.total()},
        by=by_slice(predictions, whole, seed),
        problems=dict(sorted(problems.items())),
        wrong_answers={kind: wrong[kind] for kind in step_metrics.WRONG_KINDS if wrong[kind]},
        tools=ratios(counts, call_shares.SHARES, seed),
        parse_problems={
            problem: summary([float(one.problem == problem) for one in predictions], seed)
            for problem, _ in problems.most_common()
        },
        retrieval=retrieval_loss(predictions, records, seed) or UNSET,
        **(group_scores(verdicts, seed) if verdicts else {}),
    )


def by_slice(
    predictions: Sequence[Prediction | Dialog], whole: Sequence[Dialog], seed: int
) -> dict[str, dict[str, Json]]:
    """By slice and value: the metrics of the steps and the dialogs that have it."""
    slices: dict[str, dict[str, Json]] = {}
    for name in sorted({name for one in predictions for name in one.slices}):
        slices[name] = {}
        for value in sorted({one.slices[name] for one in predictions if name in one.slices}):
            steps = [one for one in predictions if one.slices.get(name) == value]
            dialogs = [one for one in whole if one.slices.get(name) == value]
            slices[name][value] = {
                "prompts": len(steps),
                "metrics": summaries(steps, seed),
                "dialogs": summaries(dialogs, seed),
            }
    return slices


def summaries(scored: Sequence[Prediction | Dialog], seed: int) -> dict[str, Summary]:
    """Each metric over those that have it."""
    return {
        name: summary([one.metrics[name] for one in scored if name in one.metrics], seed)
        for name in _names(one.metrics for one in scored)
    }


def _names(metrics: Iterable[Mapping[str, float]]) -> list[str]:
    return sorted({name for values in metrics for name in values})


def retrieval_loss(
    predictions: Sequence[Prediction], records: Mapping[str, Record], seed: int
) -> dict[str, Summary | int | str]:
    """How many wrong steps are due to the retrieval of tools, and how many to the model's choice:
    1 - a figure = the share lost to retrieval + the share lost to choosing, always. Over the
    `steps` at which a call is expected, in records with the top `k` tools of the method `by`; {}
    where there are none.

    `retrieved`: the share of steps whose expected tools were all retrieved; `as_declared`: and with
    the schemas that the record has. Tools that prep added for training were not retrieved, and are
    on offer: they cost nothing.
    """
    steps: list[dict[str, float]] = []
    method: Mapping[str, Any] = {}
    for prediction in predictions:
        record = records[prediction.record_id]
        gold = record.gold_at(prediction.turn)
        if RETRIEVED not in record.meta or not gold.names_tools:
            continue
        method, expected = record.meta[RETRIEVED], {call.name for call in gold.calls}
        is_offered = expected <= {tool.name for tool in record.tools}
        is_retrieved = expected.isdisjoint(method.get("missing", ()))
        declared = expected.isdisjoint(method.get("other_schema", ()))
        step: dict[str, float] = {
            "retrieved": is_retrieved,
            "as_declared": is_retrieved and declared,
        }
        # a step is lost to one of the two: to retrieval, where a tool that it needs is not on offer
        for name in ("tool_selection_accuracy", "exact_call"):
            right = prediction.metrics[name]
            step[name] = right
            step[f"{name}_lost_to_retrieval"] = (1 - right) * (not is_offered)
            step[f"{name}_lost_to_choosing"] = (1 - right) * is_offered
        steps.append(step)
    if not steps:
        return {}
    shares = {name: summary([float(step[name]) for step in steps], seed) for name in steps[0]}
    return {"k": method["k"], "by": method["by"], "steps": len(steps), **shares}


def passes(right: Mapping[Step, Sequence[bool]], seed: int) -> dict[str, Summary]:
    """`pass^1`, `pass^2`, ... over the steps, up to the smallest number of samples at a step: the
    chance that k of these, drawn again, are all right (tau-bench's estimate). `right`: by step,
    whether each sample is right.
    """
    counts = [(sum(samples), len(samples)) for samples in right.values()]
    most = min((drawn for _, drawn in counts), default=0)
    return {
        f"pass^{k}": summary([comb(done, k) / comb(drawn, k) for done, drawn in counts], seed)
        for k in range(1, most + 1)
    }


# --- Several models ---


def scores(
    predictions: Sequence[Prediction], whole: Sequence[Dialog]
) -> dict[Step, Mapping[str, float]]:
    """The metrics of each step, and those of each dialog."""
    return {
        **{Step(dialog.record_id, WHOLE): dialog.metrics for dialog in whole},
        **{prediction.step: prediction.metrics for prediction in predictions},
    }


def compare(by_model: Mapping[str, Scores], seed: int) -> Json:
    """compare.json: what each model has over every earlier one, where all of them answered."""
    common = set.intersection(*map(set, by_model.values())) if by_model else set()
    return {
        "prompts": sum(step.turn != WHOLE for step in common),
        "models": list(by_model),
        "differences": differences_of(combinations(by_model, 2), by_model, seed),
    }


def differences_of(
    pairs: Iterable[tuple[str, str]],
    by_model: Mapping[str, Scores],
    seed: int,
    metrics: Sequence[str] = (),
) -> list[Difference]:
    """What the second model of each pair has over the first, on the steps that all models answered,
    in `metrics`, or in all: one comparison, whose p are corrected together.
    """
    common = set.intersection(*map(set, by_model.values())) if by_model else set()
    compared, values = [], []
    for pair in pairs:
        first, second = ({step: by_model[model][step] for step in common} for model in pair)
        for name in _names(first.values()):
            before, after = (
                {step: scored[name] for step, scored in of_model.items() if name in scored}
                for of_model in (first, second)
            )
            if before.keys() & after.keys() and (not metrics or name in metrics):
                compared.append((name, *pair))
                values.append((before, after))
    return [
        replace(one, metric=name, first=first, second=second)
        for (name, first, second), one in zip(
            compared, paired_differences(values, seed), strict=True
        )
    ]
