"""An evaluation -> what was asked, what was due and what each model said to it; and which tools are confused."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agentlite.records import Record, Step, from_row
from agentlite.report.folders import Evaluation, Run
from agentlite.rows import Row, read_rows

NO_CALL, UNREADABLE = "no call", "unreadable"
MOST = 12


class Answers(NamedTuple):
    """The rows of predictions.jsonl by step and model. `records`: those asked, as far as they are in the run."""

    records: dict[str, Record]
    by_step: dict[Step, dict[str, list[Row]]]


class Confused(NamedTuple):
    """A tool that was due: by model, how often it was called when it was due, and what was said instead."""

    tool: str
    due: dict[str, int]
    right: dict[str, int]
    instead: dict[str, Counter[str]]


def read_answers(run: Run, evaluation: Evaluation) -> Answers:
    by_step: dict[Step, dict[str, list[Row]]] = {}
    for name, model in evaluation.models.items():
        for row in model.rows("predictions.jsonl"):
            by_step.setdefault(Step(row["record_id"], row["turn"]), {}).setdefault(name, []).append(row)
    asked = {step.record_id for step in by_step}
    files = {path for model in evaluation.models.values() if (path := _find(model.plan["inputs"].get("data", ""), run))}
    rows = (row for path in sorted(files) for row in read_rows(path))
    return Answers({row["id"]: from_row(row) for row in rows if row["id"] in asked}, by_step)


def confusion(answers: Answers) -> list[Confused]:
    """Every tool that was due or called, the most often confused first."""
    pairs: dict[str, Counter[tuple[str, str]]] = {}
    for step, said in answers.by_step.items():
        if record := answers.records.get(step.record_id):
            due = Counter(call.name for call in record.due(step.turn).calls)
            for model, rows in said.items():
                for row in rows:
                    pairs.setdefault(model, Counter()).update(_pairs(due, row))
    tools = {due for of_model in pairs.values() for due, _ in of_model}
    found = [_confused(tool, pairs) for tool in tools]
    return sorted(found, key=lambda one: (sum(one.right.values()) - sum(one.due.values()), -sum(one.due.values()), one.tool))  # fmt: skip


def _pairs(due: Counter[str], row: Row) -> Iterator[tuple[str, str]]:
    """Each tool due with the one called for it: itself if it was called, else another that was not due."""
    called = Counter(call["name"] for call in row["calls"]) if not row["problem"] else Counter()
    yield from ((name, name) for name in (due & called).elements())
    missing, extra = list((due - called).elements()), list((called - due).elements())
    blank = UNREADABLE if row["problem"] else NO_CALL
    for index in range(max(len(missing), len(extra))):
        yield (missing[index] if index < len(missing) else NO_CALL, extra[index] if index < len(extra) else blank)
    if not due and not called:
        yield NO_CALL, blank


def _confused(tool: str, pairs: dict[str, Counter[tuple[str, str]]]) -> Confused:
    said = {model: Counter({called: n for (due, called), n in of_model.items() if due == tool})
            for model, of_model in pairs.items()}  # fmt: skip
    return Confused(
        tool,
        {model: counts.total() for model, counts in said.items()},
        {model: counts[tool] for model, counts in said.items()},
        {model: Counter({name: n for name, n in counts.items() if name != tool}) for model, counts in said.items()},
    )


def _find(digest: str, run: Run) -> Path | None:
    """The file that a stage of this run left under this digest."""
    return next((stage.folder / name for stage in run.stages for name, found in stage.outputs.items()
                 if found == digest and stage.is_as_left(name)), None)  # fmt: skip
