"""The rows of a long JSONL file by number: their places are found once, a piece at each look."""

import os
import time
from array import array
from pathlib import Path

import msgspec

from agentlite.core.row_files import Row

PIECE = 1 << 18  # bytes that are read between two looks at the clock
LONGEST_ROW = 64 << 20  # bytes; a longer line is passed over


class IndexedRows:
    """A file that a stage has finished. 12 bytes of memory for each row, and what `_add` keeps. A
    file that was replaced is read anew; a line that is not a row is counted and passed over.
    """

    def __init__(self, path: Path):
        self.path = path
        self._forget()

    def _forget(self) -> None:
        self._signature: tuple[int, int, int] = (0, 0, 0)
        self._offset, self.unread = 0, 0
        self._starts, self._lengths = array("Q"), array("I")

    def __len__(self) -> int:
        return len(self._starts)

    def _add(self, line: bytes) -> None:
        """Keeps of a row by which it is found. Raises ValueError for a line that is not one."""

    def look(self, until: float) -> bool:
        """Reads on until that moment of time.monotonic(). Returns whether there is more."""
        try:
            with open(self.path, "rb") as file:
                return self._look(file.fileno(), until)
        except OSError:
            self._forget()
            return False

    def _look(self, file: int, until: float) -> bool:
        stat = os.fstat(file)
        signature = stat.st_ino, stat.st_size, stat.st_mtime_ns
        if signature != self._signature:
            self._forget()
            self._signature = signature
        wanted = PIECE
        while self._offset < stat.st_size:
            piece = os.pread(file, wanted, self._offset)
            whole = piece[: piece.rfind(b"\n") + 1]
            if not whole and len(piece) == wanted and wanted < LONGEST_ROW:
                wanted *= 4
                continue
            if not whole:  # the last line has no end, or one is too long
                self.unread += 1
                self._offset += len(piece)
                continue
            for line in whole.splitlines(keepends=True):
                self._keep(line)
            wanted = PIECE
            if time.monotonic() >= until:
                break
        return self._offset < stat.st_size

    def _keep(self, line: bytes) -> None:
        try:
            self._add(line)
        except (ValueError, msgspec.MsgspecError, RecursionError):
            self.unread += 1
        else:
            self._starts.append(self._offset)
            self._lengths.append(len(line))
        self._offset += len(line)

    def lines(self, first: int, last: int) -> list[bytes]:
        """The rows from `first` to before `last` as they were written; [] if the file has changed
        since.
        """
        last = min(last, len(self))
        if first >= last:
            return []
        start = self._starts[first]
        end = self._starts[last - 1] + self._lengths[last - 1]
        try:
            with open(self.path, "rb") as file:
                stat = os.fstat(file.fileno())
                if (stat.st_ino, stat.st_size, stat.st_mtime_ns) != self._signature:
                    return []
                piece = os.pread(file.fileno(), end - start, start)
        except OSError:
            return []
        return [
            piece[self._starts[n] - start : self._starts[n] - start + self._lengths[n]]
            for n in range(first, last)
        ]

    def row(self, number: int) -> Row | None:
        """None for a number that the file does not have (any more)."""
        lines = self.lines(number, number + 1) if number >= 0 else []
        try:
            found = msgspec.json.decode(lines[0]) if lines else None
        except msgspec.MsgspecError:
            return None
        return found if isinstance(found, dict) else None
