"""Predictions -> the packed text that the page's viewer reads: JSON, deflated, in base64."""

import base64
import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from agentlite.core.records import ANY_ARGUMENTS, Call, GoldCall, Record, Step
from agentlite.report.predictions import Answers
from agentlite.report.read_run import Json

LONGEST = (20_000, 4_000, 1_000)  # characters of a text, as many as fit
compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Packed(NamedTuple):
    """`notes`: sentences about what had to be left out."""

    text: str
    notes: list[str]


def pack(answers: Answers, models: Sequence[str], metrics: Sequence[str], budget: int) -> Packed:
    """At most `budget` characters: texts are cut shorter until they fit; if that is not enough, the
    last steps are left out.
    """
    steps = list(answers.by_step)
    shown, cutter = len(steps), Cutter(LONGEST[0])
    text = _packed(_contents(answers, steps, models, metrics, cutter))
    while len(text) > budget and shown:
        shorter = [limit for limit in LONGEST if limit < cutter.longest]
        if not shorter:
            shown = int(0.95 * shown * budget / len(text))
        cutter = Cutter(shorter[0] if shorter else cutter.limit)
        text = _packed(_contents(answers, steps[:shown], models, metrics, cutter))
    cut = (
        f"{cutter.count} texts are cut after {cutter.limit:,} characters; each says how much of "
        "it is missing."
    )
    left_out = (
        f"The first {shown:,} of {len(steps):,} prompts: with the others this page would be too "
        "large."
    )
    return Packed(
        text, [*([cut] if cutter.count else []), *([left_out] if shown < len(steps) else [])]
    )


class Cutter:
    """Cuts long texts, notes in each how much is missing, and counts them."""

    def __init__(self, limit: int):
        self.limit, self.count, self.longest = limit, 0, 0

    def __call__(self, text: str) -> str:
        """Also keeps the length of the longest text that was left, in `longest`."""
        self.longest = max(self.longest, min(len(text), self.limit))
        if len(text) <= self.limit:
            return text
        self.count += 1
        return f"{text[: self.limit]} … [{len(text) - self.limit:,} more characters]"


def _packed(contents: Json) -> str:
    return base64.b64encode(zlib.compress(compact(contents).encode("utf-8", "replace"))).decode(
        "ascii"
    )


def _contents(
    answers: Answers,
    steps: Sequence[Step],
    models: Sequence[str],
    metrics: Sequence[str],
    cut: Callable[[str], str],
) -> Json:
    """Every record and every tool once: a step refers to its record, and a record to its tools."""
    turns: dict[str, int] = {}
    for step in steps:
        if step.record_id in answers.records:
            turns[step.record_id] = max(step.turn, turns.get(step.record_id, 0))
    index_of = {name: index for index, name in enumerate(turns)}
    tools: dict[tuple[str, ...], int] = {}
    records = [_record(answers.records[name], turn, tools, cut) for name, turn in turns.items()]
    return {
        "models": list(models),
        "metrics": list(metrics),
        "records": records,
        "tools": [tuple(map(cut, tool)) for tool in tools],
        "steps": [
            _step(step, index_of.get(step.record_id), answers, models, metrics, cut)
            for step in steps
        ],
    }


def _record(
    record: Record, turn: int, tools: dict[tuple[str, ...], int], cut: Callable[[str], str]
) -> list[object]:
    """Its messages up to the last turn that is shown, and the numbers of its tools, which are added
    to `tools`.
    """
    offered = ((tool.name, tool.description, compact(tool.parameters)) for tool in record.tools)
    messages = [
        [message.role, cut(message.content), _calls(message.calls, cut)]
        for message in record.messages[: turn + 1]
    ]
    return [messages, [tools.setdefault(tool, len(tools)) for tool in offered]]


def _step(
    step: Step,
    record: int | None,
    answers: Answers,
    models: Sequence[str],
    metrics: Sequence[str],
    cut: Callable[[str], str],
) -> list[object]:
    """Its record and turn, the expected calls (None where they are not known), its slices, and the
    prediction of each model with the calls that were read from it.
    """
    source = answers.records.get(step.record_id)
    expected = _calls(source.expected(step.turn).calls, cut) if source else None
    predictions = [
        [
            models.index(model),
            cut(row["text"]),
            row["problem"],
            [row["metrics"].get(name) for name in metrics],
            row.get("new_tokens", 0),
            [[call["name"], cut(call["arguments"])] for call in row.get("calls", [])],
        ]
        for model, rows in answers.by_step[step].items()
        for row in rows
    ]
    slices = next(iter(answers.by_step[step].values()))[0].get("slices", {})
    return [step.record_id, step.turn, record, expected, slices, predictions]


def _calls(calls: Iterable[Call | GoldCall], cut: Callable[[str], str]) -> list[list[str]]:
    """Arguments that are not known are not JSON: the page prints them as they are."""
    return [
        [
            call.name,
            "any arguments" if call.arguments is ANY_ARGUMENTS else cut(compact(call.arguments)),
        ]
        for call in calls
    ]
