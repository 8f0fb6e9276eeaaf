"""A stage's folder: plan.json first, done.json last; up to date, carried on, or refused."""

import importlib.metadata
import json
import os
import shlex
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeVar

import msgspec
from msgspec import Struct

from agentlite.config import pipeline
from agentlite.config.gpu_profiles import AUTO, SWITCHES, has_gpu
from agentlite.config.resolve import Given, plain_defaults
from agentlite.config.settings import default, option_words
from agentlite.core import distributed
from agentlite.core.console import notice, redact
from agentlite.core.errors import LOCKED, OTHER_PLAN, UserError
from agentlite.core.row_files import cannot_write, count_rows, disk_errors, sync_all, write_json
from agentlite.core.version import VERSION
from agentlite.workspace.digests import file_digest

# Nothing else in the package names these files: whoever needs them asks this module.
PLAN, DONE = "plan.json", "done.json"
FAILED = "failed.json"  # plan.json renamed: the folder was given up, and the next run starts over
EXPECTED = "expected.json"  # while a file of answers or steps grows: its rows in the end
TYPED = ".command"  # the command line that has begun the stage, or carried it on
SPENT = "spent.json"  # the seconds of all sessions of a stage that was stopped
LOCK = ".lock"
TURN = ".turn.lock"  # of a workspace: another one, since a stage's folder may be a workspace too
HOLDER = ".holder"  # who holds the lock: there from lock to release, and after a kill
# in a folder that `agentlite export` wrote: its kind, and the settings that a reader needs
EXPORTED = "export.json"
VERSIONED = (
    *("torch", "unsloth", "unsloth_zoo", "transformers", "trl", "peft"),
    "sentence-transformers",
)
DEFAULT_RUN = "runs/default"
Status = Literal["new", "half", "done"]
Content = TypeVar("Content")
Outcome = Literal["done", "up to date", "dry run", "compared"]


class RunTarget(NamedTuple):
    """Where a command writes, whether it may start over or only plans, and the settings as the user
    gave them, for a stage that runs others.
    """

    run: Path
    out: str
    force: bool = False
    dry_run: bool = False
    given: Given = Given()
    inside: str = ""  # of several stages that one command makes: the place of this one in `out`

    @property
    def folder(self) -> Path:
        return self.run / self.out / self.inside

    @property
    def begun(self) -> "Plan | None":
        """The plan of the stage, if what was begun there is to be carried on."""
        stored = read(self.folder)
        return None if self.force or stored.given_up else stored.plan

    def next(self, command: str) -> str:
        """A further command, in the same workspace."""
        if str(self.run) == DEFAULT_RUN:
            return command
        return f"{command} --run {shlex.quote(str(self.run))}"

    def command_line(self, command: str) -> str:
        """The command line that the user gave, or that says the same."""
        flags = {**self.given.flags}
        sources = flags.pop("sources", ())
        words = ["agentlite", *pipeline.full_command(command).split()]
        words += [sources] if isinstance(sources, str) else sources
        words += [flags.pop("what")] if "what" in flags else []
        words += ["--out", self.out] if self.out != command else []
        for key, value in flags.items():
            words += option_words(command, key, [*value] if isinstance(value, tuple) else value)
        words += [word for text in self.given.sets for word in ("--set", text)]
        words += [word for file in self.given.files for word in ("--config", file)]
        words += ["--profile", self.given.profile] if self.given.profile != AUTO else []
        return redact(self.next(shlex.join(words)))


class Plan(Struct, frozen=True, forbid_unknown_fields=True):
    """What a stage is about to do: written first, compared when the command is run again."""

    command: str
    settings: dict[str, Any]
    inputs: dict[str, str]
    versions: dict[str, str] = {}


class Done(Struct, frozen=True, forbid_unknown_fields=True):
    """What a stage has done: written last, so that its presence proves the rest.

    `outputs`: the sha256 of each file that was written, by its name in the folder."""

    outputs: dict[str, str]
    figures: dict[str, Any]
    seconds: float


class Expected(Struct, frozen=True):
    """A file of answers or steps, the rows that it will have in the end, and those that it had when
    this was written: when the session began.
    """

    file: str
    rows: int
    begun: int = 0


class Result(Struct, frozen=True):
    """What a command answers: the one JSON object of `--json`."""

    command: str
    status: Outcome
    folder: str
    figures: dict[str, Any]
    outputs: list[str]
    seconds: float
    next: str = ""
    failed: list[str] = []  # conditions of a gate, in words
    sentences: list[str] = []  # the result in words


class StoredStage(Struct, frozen=True):
    """A stage's folder as it lies on disk. All readers trust the same: a plan and a done that can
    be read, and outputs that still have the digests in done."""

    folder: Path
    plan: Plan | None  # None: there is none, or it cannot be trusted
    done: Done | None  # None: the stage is not finished, or its done.json cannot be trusted
    refusal: UserError | None = None  # why one of the two cannot be trusted
    given_up: bool = False  # the plan is that of failed.json

    @property
    def command(self) -> str:
        return self.plan.command if self.plan else ""

    @property
    def settings(self) -> dict[str, Any]:
        """Those of the plan."""
        return self.plan.settings if self.plan else {}

    @property
    def inputs(self) -> dict[str, str]:
        return self.plan.inputs if self.plan else {}

    @property
    def outputs(self) -> dict[str, str]:
        return self.done.outputs if self.done else {}

    @property
    def figures(self) -> dict[str, Any]:
        return self.done.figures if self.done else {}

    @property
    def typed(self) -> str:
        """The command line that has begun it; "" where it is not known."""
        path = self.folder / TYPED
        return path.read_text(encoding="utf-8") if path.exists() else ""

    @property
    def begun(self) -> float:
        """When its plan was written: seconds since the epoch. Of one that is lost: its done."""
        written = FAILED if self.given_up else PLAN if is_stage(self.folder) else DONE
        return (self.folder / written).stat().st_mtime

    def trusted(self) -> Self:
        """The same. Raises UserError 3 where the plan or the done cannot be trusted."""
        if self.refusal:
            raise self.refusal
        return self

    def changed(self, names: Iterable[str] | None = None) -> list[str]:
        """Outputs of the finished stage, of `names` or of all, that are gone or were changed."""
        return [
            name
            for name in (self.outputs if names is None else names)
            if name in self.outputs
            and not (
                (self.folder / name).exists()
                and file_digest(self.folder / name) == self.outputs[name]
            )
        ]

    def is_unchanged(self, name: str) -> bool:
        """Whether the stage is finished and has this file, as it left it."""
        return self.done is not None and (self.folder / name).exists() and not self.changed([name])

    def problem(self, names: Iterable[str] | None = None) -> str:
        """What is wrong with the folder or with its outputs `names`, in words; "" if nothing is."""
        if self.refusal:
            return f"{Path(self.refusal.location).name} {self.refusal.problem.rstrip('.')}"
        changed = self.changed(names)
        return f"{changed[0]} has changed since the stage wrote it" if changed else ""


class StageFolder:
    """A folder held by this process. `status` says what is in it for this very plan."""

    def __init__(self, folder: Path, plan: Plan, status: Status):
        self.folder, self.plan, self.status = folder, plan, status
        self.outcome: Outcome = "up to date" if status == "done" else "done"
        self.started = time.monotonic()
        if status == "half" and (folder / SPENT).exists():
            self.started -= _decode(folder / SPENT, float)

    @property
    def seconds(self) -> float:
        """Of this session and of those that it carries on."""
        return round(time.monotonic() - self.started, 1)

    @property
    def done(self) -> Done:
        return _decode(self.folder / DONE, Done)

    def finish(self, outputs: Iterable[str], figures: dict[str, object]) -> Done:
        """Writes done.json, with the digests of the outputs, once these are safe on the disk; not
        where it says the same already.
        """
        paths = {name: self.folder / name for name in outputs}
        with disk_errors(self.folder):
            sync_all(paths.values())
            for name in (EXPECTED, SPENT):
                (self.folder / name).unlink(missing_ok=True)
        digests = {name: file_digest(path) for name, path in paths.items()}
        if self.status == "done":
            if (self.done.outputs, self.done.figures) == (digests, figures):
                return self.done
            self.reopen()
        write_json(self.folder / DONE, Done(digests, figures, self.seconds))
        self.status, self.outcome = "done", "done"
        return self.done

    def reopen(self) -> None:
        """Takes done.json away, before more is added to the outputs of a finished stage."""
        if self.status == "done":
            self.started -= self.done.seconds
        (self.folder / DONE).unlink(missing_ok=True)
        self.status = "half"

    def expect(self, name: str, rows: int) -> None:
        expect(self.folder, name, rows)

    def set_aside_changed(self, name: str) -> None:
        """Renames an output that was changed since the stage was finished: its content is kept, and
        the output made again.
        """
        path = self.folder / name
        if path.exists() and read(self.folder).trusted().changed([name]):
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
            (self.folder / PLAN).rename(self.folder / FAILED)

    def result(self, next_command: str) -> Result:
        """What is there now: made by this process, or found up to date by it."""
        done = self.done
        return Result(
            self.plan.command,
            self.outcome,
            str(self.folder),
            done.figures,
            list(done.outputs),
            done.seconds,
            next_command,
        )


@contextmanager
def open_stage(folder: Path, plan: Plan, *, force: bool, typed: str = "") -> Iterator[StageFolder]:
    """Locks the folder, compares plans and writes this one. `typed`: the command line. Raises
    UserError 3 (another plan), 75 (held), 74 (disk).

    Of several processes only the first locks and compares; the others come here only when it has
    found work to do.
    """
    if not distributed.first():
        yield StageFolder(folder, plan, "half")
        return
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with hold(folder):
        if force or (folder / FAILED).exists():
            clear(folder)
        status = status_for(folder, plan)
        if status == "new":
            write_json(folder / PLAN, plan)
        elif status == "half" and (changed := read(folder).trusted().changed()):
            notice(
                f"{folder}: was finished, and {changed[0]} has changed since the stage "
                "wrote it; making again what is missing"
            )
        if typed and status != "done":
            (folder / TYPED).write_text(typed, encoding="utf-8")
        stage = StageFolder(folder, plan, status)
        try:
            yield stage
        finally:
            if stage.status != "done":
                with suppress(UserError):  # a full disk: what stopped it is said
                    write_json(folder / SPENT, stage.seconds)


def status_for(folder: Path, plan: Plan) -> Status:
    """What the folder holds for `plan`. Raises UserError 3 where it holds something else."""
    stored = read(folder)
    if stored.given_up:
        return "new"
    earlier = stored.trusted().plan
    if not earlier:
        strangers = [file.name for file in folder.glob("[!.]*")] if folder.exists() else []
        if strangers:
            raise UserError(
                f"holds {strangers[0]} but no {PLAN}.",
                "Give another --out or --run; agentlite does not write into a folder it did not "
                "make.",
                location=str(folder),
                exit_code=OTHER_PLAN,
            )
        return "new"
    refuse_other_command(folder, plan.command)
    if changes := differences(earlier, plan):
        state = "was finished" if stored.done else "is half done"
        raise UserError(
            f"{state} with other settings or inputs: {'; '.join(changes)}.",
            "Add --force to start it over, or --out NAME to keep both.",
            location=str(folder),
            exit_code=OTHER_PLAN,
        )
    return "done" if stored.done and not stored.changed() else "half"


def refuse_other_command(folder: Path, command: str) -> None:
    """Raises UserError 3 for a folder that a stage of another command has."""
    if is_stage(folder) and (other := read_plan(folder).command) != command:
        raise UserError(
            f"is a stage of `agentlite {other}`, not of `{command}`.",
            "Choose another --out.",
            location=str(folder),
            exit_code=OTHER_PLAN,
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
                changes.append(
                    f"{prefix}{key} {_short(before.get(key))} -> {_short(after.get(key))}"
                )
    return changes


def _short(value: Any) -> str:
    if value is None:
        return "absent"
    is_digest = isinstance(value, str) and len(value) == 64
    return value[:8] if is_digest else json.dumps(value, ensure_ascii=False)


def expect(folder: Path, name: str, rows: int) -> None:
    """Notes how many rows a file of answers or steps will have in the end, for `agentlite runs`."""
    write_json(folder / EXPECTED, Expected(name, rows, count_rows(folder / name)))


def read_expected(folder: Path) -> Expected | None:
    """None where no questions are open, or the file cannot be read."""
    try:
        return msgspec.json.decode((folder / EXPECTED).read_bytes(), type=Expected)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def is_stage(folder: Path, *, given_up: bool = False) -> bool:
    """Whether a stage was begun there; only on request one that was given up."""
    return (folder / PLAN).exists() or (given_up and (folder / FAILED).exists())


def is_finished(folder: Path) -> bool:
    """Whether a done.json is there, be it to be trusted or not."""
    return (folder / DONE).exists()


def find_stage(name: str, run: Path) -> Path:
    """A stage's folder: its name in the workspace, or a path."""
    is_path = not (run / name).exists() and Path(name).is_dir()
    return without_detours(Path(name) if is_path else run / name)


def without_detours(path: Path) -> Path:
    """`runs/prep` for `runs/ablate/../prep`, unless a link on the way makes them two."""
    short = Path(os.path.normpath(path))
    return path if path.exists() and not (short.exists() and short.samefile(path)) else short


def stages_in(run: Path, pattern: str = "*", *, given_up: bool = False) -> list[Path]:
    """The folders below `run` that match and hold a stage, by name; only on request those given up,
    and those whose plan is lost."""
    names = (PLAN, FAILED, DONE) if given_up else (PLAN,)
    return sorted({path.parent for name in names for path in run.glob(f"{pattern}/{name}")})


def stages_below(folder: Path) -> list[Path]:
    """The folders at any depth that a stage wrote, finished or not. There are none for a folder
    that is a stage, or lies in one. A plan.json of another program is no stage's.
    """
    here = folder.resolve()
    if any(read(one).plan for one in (here, *here.parents)):
        return []
    found = {path.parent for name in (PLAN, FAILED) for path in folder.rglob(name)}
    return sorted(one for one in found if read(one).plan)


def read(folder: Path) -> StoredStage:
    """The one reader of stages' folders. It refuses nothing: what is wrong is in the value."""
    given_up = not is_stage(folder) and (folder / FAILED).exists()
    plan = done = refusal = None
    try:
        if given_up or is_stage(folder):
            plan = _decode(folder / (FAILED if given_up else PLAN), Plan)
        if is_finished(folder):
            done = _decode(folder / DONE, Done)
        if done and not plan:
            refusal = UserError(
                "is missing, and without it nobody knows how the stage was made.",
                "Put it back from a copy; or remove the folder, and run its command again.",
                location=str(folder / PLAN),
                exit_code=OTHER_PLAN,
            )
    except UserError as error:
        refusal = error
    except FileNotFoundError:  # another process has just removed it
        pass
    return StoredStage(folder, plan, done, refusal, given_up)


def read_plan(folder: Path) -> Plan:
    """Raises UserError 3 for a plan that cannot be read."""
    return _decode(folder / PLAN, Plan)


def find_finished(name: str, run: Path, command: str = "") -> StoredStage:
    """A stage that another one names. Raises what `finished` raises."""
    return finished(find_stage(name, run), command)


def finished(folder: Path, command: str = "") -> StoredStage:
    """A stage of this command, or of any, whole and as it was left. Raises UserError 2 or 3 for a
    folder that is missing, half done or changed, 75 for one that is being made.
    """
    stored, where = read(folder).trusted(), str(folder)
    command = command or stored.command
    again = RunTarget(folder.parent, "").next(f"agentlite {command}")
    if stored.given_up:
        fix = f"Correct what its message named, and run `{again}` as before."
        raise UserError("has failed.", fix, location=where)
    if not stored.plan:
        raise UserError(
            "no such stage.",
            f"Run `{again}` first, or name another one. Looked for it in "
            f"{folder.parent.resolve()}.",
            location=where,
        )
    if not stored.done:
        if who := holder(folder):
            raise UserError(
                f"is running: {who}.",
                "Wait until it is done: `agentlite runs` says how far it is.",
                location=where,
                exit_code=LOCKED,
            )
        raise UserError(
            "is not finished.",
            "Run the same command again: it carries on.",
            location=where,
        )
    if (other := stored.command) != command:
        raise UserError(
            f"is a stage of `agentlite {other}`, not of `{command}`.", "", location=where
        )
    if changed := stored.changed():
        raise UserError(
            f"{changed[0]} has changed since the stage wrote it.",
            f"Run `{again}` again with --force.",
            location=where,
        )
    return stored


def stored_settings(name: str, run: Path) -> dict[str, Any]:
    """The settings in the plan of a stage or of its export; {} if `name` is neither."""
    folder = find_stage(name, run)
    if name and is_stage(folder):
        return read_plan(folder).settings
    if not name or not (folder / EXPORTED).exists():
        return {}
    settings: dict[str, Any] = json.loads((folder / EXPORTED).read_bytes())["settings"]
    return settings


def longer_rows(command: str, data: str, run: Path) -> dict[str, tuple[object, str]]:
    """`max_length` as the stage `data` has it, where `command` takes shorter rows by default."""
    length = stored_settings(data, run).get("max_length", 0)
    return {"max_length": (length, data)} if length > default(command, "max_length") else {}


def system_of(name: str, run: Path) -> str:
    """The system text that the prep of a model's records put before dialogs without one; "" if it
    put none, or the model was not trained here.
    """
    earlier, seen = name, set[str]()
    while earlier and earlier not in seen:
        seen.add(earlier)
        settings = stored_settings(earlier, run)
        if text := settings.get("system"):
            return str(text)
        # from a trainer or pairs to its records, from a merged or exported model to nothing
        earlier = str(settings.get("data") or "")
    return ""


def lineage(name: str, run: Path) -> list[str]:
    """From the base model to `name`: smollm2-135m, sft, dpo."""
    return [*earlier_models(name, run), name]


def earlier_models(name: str, run: Path) -> tuple[str, ...]:
    """The models that a stage was made from, which may be gone: the base model, then the stages."""
    earlier = stored_settings(name, run).get("model")
    return (*earlier_models(str(earlier), run), str(earlier)) if earlier and earlier != name else ()


def _decode(path: Path, kind: type[Content]) -> Content:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UserError(
            f"cannot be read ({error}).",
            "Start over with --force.",
            location=str(path),
            exit_code=OTHER_PLAN,
        ) from error


def clear(folder: Path) -> None:
    """Empties a folder that a stage made, and no other."""
    if is_stage(folder):
        # first: a kill from here on leaves a folder that is started over
        (folder / PLAN).rename(folder / FAILED)
    if (folder / FAILED).exists():
        for path in sorted(folder.iterdir(), key=lambda path: path.name == FAILED):  # FAILED last
            if path.name not in (LOCK, HOLDER, TURN):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def versions() -> dict[str, str]:
    """The versions of the packages a stage runs with; on a GPU also the switches of Unsloth."""
    by_name = (
        {name: os.environ.get(name, value) for name, value in SWITCHES.items()} if has_gpu() else {}
    )
    return by_name | _installed_versions()


@cache
def _installed_versions() -> dict[str, str]:
    found = {"agentlite": VERSION}
    for name in VERSIONED:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Holds a stage's folder. Raises UserError 75 while another process does."""
    from filelock import FileLock, Timeout

    holder_file, lock = folder / HOLDER, FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        who = "another process"
        with suppress(OSError):  # it ends just now, or begins
            who = holder_file.read_text(encoding="utf-8")
        raise UserError(
            f"is in use by {who}.",
            "Wait for it, stop it, or give another --out.",
            location=str(folder),
            exit_code=LOCKED,
        ) from None
    except OSError as error:
        raise cannot_write(folder, error) from error
    try:
        with disk_errors(folder):
            # renamed, so that nobody reads half of it, or writes to the target of a link
            aside = folder / f"{HOLDER}.new"
            aside.unlink(missing_ok=True)
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            aside.write_text(f"process {os.getpid()} since {since}", encoding="utf-8")
            aside.replace(holder_file)
        yield
    finally:
        holder_file.unlink(missing_ok=True)
        lock.release()


def holder(folder: Path) -> str:
    """The process that holds a stage's folder now, in words; "" if none does, or it was killed."""
    from filelock import FileLock, Timeout

    try:
        # first: it is removed at the release, so once the lock is free it may be gone
        who = (folder / HOLDER).read_text(encoding="utf-8")
        FileLock(folder / LOCK).acquire(timeout=0).lock.release()
    except Timeout:
        return who
    except OSError:  # nobody holds it, or the folder belongs to somebody else
        return ""
    return ""


@contextmanager
def in_turn(run: Path) -> Iterator[None]:
    """Lets commands that write into one workspace do so one after the other."""
    from filelock import FileLock

    lock = FileLock(run / TURN)
    with disk_errors(run):
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
