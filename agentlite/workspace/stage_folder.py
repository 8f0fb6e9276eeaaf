"""A stage's folder while it is made: held by one process, plan.json first, done.json last."""

import importlib.metadata
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from agentlite.config.resolve import plain_defaults
from agentlite.config.this_machine import SWITCHES, has_gpu
from agentlite.core import distributed
from agentlite.core.console import notice
from agentlite.core.errors import LOCKED, UserError
from agentlite.core.row_files import count_rows, disk_error, disk_errors, sync_files, write_json
from agentlite.core.version import VERSION
from agentlite.workspace import lookup
from agentlite.workspace.input_files import file_digest
from agentlite.workspace.lookup import Done, Outcome, Plan, Result

EXPECTED = "expected.json"  # while a file of answers or steps grows: its rows in the end
SPENT = "spent.json"  # the seconds of all sessions of a stage that was stopped
TURN_LOCK = ".turn.lock"  # of a workspace: not LOCK, since a stage's folder may be one too
VERSIONED = (
    *("torch", "unsloth", "unsloth_zoo", "transformers", "trl", "peft"),
    "sentence-transformers",
)
Status = Literal["new", "half", "done"]


class Expected(Struct, frozen=True):
    """A file of answers or steps, the rows that it will have in the end, and those that it had when
    this was written: when the session began.
    """

    file: str
    rows: int
    begun: int = 0


class StageFolder:
    """A folder held by this process. `status` says what is in it for this very plan."""

    def __init__(self, folder: Path, plan: Plan, status: Status):
        self.folder, self.plan, self.status = folder, plan, status
        self.outcome: Outcome = "up to date" if status == "done" else "done"
        self.started = time.monotonic()
        if status == "half" and (folder / SPENT).exists():
            self.started -= lookup.decode_file(folder / SPENT, float)

    @property
    def seconds(self) -> float:
        """Of this session and of those that it carries on."""
        return round(time.monotonic() - self.started, 1)

    @property
    def done(self) -> Done:
        return lookup.decode_file(self.folder / lookup.DONE, Done)

    def finish(self, outputs: Iterable[str], figures: dict[str, object]) -> Done:
        """Writes done.json, with the digests of the outputs, once these are safe on the disk; not
        where it says the same already.
        """
        paths = {name: self.folder / name for name in outputs}
        with disk_errors(self.folder):
            sync_files(paths.values())
            for name in (EXPECTED, SPENT):
                (self.folder / name).unlink(missing_ok=True)
        # of files that are safe by now; a kill before done.json leaves a half done stage
        digests = {name: file_digest(path) for name, path in paths.items()}
        if self.status == "done":
            if (self.done.outputs, self.done.figures) == (digests, figures):
                return self.done
            self.reopen()
        write_json(self.folder / lookup.DONE, Done(digests, figures, self.seconds))
        self.status, self.outcome = "done", "done"
        return self.done

    def reopen(self) -> None:
        """Takes done.json away, before more is added to the outputs of a finished stage."""
        if self.status == "done":
            self.started -= self.done.seconds
        # no output has grown yet: done.json never stands beside files that it does not describe
        (self.folder / lookup.DONE).unlink(missing_ok=True)
        self.status = "half"

    def expect_rows(self, name: str, rows: int) -> None:
        expect_rows(self.folder, name, rows)

    def set_aside_changed(self, name: str) -> None:
        """Renames an output that was changed since the stage was finished: its content is kept, and
        the output made again.
        """
        path = self.folder / name
        if path.exists() and lookup.read_stage(self.folder).trusted().changed_outputs([name]):
            path.replace(self.folder / f"{name}.broken")
            notice(
                f"{path}: has changed since the stage wrote it; set aside as {name}.broken, and "
                "made again"
            )

    def fail(self) -> None:
        """Gives the folder up, since nothing in it is worth keeping: the next run starts over,
        whatever its plan.
        """
        with disk_errors(self.folder):
            (self.folder / lookup.PLAN).rename(self.folder / lookup.FAILED)

    def result(self, next_command: str) -> Result:
        """What is there now: made by this process, or found up to date by it."""
        done = self.done
        return Result(
            self.plan.command,
            self.outcome,
            str(self.folder),
            done.figures,
            [*done.outputs],
            done.seconds,
            next_command,
        )


@contextmanager
def open_stage(
    folder: Path, plan: Plan, *, force: bool, command_line: str = ""
) -> Iterator[StageFolder]:
    """Locks the folder, compares plans and writes this one. `command_line`: as the user typed it.
    Raises UserError 3 (another plan), 75 (held), 74 (disk).

    Of several processes only the first locks and compares; the others come here only when it has
    found work to do.
    """
    if not distributed.is_first():
        yield StageFolder(folder, plan, "half")
        return
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with hold(folder):  # plans are compared under the lock: only one process writes its own
        if force or (folder / lookup.FAILED).exists():
            clear(folder)
        status = status_for(folder, plan)
        if status == "new":
            write_json(folder / lookup.PLAN, plan)
        elif status == "half" and (changed := lookup.read_stage(folder).changed_outputs()):
            notice(
                f"{folder}: was finished, and {changed[0]} has changed since the stage "
                "wrote it; making again what is missing"
            )
        if command_line and status != "done":
            (folder / lookup.COMMAND_LINE).write_text(command_line, encoding="utf-8")
        stage = StageFolder(folder, plan, status)
        try:
            yield stage
        finally:
            if stage.status != "done":
                with suppress(UserError):  # a full disk: what stopped it is said
                    write_json(folder / SPENT, stage.seconds)


def status_for(folder: Path, plan: Plan) -> Status:
    """What the folder holds for `plan`. Raises UserError 3 where it holds something else."""
    stored = lookup.read_stage(folder)
    if stored.given_up:
        return "new"
    old_plan = stored.trusted().plan
    if not old_plan:
        if other_file := next(folder.glob("[!.]*"), None):
            raise lookup.plan_error(
                folder,
                f"holds {other_file.name} but no {lookup.PLAN}.",
                "Give another --out or --run; agentlite does not write into a folder it did not "
                "make.",
            )
        return "new"
    refuse_other_command(folder, plan.command)
    if changes := differences(old_plan, plan):
        state = "was finished" if stored.done else "is half done"
        raise lookup.plan_error(
            folder,
            f"{state} with other settings or inputs: {'; '.join(changes)}.",
            "Add --force to start it over, or --out NAME to keep both.",
        )
    return "done" if stored.done and not stored.changed_outputs() else "half"


def refuse_other_command(folder: Path, command: str) -> None:
    """Raises UserError 3 for a folder that a stage of another command has."""
    if lookup.is_stage(folder) and (other := lookup.read_plan(folder).command) != command:
        raise lookup.plan_error(
            folder,
            f"is a stage of `agentlite {other}`, not of `{command}`.",
            "Choose another --out.",
        )


def differences(old: Plan, new: Plan) -> list[str]:
    """Each setting or input that differs, named with both values. A setting that the old plan
    does not have counts as its default."""
    changes = [] if old.command == new.command else [f"command {old.command} -> {new.command}"]
    missing = plain_defaults(new.command, new.settings.keys() - old.settings.keys())
    for prefix, before, after in (
        (f"{new.command}.", {**missing, **old.settings}, new.settings),
        ("input ", old.inputs, new.inputs),
    ):
        for key in sorted(before.keys() | after.keys()):
            if before.get(key) != after.get(key):
                if prefix == "input " and key in before and key in after and Path(key).is_file():
                    changes.append(f"{key} has changed since")
                    continue
                changes.append(f"{prefix}{key} {_text(before.get(key))} -> {_text(after.get(key))}")
    return changes


def _text(value: Any) -> str:
    if value is None:
        return "absent"
    is_digest = isinstance(value, str) and len(value) == 64
    return value[:8] if is_digest else json.dumps(value, ensure_ascii=False)


def expect_rows(folder: Path, name: str, rows: int) -> None:
    """Notes how many rows a file of answers or steps will have in the end, for `agentlite runs`."""
    write_json(folder / EXPECTED, Expected(name, rows, count_rows(folder / name)))


def read_expected(folder: Path) -> Expected | None:
    """None where no questions are open, or the file cannot be read."""
    try:
        return msgspec.json.decode((folder / EXPECTED).read_bytes(), type=Expected)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def clear(folder: Path) -> None:
    """Empties a folder that a stage made, and no other."""
    failed = folder / lookup.FAILED
    if lookup.is_stage(folder):
        # first: a kill from here on leaves a folder that is started over
        (folder / lookup.PLAN).rename(failed)
    if failed.exists():
        for path in sorted(folder.iterdir(), key=lambda path: path == failed):  # that one last
            if path.name not in (lookup.LOCK, lookup.HOLDER, TURN_LOCK):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def package_versions() -> dict[str, str]:
    """The versions of the packages a stage runs with; on a GPU also the switches of Unsloth."""
    versions = {"agentlite": VERSION}
    if has_gpu():
        versions |= {name: os.environ.get(name, value) for name, value in SWITCHES.items()}
    for name in VERSIONED:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Holds a stage's folder. Raises UserError 75 while another process does."""
    from filelock import FileLock, Timeout

    holder_file, lock = folder / lookup.HOLDER, FileLock(folder / lookup.LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        process = "another process"
        with suppress(OSError):  # it ends just now, or begins
            process = holder_file.read_text(encoding="utf-8")
        raise UserError(
            f"is in use by {process}.",
            "Wait for it, stop it, or give another --out.",
            location=str(folder),
            exit_code=LOCKED,
        ) from None
    except OSError as error:
        raise disk_error(folder, error) from error
    try:
        with disk_errors(folder):
            # renamed, so that nobody reads half of it, or writes to the target of a link
            new_file = folder / f"{lookup.HOLDER}.new"
            new_file.unlink(missing_ok=True)
            process = time.strftime(f"process {os.getpid()} since %Y-%m-%d %H:%M:%S")
            new_file.write_text(process, encoding="utf-8")
            new_file.replace(holder_file)
        yield
    finally:
        # the file goes first: once the lock is free, it may be that of the next holder
        holder_file.unlink(missing_ok=True)
        lock.release()


@contextmanager
def in_turn(run: Path) -> Iterator[None]:
    """Lets commands that write into one workspace do so one after the other."""
    from filelock import FileLock

    with disk_errors(run):
        lock = FileLock(run / TURN_LOCK).acquire()
    with lock:
        yield
