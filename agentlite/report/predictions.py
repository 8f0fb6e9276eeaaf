"""The predictions of an evaluation with their records; and which tools models confuse."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from agentlite.core.records import Record, Step, from_row
from agentlite.core.row_files import Row, read_rows
from agentlite.report.read_run import Evaluation, WorkspaceRun

NO_CALL, UNREADABLE = "no call", "unreadable"
MOST = 12


class Answers(NamedTuple):
    """The rows of predictions.jsonl by step and model. `records`: those of the prompts, as far as
    they are in the run.
    """

    records: dict[str, Record]
    by_step: dict[Step, dict[str, list[Row]]]


class Confused(NamedTuple):
    """An expected tool, and how often each tool was called for it, by model."""

    name: str
    called: dict[str, Counter[str]]

    def expected(self, model: str) -> int:
        return self.called[model].total()

    def right(self, model: str) -> int:
        return self.called[model][self.name]

    def instead(self, model: str) -> list[tuple[str, int]]:
        """The three tools most often called in its place."""
        others = Counter(
            {name: count for name, count in self.called[model].items() if name != self.name}
        )
        return others.most_common(3)

    @property
    def wrong(self) -> int:
        return sum(self.expected(model) - self.right(model) for model in self.called)


def read_answers(run: WorkspaceRun, evaluation: Evaluation) -> Answers:
    by_step: dict[Step, dict[str, list[Row]]] = {}
    for name, model in evaluation.models.items():
        for row in model.rows("predictions.jsonl"):
            by_step.setdefault(Step(row["record_id"], row["turn"]), {}).setdefault(name, []).append(
                row
            )
    names = {step.record_id for step in by_step}
    files = {
        path
        for model in evaluation.models.values()
        if (path := _find(model.inputs.get("data", ""), run))
    }
    rows = (row for path in sorted(files) for row in read_rows(path))
    return Answers({row["id"]: from_row(row) for row in rows if row["id"] in names}, by_step)


def confusion(answers: Answers, models: Sequence[str]) -> list[Confused]:
    """Every expected tool, and "no call" where none was expected, the most often confused first."""
    tools: dict[str, dict[str, Counter[str]]] = {}
    for step, by_model in answers.by_step.items():
        if record := answers.records.get(step.record_id):
            gold = record.expected(step.turn)
            if gold.calls and not gold.names_tools:
                continue  # any tool will do: there is none to confuse
            expected = Counter(call.name for call in gold.calls)
            for model, rows in by_model.items():
                for wanted, called in (pair for row in rows for pair in _pairs(expected, row)):
                    tools.setdefault(wanted, {name: Counter() for name in models})[model][
                        called
                    ] += 1
    return sorted(
        (Confused(*tool) for tool in tools.items()), key=lambda tool: (-tool.wrong, tool.name)
    )


def _pairs(expected: Counter[str], row: Row) -> Iterator[tuple[str, str]]:
    """Each expected tool with the one called for it: itself if it was called, else one that was
    called but not expected.
    """
    called = Counter(call["name"] for call in row["calls"]) if not row["problem"] else Counter()
    yield from ((name, name) for name in (expected & called).elements())
    missing, extra = list((expected - called).elements()), list((called - expected).elements())
    blank = UNREADABLE if row["problem"] else NO_CALL
    for index in range(max(len(missing), len(extra))):
        yield (
            missing[index] if index < len(missing) else NO_CALL,
            extra[index] if index < len(extra) else blank,
        )
    if not expected and not called:
        yield NO_CALL, blank


def _find(digest: str, run: WorkspaceRun) -> Path | None:
    """The file that a stage of this run left under this digest."""
    return next(
        (
            stage.folder / name
            for stage in run.stages
            for name, output in stage.outputs.items()
            if output == digest and stage.is_as_left(name)
        ),
        None,
    )
