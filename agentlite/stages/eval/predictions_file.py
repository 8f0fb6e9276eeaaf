"""The answers of another system at the steps of the data, from a file of rows."""

from collections.abc import Collection, Mapping
from io import BytesIO
from pathlib import Path

from msgspec.structs import replace

from agentlite.core import console
from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Record, Step, plain
from agentlite.core.row_files import Row
from agentlite.data.formats.raw_rows import read_raw
from agentlite.data.formats.tool_calls import read_call
from agentlite.scoring.predictions import ExternalAnswer

ID, TURN = ("record_id", "id"), "turn"
CALLS = ("calls", "tool_calls", "function_call")  # the last one as older servers write it
SHAPE = (
    'A row: {"record_id": "...", "turn": 2, "text": "..."}, or "calls": [{"name": ..., '
    '"arguments": {...}}] for "text", or "tool_calls" or "message" as OpenAI writes them.'
)


def read_predictions_file(
    path: Path, steps: Collection[Step], records: Mapping[str, Record]
) -> dict[Step, ExternalAnswer]:
    """Texts or calls from elsewhere, by step. `records`: all of the data, by id; `steps`: those
    that are asked.
    """
    answers: dict[Step, ExternalAnswer] = {}
    not_asked = 0
    for raw in read_raw(str(path), BytesIO()):
        row, problem, fix = raw.value, "", SHAPE
        if raw.error:
            raise UserError(f"{raw.error.reason}.", fix, location=raw.location)
        name = next((row[key] for key in ID if isinstance(row.get(key), str)), "")
        turns = records[name].prompted_turns if name in records else ()
        turn = turns[0] if row.get(TURN) is None and len(turns) == 1 else row.get(TURN)
        if name not in records:
            problem = f"names no record of the data ('{name}'): other data, or another --split?"
        elif not turns:
            not_asked += 1
            continue
        elif turn not in turns:
            problem = f"record {name} is not asked at turn {plain(turn)}."
            fix = f"It is at: {', '.join(map(str, turns))}."
        elif (name, turn) in answers:
            problem, fix = f"record {name}, turn {turn} appears twice.", "Keep one of the two."
        if problem:
            raise UserError(problem, fix, location=raw.location)
        answers[Step(name, turn)] = _external_answer(row, raw.location)
    if not_asked:
        console.notice(
            f"{path}: {not_asked} rows are about records that are not asked: they have no tools, "
            "and no gold says that no call is expected"
        )
    return {step: answers[step] for step in steps if step in answers}


def _external_answer(row: Row, location: str) -> ExternalAnswer:
    """The words and calls of a row, or of its message."""
    message = row["message"] if isinstance(row.get("message"), dict) else {}
    given = {**row, **{key: message[key] for key in CALLS if message.get(key) is not None}}
    text = message.get("content") or "" if message else row.get("text")
    key = next((key for key in CALLS if given.get(key) is not None), None)
    listed = [given[key]] if key == "function_call" else given.get(key or "", [])
    is_wrong = not isinstance(text, str | None) or not isinstance(listed, list)
    if is_wrong or (text is None and key is None):
        raise UserError("has no text and no calls.", SHAPE, location=location)
    try:
        calls = tuple(replace(read_call(call), id="") for call in listed)
    except RowError as error:
        raise UserError(f"{error.reason}.", error.hint or SHAPE, location=location) from error
    # a server lists no calls where it finds none in the text: the text is the answer
    is_only_text = not calls and key != "calls" and text is not None
    return ExternalAnswer(text or "", None if is_only_text else calls)
