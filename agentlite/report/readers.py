"""What the page's two viewers read: the predictions of an evaluation with their records, and
rollouts, the worst first; packed as JSON, deflated, in base64.
"""

import base64
import json
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from operator import itemgetter
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

from agentlite.core.records import Record, Step, from_row, to_row
from agentlite.core.row_files import Row, read_rows
from agentlite.report.read_run import Json, ReportedEvaluation, ReportedStage, WorkspaceRun
from agentlite.report.tables import Table, order_names
from agentlite.scoring.metrics.figures import DONE_SCORES, ENDINGS, TITLES
from agentlite.scoring.metrics.step_metrics import WRONG_KINDS

LONGEST = 8_000  # characters of a text
NO_CALL, UNREADABLE = "no call", "unreadable"
MOST_TOOLS = 12  # in the table of those that were confused
MOST_ROLLOUTS = 500  # in a viewer
TRAJECTORIES, SAMPLES = "trajectories.jsonl", "samples.jsonl"
LOST = ("world", "unanswered")  # such a rollout has no score
compact_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
Item = TypeVar("Item")


def pack_within(
    budget: int,
    items: Sequence[Item],
    total: int,
    noun: str,
    contents: Callable[[Sequence[Item]], Json],
) -> dict[str, str]:
    """A `text` of at most `budget` characters: the last items are left out if that is needed, and a
    `note` says so. `total`: of all that there are.
    """
    count, text = len(items), _pack(contents(items))
    while len(text) > budget and count:
        # in proportion, and a little less: the first items may be longer than the others
        count = int(0.95 * count * budget / len(text))
        text = _pack(contents(items[:count]))
    note = f"The first {count:,} of {total:,} {noun}: with the others this page would be too large."
    return {"text": text, "note": note if count < total else ""}


def _pack(contents: Json) -> str:
    def cut(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: cut(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return list(map(cut, value))
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)  # JSON has no others
        if not isinstance(value, str) or len(value) <= LONGEST:
            return value
        return f"{value[:LONGEST]} … [{len(value) - LONGEST:,} more characters]"

    data = compact_json(cut(contents)).encode("utf-8", "replace")
    return base64.b64encode(zlib.compress(data)).decode("ascii")


def _number_tools(tools: dict[str, int], schemas: Iterable[Mapping[str, Any]]) -> list[int]:
    """The numbers of some tools among all, each of which is packed once."""
    return [tools.setdefault(compact_json(schema), len(tools)) for schema in schemas]


# --- Predictions ---


class PredictionRows(NamedTuple):
    """The rows of predictions.jsonl by step and model. `records`: those of the prompts, as far as
    they are in the run.
    """

    records: dict[str, Record]
    by_step: dict[Step, dict[str, Row]]


def read_prediction_rows(run: WorkspaceRun, evaluation: ReportedEvaluation) -> PredictionRows:
    by_step: dict[Step, dict[str, Row]] = {}
    for name, model in evaluation.models.items():
        for row in model.rows("predictions.jsonl"):
            by_step.setdefault(Step(row["record_id"], row["turn"]), {})[name] = row
    # an input is the digest of the file that was asked; after --retrieve it names the tools too, so
    # that no file has it: prep's records have other tools than those that were shown
    data_digests = {model.plan.inputs.get("data") for model in evaluation.models.values()}
    files = {
        stage.folder / name
        for stage in run.stages
        for name, digest in stage.outputs.items()
        if digest in data_digests and stage.is_unchanged(name)
    }
    names = {step.record_id for step in by_step}
    rows = (row for path in sorted(files) for row in read_rows(path))
    return PredictionRows({row["id"]: from_row(row) for row in rows if row["id"] in names}, by_step)


def confusion(predictions: PredictionRows, models: Sequence[str]) -> Table:
    """A row for every expected tool, and for "no call" where none was expected: how often it was
    called, and what was called in its place, by model. Only those that were confused most.
    """
    tools: dict[str, dict[str, Counter[str]]] = {}
    for step, by_model in predictions.by_step.items():
        if not (record := predictions.records.get(step.record_id)):
            continue
        gold = record.gold_at(step.turn)
        if gold.calls and not gold.names_tools:
            continue  # any tool will do: there is none to confuse
        expected_names = Counter(call.name for call in gold.calls)
        for model, row in by_model.items():
            called_names = Counter(call["name"] for call in row["calls"] if not row["problem"])
            blank = UNREADABLE if row["problem"] else NO_CALL
            # a, a, b expected and a, c called: a for a, c for a, and nothing for b
            pairs = [(name, name) for name in (expected_names & called_names).elements()]
            missing, extra = expected_names - called_names, called_names - expected_names
            pairs += zip_longest(missing.elements(), extra.elements())
            for expected, called in pairs or [("", "")]:
                counts = tools.setdefault(expected or NO_CALL, {name: Counter() for name in models})
                counts[model][called or blank] += 1
    mistakes = {
        name: sum(calls.total() - calls[name] for calls in counts.values())
        for name, counts in tools.items()
    }
    names = sorted(tools, key=lambda name: (-mistakes[name], name))[:MOST_TOOLS]
    rows = [[name, *(_counts_text(name, tools[name][model]) for model in models)] for name in names]
    return Table("", ["right tool", *models], rows)


def _counts_text(name: str, counts: Counter[str]) -> str:
    """With the three tools that were called most often in its place."""
    others = [(tool, count) for tool, count in counts.most_common(4) if tool != name][:3]
    tools = [f"{tool} × {count}" if count > 1 else tool for tool, count in others]
    return ", ".join([f"{counts[name]} of {counts.total()}", *tools])


def pack_predictions(
    predictions: PredictionRows, models: Sequence[str], metrics: Sequence[str], budget: int
) -> dict[str, str]:
    """The rows as they are stored. Every record is there once, with its messages up to the last
    turn that is shown. The last steps are left out if the budget needs that.
    """

    def contents(steps: Sequence[Step]) -> Json:
        tools: dict[str, int] = {}
        records: Json = {}
        for name, turn in sorted(steps):
            if record := predictions.records.get(name):
                messages: Any = to_row(record)["messages"]
                numbers = _number_tools(tools, (tool.schema for tool in record.tools))
                records[name] = {"messages": messages[: turn + 1], "tools": numbers}
        rows = []
        for step in steps:
            record = predictions.records.get(step.record_id)
            calls = record and record.gold_at(step.turn).calls
            rows.append(
                {
                    "id": step.record_id,
                    "turn": step.turn,
                    "expected": calls and [[c.name, compact_json(c.arguments)] for c in calls],
                    "answers": [
                        {**row, "model": models.index(name)}
                        for name, row in predictions.by_step[step].items()
                    ],
                }
            )
        return {
            "models": models,
            "metrics": metrics,
            "titles": [TITLES.get(name, name) for name in metrics],
            "kinds": WRONG_KINDS,
            "records": records,
            "tools": list(map(json.loads, tools)),
            "steps": rows,
        }

    steps = list(predictions.by_step)
    return pack_within(budget, steps, len(steps), "prompts", contents)


# --- Rollouts ---


def read_rollouts(stages: Mapping[str, ReportedStage]) -> list[Json]:
    """Trajectories as they are stored, each with its model, of the stages by model whose files are
    as they left them. One that was lost, as its world or its model's server broke, comes first;
    then by the verdict, which says whether the task is done, and by the mean of the scores.
    """
    ranked = list[tuple[tuple[float, ...], Json]]()
    for model, stage in stages.items():
        # greedy ones have no number. Samples beside recorded dialogs are answers
        has_samples = stage.plan.settings.get("num_samples", 1) != 1
        is_sampled = {"eval": False, "rollout": has_samples}.get(stage.plan.command, True)
        names = [name for name in (TRAJECTORIES, SAMPLES) if stage.is_unchanged(name)]
        for name in names if TRAJECTORIES in names else ():
            for row in read_rows(stage.folder / name):
                scores, *by_turn = map(_finite_scores, (row["scores"], *row.get("by_turn", ())))
                verdict = next((scores[name] for name in DONE_SCORES if name in scores), None)
                is_lost, mean = row["ended"] in LOST, fmean(scores.values()) if scores else 0.0
                rollout = {
                    **row,
                    "model": model,
                    "sample": row["sample"] if is_sampled or name == SAMPLES else None,
                    "failed": is_lost or (verdict is not None and verdict < 1),
                    "scores": scores,
                    "by_turn": by_turn,
                    "turns": [
                        {key: value for key, value in turn.items() if not key.endswith("ids")}
                        for turn in row["turns"]
                    ],
                }
                ranked.append(((not is_lost, verdict or 0.0, mean), rollout))  # the worst first
    return [rollout for _, rollout in sorted(ranked, key=itemgetter(0))]


def _finite_scores(scores: Mapping[str, float]) -> dict[str, float]:
    """Those that are numbers: the others have no rank."""
    return {name: value for name, value in scores.items() if math.isfinite(value)}


def pack_rollouts(rollouts: Sequence[Json], budget: int) -> dict[str, str]:
    """At most MOST_ROLLOUTS, and `budget` characters: the best are left out if that is needed."""

    def contents(rows: Sequence[Json]) -> Json:
        tools: dict[str, int] = {}
        models = list(dict.fromkeys(row["model"] for row in rows))
        packed = [{**row, "tools": _number_tools(tools, row.get("tools", ()))} for row in rows]
        return {
            "models": models,
            "metrics": order_names(DONE_SCORES, chain(*(row["scores"] for row in rollouts))),
            "endings": ENDINGS,
            "tools": list(map(json.loads, tools)),
            "rollouts": [{**row, "model": models.index(row["model"])} for row in packed],
        }

    return pack_within(budget, rollouts[:MOST_ROLLOUTS], len(rollouts), "rollouts", contents)
