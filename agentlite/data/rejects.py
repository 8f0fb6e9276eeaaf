"""rejects.jsonl: rejected rows with their bytes and reasons, and edited rows read again."""

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentlite.core.errors import UserError
from agentlite.core.reject_codes import CODES
from agentlite.core.row_files import Row
from agentlite.data.formats import RawLine


class Reject(NamedTuple):
    """`part`: which of the samples of the row, where it holds several; 0 otherwise. `hint`, `at`:
    of its RowError.
    """

    location: str
    content: bytes
    code: str
    reason: str
    part: int = 0
    hint: str = ""
    at: str | int = ""


def reject_row(reject: Reject) -> Row:
    row = {
        "location": reject.location,
        "code": reject.code,
        "reason": reject.reason,
        "hint": reject.hint or CODES[reject.code].hint,
    }
    if reject.part:
        row["part"] = str(reject.part)
    try:
        return {**row, "raw": reject.content.decode("utf-8")}
    except UnicodeDecodeError:
        return {**row, "raw_base64": base64.b64encode(reject.content).decode("ascii")}


def edited_rows(path: Path) -> dict[str, list[bytes]]:
    """What a file of rejects holds for each place. Raises UserError with file and line for a row
    that is none.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UserError(
            f"cannot be read: {error.strerror}.",
            "It is rejects.jsonl of an earlier prep, edited.",
            location=str(path),
        ) from error
    edited: dict[str, list[bytes]] = {}
    for number, line in enumerate(lines, 1):
        row = _row(line)
        content = _content(row)
        if not isinstance(row.get("location"), str) or content is None:
            raise UserError(
                "is not a row of rejects: it needs the keys location, and raw or raw_base64.",
                "Edit only `raw`, in a copy of rejects.jsonl.",
                location=f"{path}:{number}",
            )
        edited.setdefault(row["location"], []).append(content)
    return edited


def _row(line: bytes) -> Row:
    try:
        value = msgspec.json.decode(line)
    except (msgspec.MsgspecError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _content(row: Row) -> bytes | None:
    if isinstance(row.get("raw"), str):
        return str(row["raw"]).encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(row["raw_base64"], validate=True)
    except (KeyError, TypeError, ValueError):
        return None


class Edits:
    """Puts edited rows in the places of those that were rejected."""

    def __init__(self, edited: Mapping[str, list[bytes]]):
        self.edited = edited
        self.used: set[str] = set()

    def __call__(self, line: RawLine) -> RawLine:
        """The row, or what it was edited to. Where a row holds several samples, its edits must be
        the same.

        Raises UserError where they are not.
        """
        if line.location not in self.edited:
            return line
        self.used.add(line.location)
        found = line.content.removesuffix(b"\n")
        changed = list(
            dict.fromkeys(content for content in self.edited[line.location] if content != found)
        )
        if len(changed) > 1:
            raise UserError(
                "was edited in two ways.",
                "A row that holds several samples is whole in each of its "
                "rejects: edit one of them, and take the others out.",
                location=line.location,
            )
        return RawLine(line.location, changed[0] + b"\n") if changed else line

    def unused(self) -> Iterator[str]:
        return (location for location in self.edited if location not in self.used)
