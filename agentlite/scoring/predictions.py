"""Answers of a model, or of another system, at the steps of records -> scored predictions."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.plain_words import utf8_text
from agentlite.core.records import (
    Call,
    GreedyAnswer,
    Parsed,
    Prediction,
    Record,
    Step,
    digest,
    plain,
)
from agentlite.core.row_files import Appender, Row, read_rows
from agentlite.rendering import Prompt, Protocol
from agentlite.scoring.metrics.bfcl import category_of, check
from agentlite.scoring.metrics.dialogs import Dialog
from agentlite.scoring.metrics.model_metrics import BFCL
from agentlite.scoring.metrics.summarize import EXPECTED, Scores, scores
from agentlite.scoring.metrics.tool_calls import score_step
from agentlite.scoring.metrics.wrong_answers import NOTHING, TOO_LONG, UNANSWERED, wrong_kind
from agentlite.scoring.read_turn import read_turn, reference_of
from agentlite.scoring.rewards import COMPONENTS, Attempt

CUT = "not finished within max_new_tokens"
DIFFICULTY = ("difficulty", "level")  # where the meta of a record says it
ID, TURN = ("record_id", "id"), "turn"
NO_ARGUMENTS = {"name", "id", "type", "index"}
CALLS = ("calls", "tool_calls", "function_call")  # the last one as older servers write it
SHAPE = (
    '{"record_id": "...", "turn": 2, "text": "..."}, or "calls": [{"name": ..., "arguments": '
    '{...}}] for "text", or "tool_calls" or "message" as OpenAI writes them'
)


class ExternalAnswer(NamedTuple):
    """The answer of another system at a step: its text, or its calls where it gives them apart."""

    text: str
    calls: tuple[Call, ...] | None = None


def prompt_key(prompt: Prompt) -> str:
    """Names a prompt by its tokens: an answer to another one is not an answer to this."""
    return digest(",".join(map(str, prompt.ids)))


def answered(prompt: Prompt, answer: GreedyAnswer, protocol: Protocol) -> Prediction:
    """The answer as the protocol reads it. One that was not finished cannot be read."""
    if not answer.prompt or answer.problem:
        problem = UNANSWERED if answer.problem else TOO_LONG
        return predicted(prompt, Parsed("", (), problem), "", 0, finished=False)
    parsed = read_turn(answer.text, protocol, prompt.record, prompt.turn)
    finished = answer.ended != "cut"
    if not finished and not parsed.problem:
        parsed = Parsed(parsed.content, parsed.calls, CUT)
    reference = reference_of(protocol, prompt.record, prompt.turn)
    return predicted(
        prompt, parsed, answer.text, answer.new_tokens, finished=finished, reference=reference
    )


def external_prediction(
    prompt: Prompt, answer: ExternalAnswer | None, protocol: Protocol
) -> Prediction:
    """None: another system has no answer to the prompt, which is a problem and scores 0. One that
    gives only its calls is not judged by its words.
    """
    if answer is None:
        return predicted(prompt, Parsed("", (), NOTHING), "", 0)
    reference = reference_of(protocol, prompt.record, prompt.turn)
    parsed = (
        read_turn(answer.text, protocol, prompt.record, prompt.turn)
        if answer.calls is None
        else Parsed(answer.text or reference, answer.calls)
    )
    return predicted(prompt, parsed, answer.text, 0, reference=reference)


def predicted(
    prompt: Prompt,
    parsed: Parsed,
    text: str,
    new_tokens: int,
    *,
    finished: bool = True,
    reference: str = "",
) -> Prediction:
    """Scores a reading at its step. `reference`: the words that the record has there."""
    record, gold = prompt.record, prompt.record.expected(prompt.turn)
    attempt = Attempt(
        parsed,
        gold,
        record.tools,
        finished=finished,
        text=text,
        messages=record.messages[: prompt.turn],
        reference=reference,
    )
    metrics = {**score_step(parsed, gold, record.tools), EXPECTED: float(bool(gold.calls))}
    if gold.names_tools or not gold.calls:
        metrics["toolrl"] = COMPONENTS["arguments"](attempt)
        metrics["tool_n1"] = COMPONENTS["exact"](attempt)
    if category := category_of(record):
        calls = () if parsed.problem else parsed.calls
        metrics[BFCL] = float(not check(category, calls, gold, record.tools))
    return Prediction(
        record.id,
        prompt.turn,
        text,
        parsed.problem,
        parsed.calls,
        metrics,
        slices(record, prompt.protocol),
        new_tokens,
        wrong_kind(parsed, gold, record.tools, finished=finished),
    )


def slices(record: Record, protocol: str) -> dict[str, str]:
    """What a report slices by."""
    count = len(record.tools)
    tools = str(count) if count < 2 else "2-4" if count < 5 else "5+"
    return {
        "tools": tools,
        "task": record.task,
        "source": record.source,
        "protocol": protocol,
        "difficulty": difficulty(record),
    }


def difficulty(record: Record) -> str:
    """As the record says, or by its expected calls."""
    told = next(
        (record.meta[key] for key in DIFFICULTY if isinstance(record.meta.get(key), str)), ""
    )
    expected = sum(len(record.expected(turn).calls) for turn in record.turns)
    return told or (
        "no call"
        if not expected
        else "1 call"
        if expected == 1
        else "2-4 calls"
        if expected < 5
        else "5+ calls"
    )


def read_answers(path: Path, keys: Mapping[Step, str]) -> dict[Step, GreedyAnswer]:
    """The answers that are there to these very prompts, by step; a torn last line is cut. `keys`:
    see prompt_key.
    """
    if not path.exists():
        return {}
    with Appender(path):
        pass
    found = (msgspec.convert(row, GreedyAnswer) for row in read_rows(path))
    return {
        one.step: one for one in found if one.step in keys and one.prompt in ("", keys[one.step])
    }


def to_prediction_row(prediction: Prediction) -> Row:
    calls = [{"name": call.name, "arguments": plain(call.arguments)} for call in prediction.calls]
    return {**msgspec.structs.asdict(prediction), "calls": calls}


def read_predictions(path: Path) -> Iterator[Prediction]:
    for row in read_rows(path):
        calls = tuple(
            Call(call["name"], json.loads(call["arguments"])) for call in row.pop("calls")
        )
        yield Prediction(calls=calls, **row)


def read_external(
    path: Path, steps: Iterable[Step], records: Mapping[str, Record]
) -> dict[Step, ExternalAnswer]:
    """Texts or calls from elsewhere, by step. `records`: all of the data, by id; `steps`: those
    that are asked. Rows about records that are never asked are noted.

    Raises UserError with file and line for a row that is none, appears twice, or is about a step
    the data does not have.
    """
    found: dict[Step, ExternalAnswer] = {}
    lines: dict[Step, int] = {}
    strangers: list[tuple[int, str]] = []
    unasked = 0
    wanted = set(steps)
    for number, row in _numbered(path):
        where = f"{path}:{number}"
        name = _record_name(row, where)
        record = records.get(name)
        if record is None:
            strangers.append((number, name))
            continue
        if not record.prompted_turns:
            unasked += 1
            continue
        step = _step(row, record, where)
        if step in lines:
            raise UserError(
                f"record {step.record_id}, turn {step.turn} appears twice, first in line "
                f"{lines[step]}.",
                "Keep one of the two.",
                location=where,
            )
        lines[step] = number
        if step in wanted:
            found[step] = _external_answer(row, where)
    if unasked:
        console.notice(
            f"{path}: {unasked} rows are about records that are not asked: they have no tools, and "
            "no gold says that no call is expected"
        )
    if strangers:
        number, name = strangers[0]
        raise UserError(
            f"{len(strangers)} of {len(strangers) + len(lines) + unasked} rows are about records "
            f"that the data does not have, {name} first.",
            "Were they made on other data, or another --split? The ids are in the rows of prep.",
            location=f"{path}:{number}",
        )
    return found


def missing(steps: Sequence[Step], found: Mapping[Step, ExternalAnswer]) -> int:
    return sum(step not in found for step in steps)


def _numbered(path: Path) -> Iterator[tuple[int, Row]]:
    try:
        lines = utf8_text(path.read_bytes(), str(path)).split("\n")
    except OSError as error:
        raise UserError(
            f"cannot be read: {error.strerror}.", "Name a file of rows.", location=str(path)
        ) from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"is not JSON: {error}.", f"A row: {SHAPE}.", location=f"{path}:{number}"
            ) from error
        if not isinstance(row, dict):
            raise UserError(
                "is not a JSON object.", f"A row: {SHAPE}.", location=f"{path}:{number}"
            )
        yield number, row


def _record_name(row: Row, where: str) -> str:
    name = next((row[key] for key in ID if isinstance(row.get(key), str)), None)
    if name is None:
        raise UserError("names no record.", f"A row: {SHAPE}.", location=where)
    return str(name)


def _step(row: Row, record: Record, where: str) -> Step:
    """The step of the record that a row is about."""
    turn = row.get(TURN)
    if turn is None and len(record.prompted_turns) == 1:
        return Step(record.id, record.prompted_turns[0])
    if turn not in record.prompted_turns:
        turns = ", ".join(map(str, record.prompted_turns)) or "none"
        raise UserError(
            f"record {record.id} is not asked at turn {plain(turn)}.",
            f"It is at: {turns}.",
            location=where,
        )
    return Step(record.id, int(turn))


def _external_answer(row: Row, where: str) -> ExternalAnswer:
    row = _with_message(row, where)
    text = row.get("text")
    named = [name for name in CALLS if row.get(name) is not None]
    if len(named) > 1:
        raise UserError(
            f'has both "{named[0]}" and "{named[1]}".', "Keep one of the two.", location=where
        )
    if not isinstance("" if text is None else text, str) or (text is None and not named):
        raise UserError("has no text and no calls.", f"A row: {SHAPE}.", location=where)
    calls = _calls(row[named[0]], named[0], where) if named else None
    # a server lists no calls where it finds none in the text: the text is the answer
    only_text = calls == () and named != ["calls"] and text is not None
    return ExternalAnswer(text or "", None if only_text else calls)


def _with_message(row: Row, where: str) -> Row:
    """The row with the words and calls of its message. Raises UserError where it has its own."""
    message = row.get("message")
    if message is None:
        return row
    if not isinstance(message, dict) or not isinstance(message.get("content") or "", str):
        raise UserError(
            '"message" is not an object whose "content" is a text.',
            f"A row: {SHAPE}.",
            location=where,
        )
    given = {"text": message.get("content") or "", **{name: message.get(name) for name in CALLS}}
    both = next((name for name in given if row.get(name) and row[name] != given[name]), None)
    if both:
        raise UserError(
            f'has both "message" and another "{both}".', "Keep one of the two.", location=where
        )
    return {**row, **{name: value for name, value in given.items() if value is not None}}


def _calls(calls: object, name: str, where: str) -> tuple[Call, ...]:
    if name == "function_call":
        calls = [calls]
    if not isinstance(calls, list):
        raise UserError(f'"{name}" is not a list.', f"A row: {SHAPE}.", location=where)
    return tuple(_call(call, where) for call in calls)


def _call(call: Any, where: str) -> Call:
    """A call, or OpenAI's object with one, its arguments an object or the JSON text of one."""
    if isinstance(call, dict):
        call = call.get("function", call)
    if isinstance(call, dict) and "arguments" not in call and (other := call.keys() - NO_ARGUMENTS):
        raise UserError(
            f'has a call without "arguments", and with {", ".join(sorted(map(repr, other)))}.',
            f"A row: {SHAPE}.",
            location=where,
        )
    arguments = call.get("arguments", {}) if isinstance(call, dict) else None
    try:
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        return Call(msgspec.convert(call["name"], str), msgspec.convert(arguments, dict[str, Any]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            "has a call without a name and an object of arguments.",
            f"A row: {SHAPE}.",
            location=where,
        ) from error


def read_scores(folder: Path) -> Scores:
    """The metrics of each step and each dialog, from the folder of an evaluated model. Raises
    UserError 2 for one that an earlier version wrote.
    """
    if not (folder / "dialogs.jsonl").exists():
        raise UserError(
            "an earlier version wrote it.",
            "Run that eval again with --force.",
            location=str(folder),
        )
    whole = (Dialog(**row) for row in read_rows(folder / "dialogs.jsonl"))
    return scores(list(read_predictions(folder / "predictions.jsonl")), list(whole))
