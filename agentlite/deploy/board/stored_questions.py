"""The questions of an evaluation by their ids, from JSONL or Parquet."""

import os
import tempfile
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from agentlite.core.errors import UserError
from agentlite.core.records import Record, from_row
from agentlite.core.row_files import Row, encode, find_rows, read_parquet
from agentlite.deploy.board.indexed_rows import IndexedRows
from agentlite.workspace import run_folder
from agentlite.workspace.run_folder import Plan

SUFFIXES = (".jsonl", ".parquet")
COPIED = 32  # rows of Parquet between two looks at the clock
GONE = "the questions are not in this workspace (any more)."


class RecordHead(Struct):
    id: str


class Questions(IndexedRows):
    """The records of a prepared split by their ids. 8 bytes more for each. `problem`: why they
    cannot be read, or "".
    """

    problem = ""

    def _forget(self) -> None:
        super()._forget()
        self._keys = array("Q")

    def _add(self, line: bytes) -> None:
        self._keys.append(int(_RECORD.decode(line).id, 16) & (2**64 - 1))

    def find(self, record_id: str, after: int = 0) -> int:
        """Its number, or -1. Answers stand in the order of their questions: the search begins
        there.
        """
        try:
            key = int(record_id, 16) & (2**64 - 1)
            return self._keys.index(key, after) if after else self._keys.index(key)
        except ValueError:
            return self.find(record_id) if after else -1

    def record(self, number: int, record_id: str) -> Record | None:
        """None for one that is not there, or that was harmed."""
        row = self.row(number)
        if row is None or row.get("id") != record_id:
            return None
        try:
            return from_row(row)
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError, RecursionError):
            return None


class ParquetQuestions(Questions):
    """A row of Parquet has no place of its own in the file: the rows are copied to a temporary
    JSONL file, a piece at each look. The file goes with this.
    """

    def __init__(self, source: Path):
        self.source = source
        self._copy = tempfile.NamedTemporaryFile(suffix=".jsonl")  # noqa: SIM115
        self._source_signature: tuple[int, int, int] | None = None
        self._rows: Iterator[Row] = iter(())
        super().__init__(Path(self._copy.name))

    def look(self, until: float) -> bool:
        try:
            stat = self.source.stat()
        except OSError:
            self._forget()
            self._rows, self._source_signature = iter(()), None
            return False
        signature = stat.st_ino, stat.st_size, stat.st_mtime_ns
        if signature != self._source_signature:
            self._source_signature, self.problem = signature, ""
            self._copy.truncate(0)
            self._forget()
            self._rows = read_parquet(self.source)
        more = self._copied(until)
        return super().look(until) or more

    def _signed(self, stat: os.stat_result) -> tuple[int, int, int]:
        return stat.st_ino, 0, 0  # the copy grows

    @property
    def size(self) -> int:
        """Not known before the end: the page then counts the answers alone."""
        return 0

    @property
    def read(self) -> int:
        return 0

    def _copied(self, until: float) -> bool:
        """Copies on. Returns whether there is more. A file that cannot be read ends it."""
        self._copy.seek(0, os.SEEK_END)
        try:
            for number, row in enumerate(self._rows, 1):
                self._copy.write(encode(row))
                if number % COPIED == 0 and time.monotonic() >= until:
                    return True
        except UserError as error:  # pyarrow is not installed
            self.problem = str(error)
        except (OSError, ValueError, TypeError) as error:  # those of pyarrow are ValueErrors
            self.problem = f"{self.source} cannot be read: {str(error).splitlines()[0]}"
        finally:
            self._copy.flush()
        return False


def questions_file(run: Path, plan: Plan) -> Path | None:
    """The file of the workspace with the digest that a plan names, or the split that it names."""
    wanted = plan.inputs.get("data", "").partition(",")[0]  # behind it: that of a retriever
    for folder in run_folder.stages_in(run):
        stage = run_folder.read(folder)
        for name, digest in (stage.done.outputs if stage.done else {}).items():
            if wanted and digest == wanted and name.endswith(SUFFIXES):
                return folder / name
    data, split = str(plan.settings.get("data", "")), str(plan.settings.get("split", "train"))
    if {"", ".", ".."} & {data, split} or {"/", "\\"} & {*data, *split}:
        return None  # not a stage of this workspace
    path = find_rows(run / data, split)
    return path if path.is_file() else None


def reader_of(path: Path) -> type[Questions]:
    return ParquetQuestions if path.suffix == ".parquet" else Questions


_RECORD: Any = msgspec.json.Decoder(RecordHead)
