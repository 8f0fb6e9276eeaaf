"""Predictions -> the packed text that the page's viewer reads."""

from collections.abc import Callable, Iterable, Sequence

from agentlite.core.records import ANY_ARGUMENTS, Call, GoldCall, Record, Step
from agentlite.report.packing import Packed, compact, pack_within
from agentlite.report.predictions import Answers
from agentlite.report.read_run import Json
from agentlite.scoring.metrics.wrong_answers import IN_WORDS


def pack(answers: Answers, models: Sequence[str], metrics: Sequence[str], budget: int) -> Packed:
    """At most `budget` characters; the last steps are left out if that is needed."""
    steps = list(answers.by_step)
    fitted = pack_within(
        budget,
        len(steps),
        lambda count, cut: _contents(answers, steps[:count], models, metrics, cut),
    )
    left_out = (
        f"The first {fitted.rows:,} of {len(steps):,} prompts: with the others this page would be "
        "too large."
    )
    return Packed(fitted.text, [*fitted.notes, *([left_out] if fitted.rows < len(steps) else [])])


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
    prediction of each model with the calls that were read from it and what is wrong with it.
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
            IN_WORDS.get(row.get("wrong", ""), ""),
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
