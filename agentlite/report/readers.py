"""What the page's two viewers read: the predictions of an evaluation with their records, and
rollouts, the worst first; packed as JSON, deflated, in base64.
"""

import base64
import json
import math
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from agentlite.core.records import ANY_ARGUMENTS, Record, Step, from_row, to_row
from agentlite.core.row_files import Row, read_rows
from agentlite.report.read_run import Json, ReportedEvaluation, ReportedStage, WorkspaceRun
from agentlite.report.tables import Table, in_order
from agentlite.scoring.metrics.figures import DONE, ENDINGS, TITLES
from agentlite.scoring.metrics.step_metrics import WRONG_KINDS

LONGEST = 8_000  # characters of a text
compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
Tool = tuple[str, str, str]  # its name, its description and its parameters as JSON


class Packed(NamedTuple):
    """`rows`: how many are in the text. `notes`: a sentence about those that were left out."""

    text: str
    rows: int
    notes: list[str]


def pack_within(
    budget: int, count: int, total: int, noun: str, contents: Callable[[int], Json]
) -> Packed:
    """At most `budget` characters: the last rows are left out if that is needed. `contents`: of so
    many rows; `total`: of all that there are.
    """
    text = _pack(contents(count))
    while len(text) > budget and count:
        count = int(0.95 * count * budget / len(text))
        text = _pack(contents(count))
    left_out = f"The first {count:,} of {total:,} {noun}: with the others this page would be too "
    return Packed(text, count, [f"{left_out}large."] if count < total else [])


def _pack(contents: Json) -> str:
    def cut(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: cut(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return list(map(cut, value))
        if not isinstance(value, str) or len(value) <= LONGEST:
            return value
        return f"{value[:LONGEST]} … [{len(value) - LONGEST:,} more characters]"

    whole = compact(cut(contents)).encode("utf-8", "replace")
    return base64.b64encode(zlib.compress(whole)).decode("ascii")


def pack_message(message: Mapping[str, Any]) -> list[Any]:
    """Its role; its words; and the name and the arguments, as JSON, of each call."""
    content = message.get("content") or ""
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    calls = [[one["name"], _as_text(one.get("arguments", {}))] for one in functions]
    return [str(message.get("role", "")), _as_text(content), calls]


def _as_text(value: object) -> str:
    """A text as it is; what a task's own messages hold in its place, as JSON."""
    return value if isinstance(value, str) else compact(value)


def pack_tool(schema: Mapping[str, Any]) -> Tool:
    function = schema["function"]
    name, description = (str(function.get(key, "")) for key in ("name", "description"))
    return name, description, compact(function.get("parameters", {}))


NO_CALL, UNREADABLE = "no call", "unreadable"
MOST_TOOLS = 12


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
    rows = [[name, *(_tool_counts(name, tools[name][model]) for model in models)] for name in order]
    return Table("", ["right tool", *models], rows)


def _tool_counts(name: str, counts: Counter[str]) -> str:
    """With the three tools that were called most often in its place."""
    others = [(other, count) for other, count in counts.most_common(4) if other != name][:3]
    instead = [f"{other} × {count}" if count > 1 else other for other, count in others]
    return ", ".join([f"{counts[name]} of {counts.total()}", *instead])


def pack_predictions(
    answers: PredictionRows, models: Sequence[str], metrics: Sequence[str], budget: int
) -> Packed:
    """At most `budget` characters; the last steps are left out if that is needed."""
    steps = list(answers.by_step)

    def contents(count: int) -> Json:
        return _pack_steps(answers, steps[:count], models, metrics)

    return pack_within(budget, len(steps), len(steps), "prompts", contents)


def _pack_steps(
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
        offered = [pack_tool(tool.schema) for tool in answers.records[name].tools]
        numbered = [tools.setdefault(tool, len(tools)) for tool in offered]
        messages = [pack_message(message) for message in row["messages"][: turn + 1]]
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


MOST_ROLLOUTS = 500  # rollouts in a reader
FILE, SAMPLES = "trajectories.jsonl", "samples.jsonl"
LOST = ("world", "unanswered")  # such a rollout has no score


class RolloutFile(NamedTuple):
    """`sampled`: whether its rollouts were sampled, and have a number; greedy ones have none."""

    model: str
    path: Path
    sampled: bool


class ReportedTurn(Struct, frozen=True):
    """A turn of the model as it is stored, as much of it as a report shows."""

    text: str
    ended: str = ""
    new_tokens: int = 0
    results: tuple[tuple[str, bool], ...] = ()
    user: str | None = None
    problem: str = ""


class ReportedRollout(Struct, frozen=True):
    """A trajectory as it is stored, as much of it as a report shows."""

    task: str
    sample: int
    messages: list[dict[str, Any]]
    turns: list[ReportedTurn]
    ended: str
    scores: dict[str, float]
    tools: list[dict[str, Any]] = []
    problem: str = ""
    by_turn: list[dict[str, float]] = []

    @property
    def answered_at(self) -> list[int]:
        """The messages of the model's turns: the assistant's last. A prompt may have others."""
        said = [at for at, row in enumerate(self.messages) if row.get("role") == "assistant"]
        return said[len(said) - len(self.turns) :]

    @property
    def verdict(self) -> float | None:
        """The score that says whether the task is done: the first that there is."""
        return next((self.scores[name] for name in DONE if name in self.scores), None)

    @property
    def failed(self) -> bool:
        """A lost one as well: its world or its model's server broke."""
        return self.ended in LOST or (self.verdict is not None and self.verdict < 1)

    @property
    def rank(self) -> tuple[float, ...]:
        """Lost ones first, then by the verdict and the mean of the scores."""
        mean = fmean(self.scores.values()) if self.scores else 0.0
        return self.ended not in LOST, self.verdict or 0.0, mean


class ShownRollout(NamedTuple):
    file: RolloutFile
    rollout: ReportedRollout


class RankedRollouts(NamedTuple):
    """`shown`: at most MOST_ROLLOUTS, the worst first. `total`: of all. `names`:
    of the scores, the verdict first.
    """

    shown: list[ShownRollout]
    total: int
    names: list[str]


def files_of(evaluation: ReportedEvaluation) -> list[RolloutFile]:
    """Of each model those that are as it left them. Samples beside recorded dialogs are answers."""
    return [
        RolloutFile(name, model.folder / file, file == SAMPLES)
        for name, model in evaluation.models.items()
        for file in (FILE, SAMPLES)
        if model.is_unchanged(FILE) and model.is_unchanged(file)
    ]


def file_of(stage: ReportedStage) -> list[RolloutFile]:
    """The one of a stage; [] where it has none, or not as it left it."""
    if not stage.is_unchanged(FILE):
        return []
    model = str(stage.plan.settings.get("model", stage.name))
    sampled = stage.plan.command != "rollout" or stage.plan.settings.get("num_samples", 1) != 1
    return [RolloutFile(model, stage.folder / FILE, sampled)]


def read_rollouts(files: Sequence[RolloutFile]) -> RankedRollouts:
    every = [
        ShownRollout(file, _read(line))
        for file in files
        for line in file.path.read_bytes().splitlines()
    ]
    names = [name for _, rollout in every for name in rollout.scores]
    shown = sorted(every, key=lambda one: one.rollout.rank)[:MOST_ROLLOUTS]
    return RankedRollouts(shown, len(every), in_order(DONE, names))


def _read(line: bytes) -> ReportedRollout:
    """Scores that are not finite are left out: JSON has no such numbers."""
    rollout = msgspec.convert(json.loads(line), ReportedRollout)
    scores, *by_turn = (
        {name: value for name, value in scores.items() if math.isfinite(value)}
        for scores in (rollout.scores, *rollout.by_turn)
    )
    return msgspec.structs.replace(rollout, scores=scores, by_turn=by_turn)


def pack_rollouts(rollouts: RankedRollouts, budget: int) -> Packed:
    """At most `budget` characters; the best rollouts are left out if that is needed."""

    def contents(count: int) -> Json:
        return _pack_rollouts(rollouts, count)

    return pack_within(budget, len(rollouts.shown), rollouts.total, "rollouts", contents)


def _pack_rollouts(rollouts: RankedRollouts, count: int) -> Json:
    """Every prompt and every tool once: rollouts of a task share them."""
    shown = rollouts.shown[:count]
    models = list(dict.fromkeys(file.model for file, _ in shown))
    prompts: dict[str, int] = {}
    tools: dict[Tool, int] = {}
    rows = []
    for file, rollout in shown:
        begins = (rollout.answered_at or [len(rollout.messages)])[0]
        prompt = compact([pack_message(message) for message in rollout.messages[:begins]])
        offered = [pack_tool(tool) for tool in rollout.tools]
        rows.append(
            [
                rollout.task,
                models.index(file.model),
                rollout.sample if file.sampled else None,
                rollout.ended,
                rollout.problem,
                rollout.failed,
                [rollout.scores.get(name) for name in rollouts.names],
                rollout.by_turn,
                prompts.setdefault(prompt, len(prompts)),
                _turns(rollout),
                [tools.setdefault(tool, len(tools)) for tool in offered],
            ]
        )
    return {
        "models": models,
        "metrics": rollouts.names,
        "endings": ENDINGS,
        "prompts": list(map(json.loads, prompts)),
        "tools": list(tools),
        "rollouts": rows,
    }


def _turns(rollout: ReportedRollout) -> list[list[Any]]:
    turns = []
    for turn, at in zip(rollout.turns, rollout.answered_at, strict=True):
        _, words, calls = pack_message(rollout.messages[at])
        said = [words, calls, turn.results, turn.user]
        turns.append([*said, turn.problem, turn.text, turn.ended, turn.new_tokens])
    return turns
