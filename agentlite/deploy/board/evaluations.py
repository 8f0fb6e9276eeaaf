"""The figures of every evaluated model of the board's workspaces, with their intervals."""

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from agentlite.deploy.board.stored_answers import PREDICTIONS
from agentlite.deploy.board.workspaces import SeenStage, Workspaces
from agentlite.report.charts import is_number
from agentlite.scoring.metrics.model_metrics import GROUPS
from agentlite.workspace import run_folder

AT_ONCE = 0.1  # seconds of one look
MOST_FIGURES = 200  # of a model: a file that was harmed may name any number
LONGEST_FILE = 16 << 20  # bytes of a metrics.json


class EvaluatedModel(Struct, frozen=True):
    """`data`: the name of its questions, and `questions`: their digest, so that the same questions
    are known again in another workspace. `figures`: by name, the mean, its 95 % interval, and on
    how many it was measured. `answers`: whether single answers can be read.
    """

    id: str
    run: str
    data: str
    model: str
    questions: str
    prompts: int
    figures: dict[str, tuple[float, float, float, int]]
    answers: bool


class Evaluations:
    """Read when a stage changes, and only then. Threads may ask at the same time."""

    def __init__(self, workspaces: Workspaces):
        self.workspaces = workspaces
        self._models: dict[str, tuple[SeenStage, EvaluatedModel]] = {}
        self._lock = threading.Lock()

    def look(self) -> tuple[list[EvaluatedModel], int]:
        """Those that are done and were read by now, and how many are left to read."""
        with self._lock:
            done = self.workspaces.evaluated()
            self._models = {name: one for name, one in self._models.items() if name in done}
            waiting = [
                name
                for name, seen in done.items()
                if name not in self._models or self._models[name][0] is not seen
            ]
            end = time.monotonic() + AT_ONCE
            while waiting and time.monotonic() < end:
                name = waiting.pop(0)
                self._models[name] = done[name], _read(name, done[name])
            return [model for _, model in self._models.values()], len(waiting)


def words_of_comparison(folders: Sequence[Path]) -> list[str]:
    """The command that compares finished evaluations."""
    return ["eval", *(f"--compare={folder}" for folder in folders), "--json"]


def _read(name: str, seen: SeenStage) -> EvaluatedModel:
    folder = seen.folder
    plan = run_folder.read(folder).plan
    metrics = _json(folder / "metrics.json")
    prompts = metrics.get("prompts")
    return EvaluatedModel(
        name,
        seen.row.run,
        folder.parent.name,
        folder.name,
        plan.inputs.get("data", "")[:16] if plan else "",
        prompts if isinstance(prompts, int) else 0,
        _figures(metrics),
        (folder / PREDICTIONS).is_file(),
    )


def _figures(metrics: dict[str, Any]) -> dict[str, tuple[float, float, float, int]]:
    found: dict[str, tuple[float, float, float, int]] = {}
    for group in GROUPS:
        figures = metrics.get(group)
        for name, one in figures.items() if isinstance(figures, dict) else ():
            if not isinstance(one, dict) or len(found) >= MOST_FIGURES:
                continue
            mean, low, high = (one.get(key) for key in ("mean", "low", "high"))
            if is_number(mean) and is_number(low) and is_number(high):
                count = one.get("count")
                found[str(name)] = (mean, low, high, count if isinstance(count, int) else 0)
    return found


def _json(path: Path) -> dict[str, Any]:
    """{} for a file that is missing or cannot be read: the row then has no figures."""
    try:
        if path.stat().st_size > LONGEST_FILE:
            return {}
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
