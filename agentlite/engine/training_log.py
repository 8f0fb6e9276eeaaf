"""metrics.jsonl: a row for each logged step of a trainer; pace.jsonl: when it was done."""

import contextlib
import json
import math
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from agentlite.core import distributed
from agentlite.core.row_files import Appender, read_rows


def open_journal(folder: Path) -> AbstractContextManager["Journal | None"]:
    return Journal(folder) if distributed.first() else nullcontext()


class Journal:
    """metrics.jsonl: one row per step. A row waits until its dev loss may have come."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.appender = Appender(folder / "metrics.jsonl")
        self.row: dict[str, Any] = {}
        self.dev: dict[int, float] = {}
        for row in read_rows(self.appender.path):
            self._note_dev(row)

    def add(self, step: int, values: Mapping[str, object]) -> None:
        if self.row and self.row["step"] != step:
            self.flush()
        self.row = {"step": step, **self.row, **values}
        self._note_dev(self.row)

    def _note_dev(self, row: Mapping[str, Any]) -> None:
        if row.get("dev_loss") is not None:
            self.dev[row["step"]] = row["dev_loss"]

    def note_pace(self, step: int, steps: int) -> None:
        """It serves whoever watches the run and does not belong to the result, so a full disk that
        cannot take it does not stop the training.
        """
        row = {"step": step, "steps": steps, "at": round(time.time(), 3)}
        path = self.folder / "pace.jsonl"
        with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def flush(self) -> None:
        if "loss" in self.row:
            self.appender.append(self.row)
        self.row = {}

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *error: object) -> None:
        self.flush()
        self.appender.__exit__(*error)


def or_none(value: float) -> float | None:
    """JSON has no NaN."""
    return value if math.isfinite(value) else None


def logged(folder: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl."""
    return list(read_rows(folder / "metrics.jsonl"))


def mean(rows: Iterable[Mapping[str, Any]], name: str) -> float:
    """Over the rows that have it: a step may have been no number, and others not have measured it.
    0 if none has.
    """
    values = [row[name] for row in rows if row.get(name) is not None]
    return round(sum(values) / len(values), 4) if values else 0.0
