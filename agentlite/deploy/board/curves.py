"""The rows of a log -> curves of a bounded number of points, drawn on while the log grows."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agentlite.core.row_files import Row
from agentlite.deploy.board.growing_rows import GrowingRows
from agentlite.report.charts import COMPONENT, in_order, is_number

MOST_POINTS = 240
MOST_CURVES = 200  # a file that was harmed may name any number
PACE = "pace.jsonl"
RECENT = 30  # rows of the pace that the time left is estimated from
LONGEST_STEP = 3600.0  # seconds between two rows of one process; longer is a pause


class GrowingCurve:
    """Means of equally many rows each. Where there are too many, neighbours are joined."""

    def __init__(self) -> None:
        self.size = 1  # rows of a bucket
        self.buckets: list[list[float]] = []  # [last step, sum, rows]
        self.last = math.nan

    def add(self, step: float, value: float) -> None:
        self.last = value
        # a run that was stopped takes the steps after its checkpoint again
        while self.buckets and self.buckets[-1][0] >= step:
            self.buckets.pop()
        if self.buckets and self.buckets[-1][2] < self.size:
            bucket = self.buckets[-1]
            bucket[0], bucket[1], bucket[2] = step, bucket[1] + value, bucket[2] + 1
            return
        if len(self.buckets) == MOST_POINTS:
            pairs = zip(self.buckets[::2], self.buckets[1::2], strict=True)
            self.buckets = [[two[0], one[1] + two[1], one[2] + two[2]] for one, two in pairs]
            self.size *= 2
        self.buckets.append([step, value, 1])

    def as_json(self) -> dict[str, Any]:
        return {
            "x": [bucket[0] for bucket in self.buckets],
            "y": [_short(bucket[1] / bucket[2]) for bucket in self.buckets],
            "last": self.last,
        }


class Curves:
    """Those of one stage: what metrics.jsonl has, and the tokens per second and the memory of its
    pace.jsonl. `version` changes with each row."""

    def __init__(self, folder: Path):
        self.metrics = GrowingRows(folder / "metrics.jsonl")
        self.pace = GrowingRows(folder / PACE)
        self.version = 0
        self._forget()
        self._forget_pace()

    def _forget(self) -> None:
        self.curves: dict[str, GrowingCurve] = {}
        self.step = 0

    def _forget_pace(self) -> None:
        self.speed: dict[str, GrowingCurve] = {}
        self.steps = 0
        self.recent: list[Row] = []

    def look(self) -> "Curves":
        """Reads what was added since the last look."""
        more = True
        while more:
            found = self.metrics.look()
            self.version += len(found.rows) + found.anew
            if found.anew:
                self._forget()
            for row in found.rows:
                self._add(row)
            more = found.more
        more = True
        while more:
            found = self.pace.look()
            self.version += len(found.rows) + found.anew
            if found.anew:
                self._forget_pace()
            for row in found.rows:
                self._add_pace(row)
            more = found.more
        return self

    @property
    def seconds_left(self) -> float | None:
        """By the median of the last steps; None where it is not known."""
        pace = _median(
            (later["at"] - earlier["at"]) / (later["step"] - earlier["step"])
            for earlier, later in zip(self.recent, self.recent[1:], strict=False)
            if later["step"] > earlier["step"]
            and 0 < later["at"] - earlier["at"] < LONGEST_STEP * (later["step"] - earlier["step"])
        )
        if pace is None or self.steps <= self.step:
            return None
        return pace * (self.steps - self.step)

    def as_json(self) -> dict[str, Any]:
        """`groups`: names that share a chart, those that matter first; the components of a reward
        share one scale."""
        curves = {**self.curves, **self.speed}
        names = {name for name in curves if not name.startswith(COMPONENT)}
        return {
            "version": self.version,
            "step": self.step,
            "steps": self.steps or None,
            "left": self.seconds_left,
            "groups": in_order([name for name in curves if name in names]),
            "components": [name for name in curves if name not in names],
            "curves": {name: curve.as_json() for name, curve in curves.items()},
        }

    def _add(self, row: Row) -> None:
        step = row.get("step")
        if not is_number(step):
            return
        self.step = int(step)
        for name, value in row.items():
            if name != "step" and is_number(value):
                self._curve(self.curves, name).add(step, float(value))

    def _add_pace(self, row: Row) -> None:
        if not (is_number(row.get("step")) and is_number(row.get("at"))):
            return
        if is_number(row.get("steps")):
            self.steps = int(row["steps"])
        before = self.recent[-1] if self.recent else {}
        self.recent = [*self.recent, row][-RECENT:]
        if is_number(row.get("memory_gib")):
            self._curve(self.speed, "memory_gib").add(row["step"], float(row["memory_gib"]))
        if is_number(row.get("tokens")) and is_number(before.get("tokens")):
            seconds, tokens = row["at"] - before["at"], row["tokens"] - before["tokens"]
            if 0 < seconds < LONGEST_STEP and tokens > 0:
                self._curve(self.speed, "tokens_per_second").add(row["step"], tokens / seconds)

    def _curve(self, curves: dict[str, GrowingCurve], name: str) -> GrowingCurve:
        if name not in curves and len(curves) >= MOST_CURVES:
            return GrowingCurve()
        return curves.setdefault(name, GrowingCurve())


def _median(values: Iterable[float]) -> float | None:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else None


def _short(value: float) -> float:
    return float(f"{value:.5g}")
