"""The rows of a long JSONL file by number: their places are found once, a piece at each look."""

import os
import time
from array import array
from bisect import bisect_right
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

    def _signed(self, stat: os.stat_result) -> tuple[int, int, int]:
        """The place, size and time of the file: another one is read anew."""
        return stat.st_ino, stat.st_size, stat.st_mtime_ns

    def _look(self, file: int, until: float) -> bool:
        stat = os.fstat(file)
        signature = self._signed(stat)
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
        piece = self._between(first, last)
        start = self._starts[first] if piece else 0
        return [
            piece[self._starts[n] - start : self._starts[n] - start + self._lengths[n]]
            for n in range(first, last)
            if piece
        ]

    def _between(self, first: int, last: int) -> bytes:
        """The file from the row `first` to before `last`; b"" if it has changed since."""
        if not 0 <= first < last <= len(self):
            return b""
        start = self._starts[first]
        end = self._starts[last - 1] + self._lengths[last - 1]
        try:
            with open(self.path, "rb") as file:
                stat = os.fstat(file.fileno())
                if self._signed(stat) != self._signature:
                    return b""
                return os.pread(file.fileno(), end - start, start)
        except OSError:
            return b""

    def piece_end(self, first: int) -> int:
        """The row behind `first` at which a piece of about PIECE bytes ends."""
        return max(first + 1, bisect_right(self._starts, self._starts[first] + PIECE) - 1)

    def rows_with(self, text: str, first: int, last: int) -> list[int]:
        """The rows from `first` to before `last` whose line holds a text, in lower case, as JSON
        writes it; upper case counts as lower case.
        """
        if not text.isascii():
            lines = [line.decode("utf-8", "replace") for line in self.lines(first, last)]
            return [n for n, line in enumerate(lines, first) if text in line.lower()]
        # all lines at once: bytes have no other letters in upper case than those of ASCII
        piece, wanted = self._between(first, last).lower(), text.encode()
        start, found = self._starts[first], []
        at = piece.find(wanted)
        while at >= 0:
            row = bisect_right(self._starts, start + at, first, last) - 1
            end = self._starts[row] + self._lengths[row] - start
            if at < end:
                found.append(row)
            # in a line that is not a row, or behind the row
            at = piece.find(wanted, max(at + 1, end))
        return found

    @property
    def size(self) -> int:
        """Bytes of the file at the last look."""
        return self._signature[1]

    @property
    def read(self) -> int:
        """Bytes of it that were read."""
        return self._offset

    def row(self, number: int) -> Row | None:
        """None for a number that the file does not have (any more)."""
        lines = self.lines(number, number + 1) if number >= 0 else []
        try:
            found = msgspec.json.decode(lines[0]) if lines else None
        except msgspec.MsgspecError:
            return None
        return found if isinstance(found, dict) else None
