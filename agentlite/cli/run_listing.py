"""A workspace -> its stages: what state each is in, its key figure, size and age; and room made of
finished ones.
"""

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from agentlite.core.errors import UserError
from agentlite.core.row_files import disk_errors
from agentlite.engine.checkpoints import MANIFEST
from agentlite.report.retrieval_tables import best_in_words
from agentlite.workspace import folder_lock, run_folder

State = Literal["done", "half", "running", "failed", "broken"]
Figures = Mapping[str, Any]
CHECKPOINTS, FREED = "checkpoints", ".checkpoints-freed"
TRAINING = ("sft", "dpo", "grpo")
SAID = {"pairs": "candidates.jsonl", "eval": "answers.jsonl"}  # a line each, as they come


class ListedStage(Struct, frozen=True):
    """A stage as it lies there. `detail`: how far it is, or what is wrong; `age` in seconds, since
    it was last written.

    `checkpoint_bytes`: what `runs --rm` would free.
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


class Seen(NamedTuple):
    state: State
    detail: str = ""


def inventory(run: Path) -> list[ListedStage]:
    """In the order in which they were begun. Raises UserError 2 where there is no stage."""
    folders = sorted(set(stage_folders(run)), key=_begun)
    if not folders:
        inside = run.is_dir() and any(
            any(stage_folders(path)) for path in run.iterdir() if path.is_dir()
        )
        fix = (
            f"There are workspaces in it: agentlite runs {run}/*"
            if inside
            else ("Name a workspace; or start one: agentlite init DIR, or agentlite prep FILE.")
        )
        raise UserError(
            "holds no stage." if run.is_dir() else "no such workspace.", fix, location=str(run)
        )
    return [_kept(run, folder) for folder in folders]


def free(run: Path, names: Sequence[str]) -> list[Freed]:
    """Takes away the checkpoints of finished stages, once it is sure of each. Raises UserError 2,
    74 or 75.
    """
    for name in names:
        _refuse_needed(run, name)
    return [Freed(str(run), name, _free(run, name)) for name in dict.fromkeys(names)]


def stage_folders(run: Path) -> Iterator[Path]:
    """Those of stages, and of the models that were evaluated: eval/<data>/<model>."""
    for name in ("plan.json", "failed.json"):
        yield from (path.parent for path in run.glob(f"*/{name}"))
        yield from (
            path.parent
            for path in run.glob(f"*/*/*/{name}")
            if _json(path).get("command") == "eval"
        )


def size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def _kept(run: Path, folder: Path) -> ListedStage:
    seen, plan = _seen(folder), _json(_plan_file(folder))
    done = _json(folder / "done.json")
    tell = FIGURES.get(str(plan.get("command")))
    figure = ""
    with contextlib.suppress(
        KeyError, TypeError, ValueError
    ):  # figures of another version, or null
        figure = tell(done.get("figures") or {}) if tell and done else _last_loss(folder)
    written = max((path.stat().st_mtime for path in folder.glob("*.json*")), default=0.0)
    return ListedStage(
        str(run),
        folder.relative_to(run).as_posix(),
        str(plan.get("command", "?")),
        *seen,
        figure,
        size(folder),
        size(folder / CHECKPOINTS),
        round(max(0.0, time.time() - written), 1),
    )


def _seen(folder: Path) -> Seen:
    if folder_lock.holder(folder):
        return Seen("running", _progress(folder, running=True))
    return _lies(folder)


def _lies(folder: Path) -> Seen:
    """What the files say, whether or not a process is at work; of a stage that is not done, how far
    it is.
    """
    if not (folder / "plan.json").exists():
        return Seen("failed", "the same command starts over")
    if not _json(folder / "plan.json"):
        return Seen("broken", "plan.json cannot be read")
    try:
        run_folder.read_plan(folder)
    except UserError as error:
        return Seen("broken", f"plan.json {error.problem.rstrip('.')}")
    if not (folder / "done.json").exists():
        return Seen("half", _progress(folder, running=False))
    try:
        changed = run_folder.broken_outputs(folder)
    except UserError:
        return Seen("broken", "done.json cannot be read")
    return Seen("broken", f"{changed[0]} is not as it was left") if changed else Seen("done")


def _progress(folder: Path, *, running: bool) -> str:
    """Of a run that is stopped, the step from which it carries on."""
    plan = _json(folder / "plan.json")
    command = plan.get("command")
    if command in SAID:
        file = folder / SAID[command]
        return f"{len(file.read_bytes().splitlines()) if file.exists() else 0} {file.stem}"
    if command not in TRAINING:
        return ""
    whole = [path.parent for path in folder.glob(f"{CHECKPOINTS}/checkpoint-*/{MANIFEST}")]
    newest = max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default=None)
    step = int(newest.name.rpartition("-")[2]) if newest else 0
    if running and (row := _last_row(folder / "metrics.jsonl")):
        step = row["step"]
    steps = (
        _json(newest / "trainer_state.json").get("max_steps")
        if newest
        else (plan.get("settings") or {}).get("max_steps")
    )
    return f"step {step} of {steps}" if steps else f"step {step}"


def _refuse_needed(run: Path, name: str) -> None:
    """Raises UserError unless the stage is done: until then its checkpoints are what it is carried
    on from.
    """
    folder = run / name
    if folder not in set(stage_folders(run)):
        known = (
            ", ".join(sorted(path.relative_to(run).as_posix() for path in stage_folders(run)))
            or "none"
        )
        raise UserError("no such stage.", f"In {run} there are: {known}.", location=str(folder))
    with folder_lock.held(folder):
        seen = _lies(folder)
    if seen.state != "done":
        command = _json(_plan_file(folder)).get("command", "")
        raise UserError(
            f"is not done ({in_words(seen.state, seen.detail)}): its checkpoints are what it goes "
            "on from.",
            f"Run the same `agentlite {command}` again, then free them.",
            location=str(folder),
        )


def _free(run: Path, name: str) -> int:
    """Renamed first: a kill in between leaves nothing that looks like a checkpoint."""
    folder = run / name
    with folder_lock.held(folder), disk_errors(folder):
        if (folder / CHECKPOINTS).exists():
            (folder / CHECKPOINTS).rename(folder / FREED)
        freed = size(folder / FREED)
        shutil.rmtree(folder / FREED, ignore_errors=not freed)
        return freed


def in_words(state: State, detail: str) -> str:
    said = "half done" if state == "half" else state
    return f"{said}, {detail}" if detail else said


def _prep(figures: Figures) -> str:
    return f"{figures['kept']} of {figures['read']} rows kept"


def _sft(figures: Figures) -> str:
    loss = figures["dev_loss"]
    return f"loss {figures['last_loss']:.3f}" if loss is None else f"dev loss {loss:.3f}"


def _pairs(figures: Figures) -> str:
    return f"{figures['pairs']} pairs at {figures['steps']} steps"


def _dpo(figures: Figures) -> str:
    return f"margin {figures['margin']:.2f}, accuracy {100 * figures['accuracy']:.0f} %"


def _grpo(figures: Figures) -> str:
    return f"reward {figures['first_reward']:.2f} -> {figures['last_reward']:.2f}"


def _eval(figures: Figures) -> str:
    parts = (("right tool", "tool_selection_accuracy"), ("exact", "exact_call"))
    return ", ".join(f"{name} {100 * figures[key]:.0f} %" for name, key in parts if key in figures)


FIGURES: dict[str, Callable[[Figures], str]] = {
    "prep": _prep,
    "retriever": best_in_words,
    "sft": _sft,
    "pairs": _pairs,
    "dpo": _dpo,
    "grpo": _grpo,
    "eval": _eval,
}


def _last_loss(folder: Path) -> str:
    row = _last_row(folder / "metrics.jsonl")
    return f"loss {row['loss']:.3f}" if row.get("loss") is not None else ""


def _last_row(path: Path) -> dict[str, Any]:
    """The last whole line of a file that may be growing."""
    lines = path.read_bytes().rpartition(b"\n")[0].splitlines() if path.exists() else []
    return dict(json.loads(lines[-1])) if lines else {}


def _plan_file(folder: Path) -> Path:
    return folder / ("plan.json" if (folder / "plan.json").exists() else "failed.json")


def _begun(folder: Path) -> tuple[float, str]:
    return _plan_file(folder).stat().st_mtime, str(folder)


def _json(path: Path) -> dict[str, Any]:
    """{} for a file that is not there or cannot be read: a listing shows what it can."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
