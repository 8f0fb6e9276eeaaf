"""The answers of another system at the steps of the data, from a file of rows."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from agentlite.core import console
from agentlite.core.errors import RowError, UserError
from agentlite.core.plain_words import utf8_text
from agentlite.core.records import Record, Step, plain
from agentlite.core.row_files import Row
from agentlite.data.formats.tool_calls import read_call
from agentlite.scoring.predictions import ExternalAnswer

ID, TURN = ("record_id", "id"), "turn"
CALLS = ("calls", "tool_calls", "function_call")  # the last one as older servers write it
SHAPE = (
    'A row: {"record_id": "...", "turn": 2, "text": "..."}, or "calls": [{"name": ..., '
    '"arguments": {...}}] for "text", or "tool_calls" or "message" as OpenAI writes them.'
)


def read_predictions_file(
    path: Path, steps: Iterable[Step], records: Mapping[str, Record]
) -> dict[Step, ExternalAnswer]:
    """Texts or calls from elsewhere, by step. `records`: all of the data, by id; `steps`: those
    that are asked. Rows about records that are never asked are noted.

    Raises UserError with file and line for a row that is none, appears twice, or is about a step
    the data does not have.
    """
    answers: dict[Step, ExternalAnswer] = {}
    lines: dict[Step, str] = {}
    strangers: list[tuple[str, str]] = []
    unasked = 0
    wanted = set(steps)
    for where, row in _rows(path):
        name = next((row[key] for key in ID if isinstance(row.get(key), str)), None)
        if name is None:
            raise UserError("names no record.", SHAPE, location=where)
        record = records.get(name)
        if record is None:
            strangers.append((where, name))
        elif not record.prompted_turns:
            unasked += 1
        else:
            step = _step(row, record, where)
            if step in lines:
                raise UserError(
                    f"record {step.record_id}, turn {step.turn} appears twice, first in line "
                    f"{lines[step].rpartition(':')[2]}.",
                    "Keep one of the two.",
                    location=where,
                )
            lines[step] = where
            if step in wanted:
                answers[step] = _external_answer(row, where)
    if unasked:
        console.notice(
            f"{path}: {unasked} rows are about records that are not asked: they have no tools, and "
            "no gold says that no call is expected"
        )
    if strangers:
        where, name = strangers[0]
        raise UserError(
            f"{len(strangers)} of {len(strangers) + len(lines) + unasked} rows are about records "
            f"that the data does not have, {name} first.",
            "Were they made on other data, or another --split? The ids are in the rows of prep.",
            location=where,
        )
    return answers


def _rows(path: Path) -> Iterator[tuple[str, Row]]:
    """Each with its file and line."""
    try:
        lines = utf8_text(path.read_bytes(), str(path)).split("\n")
    except OSError as error:
        raise UserError(
            f"cannot be read: {error.strerror}.", "Name a file of rows.", location=str(path)
        ) from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UserError(f"is not JSON: {error}.", SHAPE, location=where) from error
        if not isinstance(row, dict):
            raise UserError("is not a JSON object.", SHAPE, location=where)
        yield where, row


def _step(row: Row, record: Record, where: str) -> Step:
    """The step of the record that a row is about."""
    turn = row.get(TURN)
    if turn is None and len(record.prompted_turns) == 1:
        return Step(record.id, record.prompted_turns[0])
    if turn not in record.prompted_turns:
        turns = ", ".join(map(str, record.prompted_turns))
        raise UserError(
            f"record {record.id} is not asked at turn {plain(turn)}.",
            f"It is at: {turns}.",
            location=where,
        )
    return Step(record.id, int(turn))


def _external_answer(row: Row, where: str) -> ExternalAnswer:
    """The words and calls of a row, or of its message."""
    message = row.get("message")
    if message is not None:
        if not isinstance(message, dict) or not isinstance(message.get("content") or "", str):
            raise UserError(
                '"message" is not an object whose "content" is a text.', SHAPE, location=where
            )
        given = {name: message[name] for name in CALLS if message.get(name) is not None}
        row = {**row, "text": message.get("content") or "", **given}
    text = row.get("text")
    named = [name for name in CALLS if row.get(name) is not None]
    if not isinstance("" if text is None else text, str) or (text is None and not named):
        raise UserError("has no text and no calls.", SHAPE, location=where)
    if not named:
        return ExternalAnswer(text or "")
    name, *_ = named
    listed = [row[name]] if name == "function_call" else row[name]
    if not isinstance(listed, list):
        raise UserError(f'"{name}" is not a list.', SHAPE, location=where)
    try:
        calls = tuple(replace(read_call(call), id="") for call in listed)
    except RowError as error:
        raise UserError(f"{error.reason}.", error.hint or SHAPE, location=where) from error
    # a server lists no calls where it finds none in the text: the text is the answer
    is_only_text = not calls and named != ["calls"] and text is not None
    return ExternalAnswer(text or "", None if is_only_text else calls)
