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
WHOLE_DIALOG = -1  # the turn of a step that stands for a whole dialog
RETRIEVED = "retrieved"  # in the meta of a record: how its tools were retrieved


def figures(
    predictions: Sequence[Prediction],
    whole_dialogs: Sequence[Dialog],
    records: Mapping[str, Record],
    seed: int,
) -> Metrics:
    """Steps and dialogs with their intervals, over all and by slice; timing, problems and wrong
    answers by kind; names and parameters of calls; BFCL's groups over the records that are BFCL's
    own, if there are any; what retrieval cost.

    The groups that need more than the predictions are left out: judge, passes, forgetting,
    self-cognition.
    """
    timing_counts, counts = [], []
    verdicts: dict[str, list[float]] = defaultdict(list)
    for prediction in predictions:
        record = records[prediction.record_id]
        gold = record.gold_at(prediction.turn)
        earlier_calls = [c for m in record.messages[: prediction.turn] for c in m.calls]
        timing_counts.append(call_shares.count_timing(prediction.calls, gold, prediction.problem))
        counts.append(call_shares.count_calls(prediction.calls, gold, record.tools, earlier_calls))
        if BFCL in prediction.metrics:
            verdicts[category_of(record)].append(prediction.metrics[BFCL])
    problems = Counter(prediction.problem for prediction in predictions if prediction.problem)
    mistakes = Counter(prediction.wrong for prediction in predictions)
    return Metrics(
        prompts=len(predictions),
        metrics={**dict.fromkeys(step_metrics.METRICS), **summaries(predictions, seed)},
        dialogs={**dict.fromkeys(dialogs.METRICS), **summaries(whole_dialogs, seed)},
        dialogs_are=dialogs.TEACHER_FORCED,
        timing={**call_shares.timing(timing_counts, seed), "unreadable": problems.total()},
        by=figures_by_slice(predictions, whole_dialogs, seed),
        problems=dict(sorted(problems.items())),
        wrong_answers={kind: mistakes[kind] for kind in step_metrics.WRONG_KINDS if mistakes[kind]},
        tools=ratios(counts, call_shares.SHARES, seed),
        parse_problems={
            problem: summary([float(p.problem == problem) for p in predictions], seed)
            for problem, _ in problems.most_common()
        },
        retrieval=retrieval_loss(predictions, records, seed) or UNSET,
        **(group_scores(verdicts, seed) if verdicts else {}),
    )


def figures_by_slice(
    predictions: Sequence[Prediction | Dialog], whole_dialogs: Sequence[Dialog], seed: int
) -> dict[str, dict[str, Json]]:
    """By slice and value: the metrics of the steps and the dialogs that have it."""
    slices: dict[str, dict[str, Json]] = {}
    for name in sorted({name for row in predictions for name in row.slices}):
        slices[name] = {}
        for value in sorted({row.slices[name] for row in predictions if name in row.slices}):
            steps = [row for row in predictions if row.slices.get(name) == value]
            dialogs = [row for row in whole_dialogs if row.slices.get(name) == value]
            slices[name][value] = {
                "prompts": len(steps),
                "metrics": summaries(steps, seed),
                "dialogs": summaries(dialogs, seed),
            }
    return slices


def summaries(rows: Sequence[Prediction | Dialog], seed: int) -> dict[str, Summary]:
    """Each metric over those that have it."""
    return {
        name: summary([row.metrics[name] for row in rows if name in row.metrics], seed)
        for name in _metric_names(row.metrics for row in rows)
    }


def _metric_names(metrics: Iterable[Mapping[str, float]]) -> list[str]:
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
        is_declared = expected.isdisjoint(method.get("other_schema", ()))
        step: dict[str, float] = {
            "retrieved": is_retrieved,
            "as_declared": is_retrieved and is_declared,
        }
        # a step is lost to one of the two: to retrieval, where a tool that it needs is not on offer
        for name in ("tool_selection_accuracy", "exact_call"):
            value = prediction.metrics[name]
            step[name] = value
            step[f"{name}_lost_to_retrieval"] = (1 - value) * (not is_offered)
            step[f"{name}_lost_to_choosing"] = (1 - value) * is_offered
        steps.append(step)
    if not steps:
        return {}
    shares = {name: summary([float(step[name]) for step in steps], seed) for name in steps[0]}
    return {"k": method["k"], "by": method["by"], "steps": len(steps), **shares}


def passes(verdicts: Mapping[Step, Sequence[bool]], seed: int) -> dict[str, Summary]:
    """`pass^1`, `pass^2`, ... over the steps, up to the smallest number of samples at a step: the
    chance that k of these, drawn again, are all right (tau-bench's estimate). `verdicts`: by step,
    whether each sample is right.
    """
    counts = [(sum(samples), len(samples)) for samples in verdicts.values()]
    fewest_samples = min((total for _, total in counts), default=0)
    return {
        f"pass^{k}": summary([comb(right, k) / comb(total, k) for right, total in counts], seed)
        for k in range(1, fewest_samples + 1)
    }


# --- Several models ---


def scores(
    predictions: Sequence[Prediction], whole_dialogs: Sequence[Dialog]
) -> dict[Step, Mapping[str, float]]:
    """The metrics of each step, and those of each dialog."""
    return {
        **{Step(dialog.record_id, WHOLE_DIALOG): dialog.metrics for dialog in whole_dialogs},
        **{prediction.step: prediction.metrics for prediction in predictions},
    }


def compare(by_model: Mapping[str, Scores], seed: int) -> Json:
    """compare.json: what each model has over every earlier one, where all of them answered."""
    common_steps = set.intersection(*map(set, by_model.values())) if by_model else set()
    return {
        "prompts": sum(step.turn != WHOLE_DIALOG for step in common_steps),
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
    common_steps = set.intersection(*map(set, by_model.values())) if by_model else set()
    labels, value_pairs = [], []
    for pair in pairs:
        first, second = ({step: by_model[model][step] for step in common_steps} for model in pair)
        for name in _metric_names(first.values()):
            before, after = (
                {step: row[name] for step, row in rows.items() if name in row}
                for rows in (first, second)
            )
            if before.keys() & after.keys() and (not metrics or name in metrics):
                labels.append((name, *pair))
                value_pairs.append((before, after))
    return [
        replace(difference, metric=name, first=first, second=second)
        for (name, first, second), difference in zip(
            labels, paired_differences(value_pairs, seed), strict=True
        )
    ]
