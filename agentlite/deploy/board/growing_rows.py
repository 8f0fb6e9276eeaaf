"""The rows of a JSONL file that another process writes: each look reads only what was added."""

import json
import os
from pathlib import Path
from typing import NamedTuple

from agentlite.core.row_files import Row

MARK = 64  # bytes before the place that was read to: they say whether the file still goes on there
AT_ONCE = 16 << 20  # bytes that one look reads


class Look(NamedTuple):
    """`anew`: the file is not the one of the look before, and `rows` begin at its start. `more`:
    whether another look would find more at once. `unread`: lines that are not rows.
    """

    rows: list[Row]
    anew: bool = False
    more: bool = False
    unread: int = 0


class GrowingRows:
    """A file that may be missing, half written, cut or replaced. A line without its end is left for
    the next look; one that is not a JSON object is counted and passed over.
    """

    def __init__(self, path: Path):
        self.path = path
        self._forget()

    def look(self) -> Look:
        try:
            with open(self.path, "rb") as file:
                return self._look(file.fileno())
        except OSError:
            return self._gone()

    def _gone(self) -> Look:
        anew = self._offset > 0
        self._forget()
        return Look([], anew)

    def _forget(self) -> None:
        self._offset, self._mark, self._inode = 0, b"", 0

    def _look(self, file: int) -> Look:
        stat = os.fstat(file)
        anew = self._offset > 0 and not (
            stat.st_ino == self._inode
            and stat.st_size >= self._offset
            and os.pread(file, len(self._mark), self._offset - len(self._mark)) == self._mark
        )
        if anew:
            self._forget()
        self._inode = stat.st_ino
        piece = os.pread(file, AT_ONCE, self._offset)
        whole = piece[: piece.rfind(b"\n") + 1]
        is_full = len(piece) == AT_ONCE
        if not whole and is_full:  # one line longer than a look: no row of ours is
            whole = piece
        self._offset += len(whole)
        self._mark = (self._mark + whole)[-MARK:]
        read = [_row(line) for line in whole.splitlines() if line.strip()]
        rows = [row for row in read if row is not None]
        return Look(rows, anew, is_full, len(read) - len(rows))


def newest_rows(path: Path, most: int, within: int = 1 << 20) -> list[Row]:
    """The last whole rows of a file, the newest first; at most `most`, of its last `within`
    bytes. [] for a file that cannot be read.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = max(0, size - within)
            piece = os.pread(file.fileno(), within, start)
    except OSError:
        return []
    lines = piece[: piece.rfind(b"\n") + 1].splitlines()
    found: list[Row] = []
    for line in reversed(lines[1:] if start else lines):  # the first may begin before the piece
        if len(found) < most and (row := _row(line)) is not None:
            found.append(row)
    return found


class Counted(NamedTuple):
    """The rows of a file until a place in it."""

    inode: int
    offset: int
    rows: int


_COUNTED: dict[Path, Counted] = {}  # a file of answers is long, and is counted again and again
MOST_COUNTED = 1000


def count_rows(path: Path) -> int:
    """The whole lines of a file; 0 for one that is missing. Lines that were counted before are not
    read again.
    """
    try:
        with open(path, "rb") as file:
            stat = os.fstat(file.fileno())
            known = _COUNTED.get(path, Counted(0, 0, 0))
            if known.inode != stat.st_ino or known.offset > stat.st_size:
                known = Counted(stat.st_ino, 0, 0)
            file.seek(known.offset)
            offset, rows = known.offset, known.rows
            while piece := file.read(1 << 20):
                offset, rows = offset + len(piece), rows + piece.count(b"\n")
    except OSError:
        return 0
    if len(_COUNTED) >= MOST_COUNTED:
        _COUNTED.clear()
    _COUNTED[path] = Counted(stat.st_ino, offset, rows)
    return rows


def _row(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None
