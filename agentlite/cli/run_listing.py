"""The stages of a workspace by their files: the state, key figure, size and age of each."""

import contextlib
import importlib
import json
import os
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from agentlite.config.pipeline import STAGES
from agentlite.core.errors import UserError
from agentlite.core.row_files import count_rows
from agentlite.workspace import stage_folder
from agentlite.workspace.stage_folder import StoredStage

State = Literal["done", "half", "running", "failed", "broken"]
CHECKPOINTS = "checkpoints"
LAST_ROWS = 1 << 16  # bytes at the end of a log that hold its last rows
METRICS = "metrics.jsonl"


class StageState(NamedTuple):
    state: State
    detail: str = ""


def stored_stages(run: Path) -> list[StoredStage]:
    """The stages of a workspace, and the models that were evaluated: eval/<data>/<model>. Those
    that were begun first come first.
    """
    inner = [
        stage
        for stage in map(stage_folder.read, stage_folder.stages_in(run, "*/*/*", given_up=True))
        if stage.plan is None or stage.plan.command == "eval"  # others are of workspaces inside
    ]
    outer = map(stage_folder.read, stage_folder.stages_in(run, given_up=True))
    return sorted([*outer, *inner], key=lambda stage: (stage.begun, str(stage.folder)))


def state_of(stage: StoredStage) -> StageState:
    if stage_folder.holder(stage.folder):
        return StageState("running", _progress(stage, running=True))
    if stage.given_up:
        return StageState("failed", "the same command starts over")
    if problem := stage.problem():
        return StageState("broken", problem)
    if not stage.done:
        return StageState("half", _progress(stage, running=False))
    return StageState("done")


def _progress(stage: StoredStage, *, running: bool) -> str:
    """How far a stage is that is not done, and how long it still takes at the pace so far."""
    expected = stage_folder.read_expected(stage.folder)
    if not expected:
        return ""
    file = stage.folder / expected.file
    rows = count_rows(file)
    done = f"{rows} of {expected.rows} {file.stem}"
    if file.name == METRICS:
        done = f"step {rows} of {expected.rows}"
    made = rows - expected.begun
    if not running or made < 1:
        return done
    begun = (stage.folder / stage_folder.EXPECTED).stat().st_mtime
    seconds = (file.stat().st_mtime - begun) / made * (expected.rows - rows)
    return f"{done}, {in_time(seconds)} left"


def in_time(seconds: float) -> str:
    """5400 -> 90 min: the largest unit that there are two of."""
    units = (("days", 86400), ("h", 3600), ("min", 60), ("s", 0))
    name, length = next(unit for unit in units if seconds >= 2 * unit[1])
    return f"{seconds / (length or 1):.0f} {name}"


def in_words(state: State, detail: str) -> str:
    """`half done, step 2 of 3`."""
    words = "half done" if state == "half" else state
    return f"{words}, {detail}" if detail else words


def last_row(path: Path) -> dict[str, Any]:
    """The last whole line of a file that may be growing; {} for one that cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LAST_ROWS))
            lines = file.read().rpartition(b"\n")[0].splitlines()
        return dict(json.loads(lines[-1])) if lines else {}
    except (OSError, ValueError):
        return {}


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
    """What `runs` lists, the stage that was begun first at the top. Raises UserError 2 for
    a workspace without one.
    """
    return [_listed_stage(run, stage) for stage in stages_of(run)]


def stages_of(run: Path) -> list[StoredStage]:
    """The stages of a workspace, in the order in which they were begun. Raises UserError 2 for
    a workspace without one.
    """
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
    command = stage.plan.command if stage.plan else "?"
    written = max((path.stat().st_mtime for path in folder.glob("*.json*")), default=0.0)
    return ListedStage(
        str(run),
        folder.relative_to(run).as_posix(),
        command,
        *state_of(stage),
        key_figure(stage),
        size(folder),
        size(folder / CHECKPOINTS),
        round(max(0.0, time.time() - written), 1),
    )


def key_figure(stage: StoredStage) -> str:
    """The result of a finished stage, the loss of one that trains, in words; "" for others."""
    command = stage.plan.command if stage.plan else ""
    # figures of another version, or null
    with contextlib.suppress(KeyError, TypeError, ValueError):
        if stage.done and command in STAGES:
            module = importlib.import_module(f"agentlite.stages.{command}")
            return str(module.key_figure(stage.done.figures))
        loss = last_row(stage.folder / METRICS).get("loss")
        return f"loss {loss:.3f}" if loss is not None else ""
    return ""
