"""The answers of another system at the steps of the data, from a file of rows."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from agentlite.core import console
from agentlite.core.errors import RowError, UserError
from agentlite.core.plain_words import utf8_text
from agentlite.core.records import Call, Record, Step, plain
from agentlite.core.row_files import Row
from agentlite.data.formats.tool_calls import read_call
from agentlite.scoring.predictions import ExternalAnswer

ID, TURN = ("record_id", "id"), "turn"
CALLS = ("calls", "tool_calls", "function_call")  # the last one as older servers write it
SHAPE = (
    '{"record_id": "...", "turn": 2, "text": "..."}, or "calls": [{"name": ..., "arguments": '
    '{...}}] for "text", or "tool_calls" or "message" as OpenAI writes them'
)


def read_predictions_file(
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
        except ValueError as error:
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
    if not isinstance("" if text is None else text, str) or (text is None and not named):
        raise UserError("has no text and no calls.", f"A row: {SHAPE}.", location=where)
    calls = _calls(row[named[0]], named[0], where) if named else None
    # a server lists no calls where it finds none in the text: the text is the answer
    only_text = calls == () and named != ["calls"] and text is not None
    return ExternalAnswer(text or "", None if only_text else calls)


def _with_message(row: Row, where: str) -> Row:
    """The row with the words and calls of its message."""
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
    return {**row, **{name: value for name, value in given.items() if value is not None}}


def _calls(calls: object, name: str, where: str) -> tuple[Call, ...]:
    if name == "function_call":
        calls = [calls]
    if not isinstance(calls, list):
        raise UserError(f'"{name}" is not a list.', f"A row: {SHAPE}.", location=where)
    return tuple(_call(call, where) for call in calls)


def _call(call: object, where: str) -> Call:
    """A call in any of the shapes in which prep reads one."""
    try:
        return replace(read_call(call), id="")
    except RowError as error:
        fix = error.hint or f"A row: {SHAPE}."
        raise UserError(f"{error.reason}.", fix, location=where) from error
