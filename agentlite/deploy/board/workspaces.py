"""Any number of workspaces -> a small row for each stage, and the rows that changed since."""

import functools
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from agentlite.config.pipeline import STAGES
from agentlite.config.resolve import plain_defaults
from agentlite.deploy.board.curves import Curves
from agentlite.deploy.board.stage_state import State, state_now
from agentlite.workspace import folder_lock, run_folder
from agentlite.workspace.run_folder import StoredStage

KeyFigure = Callable[[StoredStage], str]
SMALL = 1 << 20  # bytes of an output up to which the board compares its digest at each change
MOST_CURVES = 64  # stages whose curves are in memory
EVALUATIONS = "eval"  # the folder of them, also where there is no other stage
AT_ONCE = 0.15  # seconds of one look
LONGEST_FIGURE = 300  # characters


class StageRow(Struct, frozen=True):
    """A stage as the board lists it. `settings`: those that are not the defaults; `figures`: the
    numbers in its done.json; `begun`, `written`: seconds since the epoch; `left`: seconds, while it
    runs, or None.
    """

    id: str
    run: str
    stage: str
    command: str
    state: State
    detail: str
    figure: str
    begun: float
    written: float
    seconds: float | None
    left: float | None
    settings: dict[str, Any]
    figures: dict[str, float]


class SeenStage:
    """A stage that was looked at: `signature` says whether its small files have changed since."""

    def __init__(self, row: StageRow, folder: Path, signature: object, version: int):
        self.row, self.folder, self.signature, self.version = row, folder, signature, version


class Workspaces:
    """`folders`: workspaces, or folders of workspaces. A stage is read when its files
    change, and only as far as the table shows it. Threads may ask at the same time.
    """

    def __init__(self, folders: Sequence[Path], key_figure: KeyFigure = lambda stage: ""):
        self.folders, self.key_figure = [*folders], key_figure
        self.version = 0
        self.stages: dict[str, SeenStage] = {}
        self.gone: dict[str, int] = {}  # id -> the version in which it went
        self.busy: dict[Path, bool] = {}  # workspace that was read -> whether a stage runs in it
        self._round: list[Path] = []  # those that this round has not come to
        self._held: dict[str, Path] = {}  # folders that were seen to be workspaces, by path
        self._others: dict[str, object] = {}  # folders of workspaces inside, with their signatures
        self._curves: OrderedDict[str, Curves] = OrderedDict()
        self._lock = threading.RLock()
        self._following = threading.RLock()  # of the curves, which are read between two looks

    def look(self, seconds: float = AT_ONCE, is_urgent: Callable[[], bool] = lambda: False) -> int:
        """Reads what has changed, for about so long: workspaces in which a stage runs, then new
        ones, then the others in turn. Stops early where something else `is_urgent`. Returns how
        many wait for their first look.
        """
        with self._lock:
            known = [*self._workspaces()]
            end = time.monotonic() + seconds
            self._forget_all_but(known)
            new = [run for run in known if run not in self.busy]
            self._round = [run for run in self._round if run in self.busy] or [*self.busy]
            for run in [run for run, is_busy in self.busy.items() if is_busy]:
                self._read(run)
            while new or self._round:
                self._read((new or self._round).pop(0))
                if time.monotonic() >= end or is_urgent():
                    break
            return len(new)

    def look_for(self, name: str) -> None:
        """Reads the workspace of a name, or of a stage in it, if no look has come to it yet: of a
        link that is opened at once.
        """
        if name in self.stages:  # without the lock: a look may hold it for long
            return
        with self._lock:
            for run in [run for run in self._workspaces() if run not in self.busy]:
                if name == str(run) or name.startswith(f"{run}/"):
                    self._read(run)

    def look_at(self, run: Path) -> None:
        """Reads one workspace now, and at each look until nothing runs in it."""
        with self._lock:
            if run in self.busy:
                self.busy[run] = True

    def rows(self, since: int = -1) -> tuple[list[StageRow], list[str]]:
        """The rows that are newer than a version, and the ids that are gone since."""
        with self._lock:
            rows = [one.row for one in self.stages.values() if one.version > since]
            return rows, [name for name, version in self.gone.items() if version > since >= 0]

    def folder(self, name: str) -> Path | None:
        """The folder of a stage that was seen; a name that was not says nothing about the disk."""
        seen = self.stages.get(name)
        return seen.folder if seen else None

    def run(self, name: str) -> Path | None:
        """The workspace of a stage that was seen."""
        seen = self.stages.get(name)
        return Path(seen.row.run) if seen else None

    def evaluated(self) -> dict[str, SeenStage]:
        """The finished evaluations, each of one model."""
        with self._lock:
            return {
                name: seen
                for name, seen in self.stages.items()
                if seen.row.command == "eval" and seen.row.state == "done"
            }

    def curves(self, name: str) -> dict[str, Any] | None:
        """Of a stage that was seen."""
        folder = self.folder(name)
        with self._following:
            return self._follow(name, folder).as_json() if folder else None

    def runs(self) -> list[str]:
        """The workspaces, as their names were given."""
        with self._lock:
            return sorted(map(str, self.busy))

    def _workspaces(self) -> Iterator[Path]:
        """The folders themselves, and the folders in them that hold a stage."""
        for folder in dict.fromkeys(self.folders):
            if self._is_workspace(folder):
                yield folder
            try:
                inside = sorted(one.name for one in os.scandir(folder) if one.is_dir())
            except OSError:
                continue
            for name in inside:
                # a thousand paths are not made and hashed again at each look
                run = self._held.get(f"{folder}/{name}") or folder / name
                if not name.startswith(".") and self._is_workspace(run):
                    yield run

    def _is_workspace(self, folder: Path) -> bool:
        if str(folder) not in self._held and _holds_stages(folder):
            self._held[str(folder)] = folder
        return str(folder) in self._held

    def _forget_all_but(self, known: list[Path]) -> None:
        for run in self.busy.keys() - set(known):
            del self.busy[run]
            self._held.pop(str(run), None)
            self._drop([name for name, seen in self.stages.items() if seen.row.run == str(run)])

    def _drop(self, names: Sequence[str]) -> None:
        for name in names:
            self.version += 1
            del self.stages[name]
            with self._following:
                self._curves.pop(name, None)
            self.gone[name] = self.version

    def _read(self, run: Path) -> None:
        """One workspace: the stages whose files have changed."""
        folders = [
            *run_folder.stages_in(run, given_up=True),
            *run_folder.stages_in(run, "*/*/*", given_up=True),
        ]
        names = {f"{run}/{folder.relative_to(run).as_posix()}": folder for folder in folders}
        is_busy = False
        for name, folder in names.items():
            files, written = _signature(folder)
            is_running = bool(folder_lock.holder(folder))
            is_busy = is_busy or is_running
            seen, signature = self.stages.get(name), (files, is_running)
            if self._others.get(name) == files or (seen and seen.signature == signature):
                continue
            stage = run_folder.read(folder)
            if folder.parent != run and stage.plan and stage.plan.command != "eval":
                self._others[name] = files  # a stage of a workspace inside
                continue
            row = self._row(run, name, stage, written)
            self.version += 1
            self.stages[name] = SeenStage(row, folder, signature, self.version)
            self.gone.pop(name, None)
        of_run = [name for name, one in self.stages.items() if one.row.run == str(run)]
        self._drop([name for name in of_run if name not in names])
        self.busy[run] = is_busy

    def _row(self, run: Path, name: str, stage: StoredStage, written: float) -> StageRow:
        plan, done = stage.plan, stage.done
        command = plan.command if plan else "?"
        try:
            state, detail = state_now(stage, _small_outputs(stage))
            figure, begun = self.key_figure(stage), stage.begun
        except (
            OSError,
            ValueError,
            TypeError,
            KeyError,
        ):  # it goes while it is read, or was harmed
            state, detail, figure, begun = "broken", "its files cannot be read", "", 0.0
        left = None
        if state == "running":
            with self._following:
                follow = self._follow(name, stage.folder)
                left = follow.seconds_left
                if follow.steps:
                    detail = f"step {follow.step} of {follow.steps}"
        return StageRow(
            name,
            str(run),
            stage.folder.relative_to(run).as_posix(),
            command,
            state,
            detail,
            figure[:LONGEST_FIGURE],
            begun,
            written,
            done.seconds if done else None,
            left,
            _changed_settings(command, plan.settings) if plan else {},
            _numbers(done.figures) if done else {},
        )

    def _follow(self, name: str, folder: Path) -> Curves:
        """The curves of a stage, with what was written since the last time."""
        if name not in self._curves:
            self._curves[name] = Curves(folder)
        self._curves.move_to_end(name)
        while len(self._curves) > MOST_CURVES:
            self._curves.popitem(last=False)
        return self._curves[name].look()


def defaults() -> dict[str, dict[str, Any]]:
    """Of each stage: what a setting is that a row does not name."""
    return {command: _defaults(command) for command in STAGES}


@functools.cache
def _defaults(command: str) -> dict[str, Any]:
    from agentlite.config.settings import fields

    return plain_defaults(command, fields(command)) if command in STAGES else {}


def as_json(rows: Sequence[StageRow]) -> list[dict[str, Any]]:
    """A row without what it does not say."""
    return [
        {
            key: value
            for key, value in msgspec.to_builtins(row).items()
            if value not in ("", None, {})
        }
        for row in rows
    ]


def _holds_stages(run: Path) -> bool:
    """Whether a folder is a workspace: cheap, since it is asked of every folder."""
    return bool(
        run_folder.stages_in(run, given_up=True)
        or run_folder.stages_in(run / EVALUATIONS, "*/*", given_up=True)
    )


def _signature(folder: Path) -> tuple[tuple[tuple[str, int, int], ...], float]:
    """Names, sizes and times of the files of a stage, and when the newest one was written."""
    files = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_file() and entry.name not in (folder_lock.LOCK, folder_lock.HOLDER):
                    stat = entry.stat()
                    files.append((entry.name, stat.st_size, stat.st_mtime_ns))
    except OSError:
        return (), 0.0
    return tuple(sorted(files)), max((time for _, _, time in files), default=0) / 1e9


def _small_outputs(stage: StoredStage) -> list[str]:
    """The outputs whose content is compared: those that cost nothing to read, and those that are
    missing. `agentlite runs` compares all.
    """
    names = stage.done.outputs if stage.done else {}
    return [name for name in names if _size(stage.folder / name) <= SMALL]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _changed_settings(command: str, settings: dict[str, Any]) -> dict[str, Any]:
    usual = _defaults(command)
    return {key: value for key, value in settings.items() if usual.get(key) != value}


def _numbers(figures: dict[str, Any]) -> dict[str, float]:
    return {
        name: value
        for name, value in figures.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
