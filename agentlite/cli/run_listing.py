"""The stages of a workspace by their files: the state, key figure, size and age of each."""

import contextlib
import importlib
import json
import time
from pathlib import Path
from typing import Literal

from msgspec import Struct

from agentlite.config.pipeline import STAGES
from agentlite.core.errors import UserError
from agentlite.core.row_files import count_rows
from agentlite.workspace import lookup, stage_folder
from agentlite.workspace.lookup import StoredStage

State = Literal["done", "half", "running", "failed", "broken"]
CHECKPOINTS = "checkpoints"
METRICS = "metrics.jsonl"


def stored_stages(run: Path) -> list[StoredStage]:
    """The stages of a workspace, and the models that were evaluated: eval/<data>/<model>. Those
    that were begun first come first.
    """
    outer, inner = (
        [*map(lookup.read_stage, lookup.stages_in(run, pattern, given_up=True))]
        for pattern in ("*", "*/*/*")
    )
    # a folder so deep that is no eval belongs to a workspace in this one: w/runs/x/sft
    stages = [*outer, *(stage for stage in inner if stage.command in ("", "eval"))]
    return sorted(stages, key=lambda stage: (stage.started_at, str(stage.folder)))


def state_of(stage: StoredStage) -> tuple[State, str]:
    """With how far the stage is, or what is wrong."""
    if lookup.holder(stage.folder):
        return "running", _progress(stage, running=True)
    if stage.given_up:
        return "failed", "the same command starts over"
    if problem := stage.problem():
        return "broken", problem
    return ("done", "") if stage.done else ("half", _progress(stage, running=False))


def _progress(stage: StoredStage, *, running: bool) -> str:
    """How far a stage is that is not done, and how long it still takes at the pace so far."""
    expected = stage_folder.read_expected(stage.folder)
    if not expected:
        return ""
    file = stage.folder / expected.file
    rows = count_rows(file)
    progress = f"{rows} of {expected.rows} {file.stem}"
    if file.name == METRICS:
        progress = f"step {rows} of {expected.rows}"
    new_rows = rows - expected.begun  # in this session, which alone says the pace
    if not running or new_rows < 1:
        return progress
    started_at = (stage.folder / stage_folder.EXPECTED).stat().st_mtime
    # negative where the clock was set back meanwhile
    seconds = (file.stat().st_mtime - started_at) / new_rows * (expected.rows - rows)
    return f"{progress}, {in_time(max(0.0, seconds))} left"


def in_time(seconds: float) -> str:
    """5400 -> 90 min: the largest unit that there are two of."""
    units = (("days", 86400), ("h", 3600), ("min", 60), ("s", 0))  # 0: any rest
    name, length = next(unit for unit in units if seconds >= 2 * unit[1])
    return f"{seconds / (length or 1):.0f} {name}"


def in_words(state: State, detail: str) -> str:
    """`half done, step 2 of 3`."""
    words = "half done" if state == "half" else state
    return f"{words}, {detail}" if detail else words


class ListedStage(Struct, frozen=True):
    """A stage as `runs` shows it. `detail`: how far it is, or what is wrong; `age`: seconds since
    it was last written.
    """

    run: str
    stage: str
    command: str
    state: State
    detail: str
    figure: str
    bytes: int
    checkpoint_bytes: int
    age: float


def inventory(run: Path) -> list[ListedStage]:
    """What `runs` lists, the stage that was begun first at the top. Raises as `stages_of` does."""
    return [_listed_stage(run, stage) for stage in stages_of(run)]


def stages_of(run: Path) -> list[StoredStage]:
    """Those of `stored_stages`. Raises UserError 2 for a workspace without one."""
    if stages := stored_stages(run):
        return stages
    raise UserError(
        "holds no stage." if run.is_dir() else "no such workspace.",
        "Name a workspace; or start one: agentlite init FOLDER, or agentlite prep FILE.",
        location=str(run),
    )


def size(folder: Path) -> int:
    """The bytes of all files in a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def _listed_stage(run: Path, stage: StoredStage) -> ListedStage:
    folder = stage.folder
    written_at = max((path.stat().st_mtime for path in folder.glob("*.json*")), default=0.0)
    return ListedStage(
        str(run),
        folder.relative_to(run).as_posix(),
        stage.command or "?",
        *state_of(stage),
        key_figure(stage),
        size(folder),
        size(folder / CHECKPOINTS),
        round(max(0.0, time.time() - written_at), 1),
    )


def key_figure(stage: StoredStage) -> str:
    """The result of a finished stage, the loss of one that trains, in words; "" for others."""
    # figures of another version, or null; a file that is not there, or has no whole line yet
    with contextlib.suppress(LookupError, OSError, TypeError, ValueError):
        if stage.done and stage.command in STAGES:
            module = importlib.import_module(f"agentlite.stages.{stage.command}")
            return str(module.key_figure(stage.done.figures))
        whole_lines = (stage.folder / METRICS).read_bytes().rpartition(b"\n")[0].splitlines()
        return f"loss {json.loads(whole_lines[-1])['loss']:.3f}"
    return ""
