"""The predictions of an evaluation with their records: packed for the page's viewer, and which
tools models confuse.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from agentlite.core.records import ANY_ARGUMENTS, Record, Step, from_row, to_row
from agentlite.core.row_files import Row, read_rows
from agentlite.report.packing import (
    Packed,
    Tool,
    compact,
    pack_within,
    packed_message,
    packed_tool,
)
from agentlite.report.read_run import Json, ReportedEvaluation, WorkspaceRun
from agentlite.report.tables import Table
from agentlite.scoring.metrics.figures import TITLES
from agentlite.scoring.metrics.step_metrics import WRONG_KINDS

NO_CALL, UNREADABLE = "no call", "unreadable"
MOST = 12


class PredictionRows(NamedTuple):
    """The rows of predictions.jsonl by step and model. `records`: those of the prompts, as far as
    they are in the run.
    """

    records: dict[str, Record]
    by_step: dict[Step, dict[str, list[Row]]]


def read_answers(run: WorkspaceRun, evaluation: ReportedEvaluation) -> PredictionRows:
    by_step: dict[Step, dict[str, list[Row]]] = {}
    for name, model in evaluation.models.items():
        for row in model.rows("predictions.jsonl"):
            of_step = by_step.setdefault(Step(row["record_id"], row["turn"]), {})
            of_step.setdefault(name, []).append(row)
    asked = {model.plan.inputs.get("data") for model in evaluation.models.values()}
    files = {
        stage.folder / name
        for stage in run.stages
        for name, digest in stage.outputs.items()
        if digest in asked and stage.is_unchanged(name)
    }
    names = {step.record_id for step in by_step}
    rows = (row for path in sorted(files) for row in read_rows(path))
    return PredictionRows({row["id"]: from_row(row) for row in rows if row["id"] in names}, by_step)


def confusion(answers: PredictionRows, models: Sequence[str]) -> Table:
    """A row for every expected tool, and for "no call" where none was expected: how often it was
    called, and what was called in its place, by model. Those that were confused most come first.
    """
    tools: dict[str, dict[str, Counter[str]]] = {}
    for step, by_model in answers.by_step.items():
        if not (record := answers.records.get(step.record_id)):
            continue
        gold = record.expected(step.turn)
        if gold.calls and not gold.names_tools:
            continue  # any tool will do: there is none to confuse
        expected = Counter(call.name for call in gold.calls)
        for model, row in ((model, row) for model, rows in by_model.items() for row in rows):
            called = Counter(call["name"] for call in row["calls"] if not row["problem"])
            blank = UNREADABLE if row["problem"] else NO_CALL
            pairs = [(name, name) for name in (expected & called).elements()]
            pairs += zip_longest((expected - called).elements(), (called - expected).elements())
            for wanted, instead in pairs or [("", "")]:
                by = tools.setdefault(wanted or NO_CALL, {name: Counter() for name in models})
                by[model][instead or blank] += 1
    wrong = {
        name: sum(counts.total() - counts[name] for counts in by.values())
        for name, by in tools.items()
    }
    order = sorted(tools, key=lambda name: (-wrong[name], name))
    rows = [[name, *(_called(name, tools[name][model]) for model in models)] for name in order]
    return Table("", ["right tool", *models], rows)


def _called(name: str, counts: Counter[str]) -> str:
    """With the three tools that were called most often in its place."""
    others = [(other, count) for other, count in counts.most_common(4) if other != name][:3]
    instead = [f"{other} × {count}" if count > 1 else other for other, count in others]
    return ", ".join([f"{counts[name]} of {counts.total()}", *instead])


def pack_predictions(
    answers: PredictionRows, models: Sequence[str], metrics: Sequence[str], budget: int
) -> Packed:
    """At most `budget` characters; the last steps are left out if that is needed."""
    steps = list(answers.by_step)
    packed = pack_within(
        budget, len(steps), lambda count: _contents(answers, steps[:count], models, metrics)
    )
    if packed.rows < len(steps):
        packed.notes.append(
            f"The first {packed.rows:,} of {len(steps):,} prompts: with the others this page "
            "would be too large."
        )
    return packed


def _contents(
    answers: PredictionRows, steps: Sequence[Step], models: Sequence[str], metrics: Sequence[str]
) -> Json:
    """Every record and every tool once: a step refers to its record, and a record to its tools.
    Of a record, the messages up to the last turn that is shown.
    """
    turns: dict[str, int] = {}
    for step in steps:
        if step.record_id in answers.records:
            turns[step.record_id] = max(step.turn, turns.get(step.record_id, 0))
    numbers = {name: number for number, name in enumerate(turns)}
    tools: dict[Tool, int] = {}
    records = []
    for name, turn in turns.items():
        row: Json = to_row(answers.records[name])
        offered = [packed_tool(tool.schema) for tool in answers.records[name].tools]
        numbered = [tools.setdefault(tool, len(tools)) for tool in offered]
        messages = [packed_message(message) for message in row["messages"][: turn + 1]]
        records.append([messages, numbered])
    packed = []
    for step in steps:
        expected = None  # arguments that are not JSON are printed by the page as they are
        if record := answers.records.get(step.record_id):
            expected = [
                [
                    call.name,
                    "any arguments" if call.arguments is ANY_ARGUMENTS else compact(call.arguments),
                ]
                for call in record.expected(step.turn).calls
            ]
        said = []
        for model, rows in answers.by_step[step].items():
            for row in rows:
                calls = [[call["name"], call["arguments"]] for call in row.get("calls", [])]
                values = [row["metrics"].get(name) for name in metrics]
                tokens, wrong = row.get("new_tokens", 0), WRONG_KINDS.get(row.get("wrong", ""), "")
                text = [row["text"], row["problem"]]
                said.append([models.index(model), *text, values, tokens, calls, wrong])
        slices = next(iter(answers.by_step[step].values()))[0].get("slices", {})
        packed.append([*step, numbers.get(step.record_id), expected, slices, said])
    return {
        "models": list(models),
        "metrics": list(metrics),
        "titles": [TITLES.get(name, name) for name in metrics],
        "records": records,
        "tools": list(tools),
        "steps": packed,
    }
