"""Rejected rows -> rejects.jsonl, bytes and all; the same file, edited -> the rows to read in their places."""

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from agentlite.codes import CODES
from agentlite.errors import UserError
from agentlite.rows import Row, read_rows
from agentlite.sources import Line


class Reject(NamedTuple):
    """`part`: which of the samples of the row, where it holds several; 0 otherwise."""

    place: str
    content: bytes
    code: str
    reason: str
    part: int = 0


def reject_row(reject: Reject) -> Row:
    row = {"place": reject.place, "code": reject.code, "reason": reject.reason, "hint": CODES[reject.code].hint}
    if reject.part:
        row["part"] = str(reject.part)
    try:
        return {**row, "raw": reject.content.decode("utf-8")}
    except UnicodeDecodeError:
        return {**row, "raw_base64": base64.b64encode(reject.content).decode("ascii")}


def edited_rows(path: Path) -> dict[str, list[bytes]]:
    """What a file of rejects holds for each place. Raises UserError with file and line for a row that is none."""
    edited: dict[str, list[bytes]] = {}
    try:
        for number, row in enumerate(read_rows(path), 1):
            place, content = row.get("place"), _content(row)
            if not isinstance(place, str) or content is None:
                raise UserError("has no place, or neither raw nor raw_base64.", "Edit `raw` alone, in a copy of "
                                "rejects.jsonl.", place=f"{path}:{number}")  # fmt: skip
            edited.setdefault(place, []).append(content)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}.", "It is rejects.jsonl of an earlier prep, edited.",
                        place=str(path)) from error  # fmt: skip
    return edited


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

    def __call__(self, line: Line) -> Line:
        """The row, or what it was edited to: of several samples of one row, the first that was changed counts."""
        if line.place not in self.edited:
            return line
        self.used.add(line.place)
        found = line.content.removesuffix(b"\n")
        changed = next((content for content in self.edited[line.place] if content != found), None)
        return line if changed is None else Line(line.place, changed + b"\n")

    def unused(self) -> Iterator[str]:
        return (place for place in self.edited if place not in self.used)
