"""The stages of a workspace: state, key figure, size and age of each; freeing checkpoints."""

import contextlib
import importlib
import shlex
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from agentlite.cli.stage_state import (
    CHECKPOINTS,
    State,
    in_words,
    last_row,
    state_now,
    state_of,
    stored_stages,
)
from agentlite.config.pipeline import STAGES
from agentlite.core.errors import UserError, nearest
from agentlite.core.row_files import disk_errors
from agentlite.workspace import folder_lock, run_folder
from agentlite.workspace.run_folder import StoredStage

FREED = ".checkpoints-freed"


class ListedStage(Struct, frozen=True):
    """A stage as `runs` shows it. `detail`: how far it is, or what is wrong; `checkpoint_bytes`:
    what `runs --rm` would free; `age`: seconds since it was last written.
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


class Freed(Struct, frozen=True):
    run: str
    stage: str
    bytes: int


def inventory(run: Path) -> list[ListedStage]:
    """What `runs` lists, the stage that was begun first at the top. Raises UserError 2 for
    a workspace without one.
    """
    return [_listed(run, stage) for stage in stages_of(run)]


def stages_of(run: Path) -> list[StoredStage]:
    """The stages of a workspace, in the order in which they were begun. Raises UserError 2 for
    a workspace without one.
    """
    if stages := stored_stages(run):
        return stages
    inside = run.is_dir() and any(stored_stages(path) for path in run.iterdir())
    problem = "is a file, not a workspace." if run.is_file() else "no such workspace."
    raise UserError(
        "holds no stage." if run.is_dir() else problem,
        f"There are workspaces in it: agentlite runs {shlex.quote(str(run))}/*"
        if inside
        else "Name a workspace; or start one: agentlite init FOLDER, or agentlite prep FILE.",
        location=str(run),
    )


def free(run: Path, names: Sequence[str]) -> list[Freed]:
    """Removes the checkpoints of finished stages, or of none where one is not finished. Raises
    UserError 2, 74 or 75.
    """
    for name in names:
        _refuse_needed(run, name)
    return [Freed(str(run), name, _free(run, name)) for name in dict.fromkeys(names)]


def size(folder: Path) -> int:
    """The bytes of all files in a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def _listed(run: Path, stage: StoredStage) -> ListedStage:
    folder = stage.folder
    command = stage.plan.command if stage.plan else "?"
    written = max((path.stat().st_mtime for path in folder.glob("*.json*")), default=0.0)
    return ListedStage(
        str(run),
        folder.relative_to(run).as_posix(),
        command,
        *state_now(stage),
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
        loss = last_row(stage.folder / "metrics.jsonl").get("loss")
        return f"loss {loss:.3f}" if loss is not None else ""
    return ""


def _refuse_needed(run: Path, name: str) -> None:
    """Raises UserError unless the stage is done: until then it carries on from its checkpoints."""
    folder, stages = run / name, stored_stages(run)
    if folder not in [stage.folder for stage in stages]:
        names = sorted(stage.folder.relative_to(run).as_posix() for stage in stages)
        raise UserError(
            "no such stage.",
            f"{nearest(name, names, other='')} In {run} there are: "
            f"{', '.join(names) or 'none'}.".lstrip(),
            location=str(folder),
        )
    with folder_lock.held(folder):
        stage = run_folder.read(folder)
        state, detail = state_of(stage)
    if state != "done":
        command = f"agentlite {stage.plan.command}" if stage.plan else "command"
        raise UserError(
            f"is not done ({in_words(state, detail)}): it carries on from its checkpoints.",
            f"Run the same `{command}` again, then free them.",
            location=str(folder),
        )


def _free(run: Path, name: str) -> int:
    """Renames the checkpoints first: a kill in between leaves nothing that looks like one."""
    folder = run / name
    with folder_lock.held(folder), disk_errors(folder):
        if (folder / CHECKPOINTS).exists():
            (folder / CHECKPOINTS).rename(folder / FREED)
        freed = size(folder / FREED)
        shutil.rmtree(folder / FREED, ignore_errors=not freed)
        return freed
