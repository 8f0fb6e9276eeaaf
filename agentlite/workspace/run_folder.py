"""A stage's folder: plan first, done last, one process at a time; up to date, carried on, or
refused.
"""

import contextlib
import importlib.metadata
import json
import os
import shlex
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agentlite.config.hardware import SWITCHES, has_gpu
from agentlite.config.resolve import plain_defaults
from agentlite.core import distributed
from agentlite.core.console import notice
from agentlite.core.errors import OTHER_PLAN, UserError
from agentlite.core.records import canonical, digest
from agentlite.core.row_files import disk_errors, sync_all, write_json
from agentlite.workspace.digests import file_digest
from agentlite.workspace.folder_lock import HOLDER, LOCK, held

VERSIONED = (
    "agentlite",
    "torch",
    "unsloth",
    "unsloth_zoo",
    "transformers",
    "trl",
    "peft",
    "sentence-transformers",
)
DEFAULT_RUN = "runs/default"
Status = Literal["new", "half", "done"]
Outcome = Literal["done", "up to date", "dry run", "compared"]


class RunTarget(NamedTuple):
    """Where a command writes, and how it was asked to."""

    run: Path
    out: str
    force: bool = False
    dry_run: bool = False

    @property
    def folder(self) -> Path:
        return self.run / self.out

    def has_work(self, plan: "Plan") -> bool:
        """Whether the folder is not up to date. Raises UserError 3 where it holds something
        else.
        """
        return self.force or compare(self.folder, plan) != "done"

    def next(self, command: str) -> str:
        """A further command, in the same workspace."""
        return (
            command
            if str(self.run) == DEFAULT_RUN
            else f"{command} --run {shlex.quote(str(self.run))}"
        )


class Sealed(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is written with the digest of the rest, so that a change by hand is seen."""

    seal: str = ""  # an earlier version wrote none

    def sealed(self) -> Self:
        """As it will be read."""
        told = msgspec.json.decode(msgspec.json.encode(self), type=type(self))
        return replace(told, seal=digest(canonical(msgspec.to_builtins(replace(told, seal="")))))

    @property
    def is_as_written(self) -> bool:
        return self.seal in ("", self.sealed().seal)


class Plan(Sealed, frozen=True, forbid_unknown_fields=True):
    """What a stage is about to do: written first, compared when the command is run again."""

    command: str
    settings: dict[str, Any]
    inputs: dict[str, str]
    versions: dict[str, str] = {}


class Done(Sealed, frozen=True, forbid_unknown_fields=True):
    """What a stage has done: written last, so that its presence proves the rest."""

    outputs: dict[str, str]
    figures: dict[str, Any]
    seconds: float


class Result(Struct, frozen=True):
    """What a command tells: the one JSON object of `--json`."""

    command: str
    status: Outcome
    folder: str
    figures: dict[str, Any]
    outputs: list[str]
    seconds: float
    next: str = ""
    failed: list[str] = []  # conditions of a gate, in words


class StageFolder:
    """A folder held by this process. `status` says what is in it for this very plan."""

    def __init__(self, folder: Path, plan: Plan, status: Status):
        self.folder, self.plan, self.status = folder, plan, status
        self.outcome: Outcome = "up to date" if status == "done" else "done"
        self.started = time.monotonic()

    @property
    def done(self) -> Done:
        return read_done(self.folder)

    def finish(self, outputs: Iterable[str], figures: dict[str, Any]) -> Done:
        """Names the outputs with their digests, and writes done.json. They are synced before."""
        paths = {name: self.folder / name for name in outputs}
        with disk_errors(self.folder):
            sync_all(paths.values())
        digests = {name: file_digest(path) for name, path in paths.items()}
        done = Done(digests, figures, round(time.monotonic() - self.started, 1)).sealed()
        write_json(self.folder / "done.json", done)
        self.status = "done"
        return done

    def set_aside_changed(self, name: str) -> None:
        """Rows that are not as they were when the stage was finished are not carried on with, but
        made again.
        """
        if (self.folder / "done.json").exists() and name in broken_outputs(self.folder):
            set_aside(self.folder / name)

    def fail(self) -> None:
        """Gives the folder up: the next run starts over, with whatever plan, since nothing in it is
        worth keeping.
        """
        with disk_errors(self.folder):
            (self.folder / "plan.json").rename(self.folder / "failed.json")

    def result(self, next_command: str) -> Result:
        """What there is now: done by this process, or found up to date by it."""
        done, outcome = self.done, self.outcome
        return Result(
            self.plan.command,
            outcome,
            str(self.folder),
            done.figures,
            list(done.outputs),
            done.seconds,
            next_command,
        )


@contextmanager
def open_stage(folder: Path, plan: Plan, *, force: bool) -> Iterator[StageFolder]:
    """Locks the folder, compares plans and writes this one. Raises UserError 3 (another plan), 75
    (held), 74 (disk).

    Of several processes only the first does; the others are there only where it has found work.
    """
    if not distributed.first():
        yield StageFolder(folder, plan, "half")
        return
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with held(folder):
        if force or (folder / "failed.json").exists():
            clear(folder)
        status = compare(folder, plan)
        if status == "new":
            write_json(folder / "plan.json", plan.sealed())
        elif status == "half":
            _tell_other_versions(folder, plan)
            _tell_what_is_gone(folder)
        yield StageFolder(folder, plan, status)


def _tell_other_versions(folder: Path, plan: Plan) -> None:
    """They change no plan; training has checkpoints that say whether they can be carried on
    from.
    """
    before, now = read_plan(folder).versions, plan.versions
    both = sorted(before.keys() & now.keys())
    changed = [
        f"{name} {before[name]} -> {now[name]}" for name in both if before[name] != now[name]
    ]
    if changed:
        notice(f"{folder}: was begun with other versions: {', '.join(changed)}")


def _tell_what_is_gone(folder: Path) -> None:
    """Of a folder that was finished once."""
    if (folder / "done.json").exists() and (broken := broken_outputs(folder)):
        notice(
            f"{folder}: was finished, and {broken[0]} is not as it was left; making again what is "
            "missing"
        )


def compare(folder: Path, plan: Plan) -> Status:
    """What the folder holds for `plan`; refuses if it holds something else."""
    path = folder / "plan.json"
    if (folder / "failed.json").exists():
        return "new"
    if not path.exists():
        strangers = [file.name for file in folder.glob("[!.]*")] if folder.exists() else []
        if strangers:
            fix = (
                "Give another --out or --run; agentlite does not write into a folder it did not "
                "make."
            )
            raise UserError(
                f"holds {strangers[0]} but no plan.json.",
                fix,
                location=str(folder),
                exit_code=OTHER_PLAN,
            )
        return "new"
    changes = differences(read_plan(folder), plan)
    if changes:
        half = "done" if (folder / "done.json").exists() else "half done"
        fix = "Add --force to start it over, or --out NAME to keep both."
        raise UserError(
            f"is {half} with another plan: {'; '.join(changes)}.",
            fix,
            location=str(folder),
            exit_code=OTHER_PLAN,
        )
    return "done" if (folder / "done.json").exists() and not broken_outputs(folder) else "half"


def differences(old: Plan, new: Plan) -> list[str]:
    """Each setting or input that is not the same, named with both values. A setting that an earlier
    version did not have was as its default is."""
    changes = [] if old.command == new.command else [f"command {old.command} -> {new.command}"]
    settings = {
        **plain_defaults(new.command, new.settings.keys() - old.settings.keys()),
        **old.settings,
    }
    for prefix, before, after in (
        (f"{new.command}.", settings, new.settings),
        ("input ", old.inputs, new.inputs),
    ):
        for key in sorted(before.keys() | after.keys()):
            if before.get(key) != after.get(key):
                changes.append(
                    f"{prefix}{key} {_short(before.get(key))} -> {_short(after.get(key))}"
                )
    return changes


def finished(folder: Path, command: str) -> Done:
    """The done.json of a stage that another one reads. Refuses a folder that is missing, half done
    or changed.
    """
    where = str(folder)
    if not (folder / "plan.json").exists():
        raise UserError(
            "no such stage.",
            f"Run `agentlite {command}` first, or name another one.",
            location=where,
        )
    if not (folder / "done.json").exists():
        raise UserError(
            "is not finished.",
            f"Run the same `agentlite {command}` again: it carries on.",
            location=where,
        )
    if (found := read_plan(folder).command) != command:
        raise UserError(
            f"is a stage of `agentlite {found}`, not of `{command}`.", "", location=where
        )
    broken = broken_outputs(folder)
    if broken:
        fix = f"Run `agentlite {command}` again with --force."
        raise UserError(f"{broken[0]} is not as the stage left it.", fix, location=where)
    return read_done(folder)


def find_stage(name: str, run: Path) -> Path:
    """A stage's folder: its name in the workspace, or a path."""
    return (
        run / name if (run / name).exists() else Path(name) if Path(name).is_dir() else run / name
    )


def read_plan(folder: Path) -> Plan:
    """Raises UserError 3 for one that was harmed, or changed by hand: what is there was made under
    another one.
    """
    path = folder / "plan.json"
    try:
        plan = msgspec.json.decode(path.read_bytes(), type=Plan)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        refuse_other_version(path, error)
        raise UserError(
            f"cannot be read ({error}).",
            "Start over with --force.",
            location=str(path),
            exit_code=OTHER_PLAN,
        ) from error
    if not plan.is_as_written:
        refuse_other_version(path, ValueError("it is not as that would be written here"))
        raise UserError(
            "was changed since it was written.",
            "Put it back as it was, or start over with --force; other "
            "settings are given with the command.",
            location=str(path),
            exit_code=OTHER_PLAN,
        )
    return plan


def read_done(folder: Path) -> Done:
    """Raises UserError 3 for one that was harmed."""
    try:
        done = msgspec.json.decode((folder / "done.json").read_bytes(), type=Done)
        problem = "" if done.is_as_written else "it was changed"
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        refuse_other_version(folder / "done.json", error, said_by=folder / "plan.json")
        problem = str(error)
    if problem:
        raise UserError(
            f"cannot be trusted ({problem}).",
            "Remove it and run the same command again, which makes it "
            "anew, or start over with --force.",
            location=str(folder / "done.json"),
            exit_code=OTHER_PLAN,
        )
    return done


def refuse_other_version(path: Path, error: Exception, said_by: Path | None = None) -> None:
    """Raises UserError 3 for a file that cannot be read because another version of agentlite wrote
    it: it is not harmed. `said_by`: the file that names the version, if it does not itself."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        json.loads(path.read_bytes())
        wrote, here = (
            json.loads((said_by or path).read_bytes())["versions"]["agentlite"],
            versions()["agentlite"],
        )
        if wrote != here:
            raise UserError(
                f"was written by agentlite {wrote}, and this is {here}: {error}.",
                f"Use agentlite {wrote} for this folder, or another folder: --out NAME.",
                location=str(path),
                exit_code=OTHER_PLAN,
            ) from error


def broken_outputs(folder: Path) -> list[str]:
    """Outputs that are gone or whose content is no longer what done.json says."""
    done = read_done(folder)
    return [
        name
        for name, digest in done.outputs.items()
        if not (folder / name).exists() or file_digest(folder / name) != digest
    ]


def set_aside(path: Path) -> None:
    """A file that was harmed keeps its content, under another name."""
    if path.exists():
        aside = path.with_name(f"{path.name}.broken")
        path.replace(aside)
        notice(f"{path}: is not as it was left; set aside as {aside.name}, and made again")


def clear(folder: Path) -> None:
    """Empties a folder that a stage made, and no other."""
    if (folder / "plan.json").exists():
        # first: a kill from here on leaves a folder to start over
        (folder / "plan.json").rename(folder / "failed.json")
    if (folder / "failed.json").exists():
        for path in sorted(folder.iterdir(), key=lambda path: path.name == "failed.json"):
            if path.name not in (LOCK, HOLDER):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def versions() -> dict[str, str]:
    """Of what a stage runs with; on a GPU also the switches of Unsloth."""
    found = (
        {name: os.environ.get(name, value) for name, value in SWITCHES.items()} if has_gpu() else {}
    )
    for name in VERSIONED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    is_digest = isinstance(value, str) and len(value) == 64
    return text[1:9] if is_digest else "absent" if value is None else text
