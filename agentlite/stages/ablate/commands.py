"""The commands of cells, each in a process of its own: answers, time, memory, and a journal."""

import contextlib
import ctypes
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from agentlite.core import console
from agentlite.core.errors import DISK, GATE, LOCKED, OTHER_PLAN, UserError
from agentlite.core.row_files import Appender, disk_errors, whole_lines_end
from agentlite.engine.signals import Stopped
from agentlite.workspace import run_folder

JOURNAL, CELLS = "commands.jsonl", "cells"
LOOK = 0.05  # seconds between two looks at a process
# errors that the next cell would meet as well: they end the run, which carries on later
OF_THE_MACHINE = (DISK, LOCKED)


class EndedCommand(Struct, frozen=True, kw_only=True):
    """A row of commands.jsonl: a command that has ended by itself, whole or with an error.

    `folder`: that of its stage, in the folder of the ablation; `gib`: the most memory that it took,
    of the GPU if it trained on one, else of its process.
    """

    cell: str
    folder: str
    command: str
    exit_code: int
    seconds: float
    gib: float
    problem: str = ""


class CommandRun(Struct, frozen=True):
    """How a process has ended. `answer`: the JSON object of its stdout; {} if there is none."""

    exit_code: int
    answer: dict[str, Any]
    seconds: float
    gib: float

    @property
    def problem(self) -> str:
        """Why it failed, in one line; "" if it did not."""
        if not self.exit_code:
            return ""
        error = self.answer.get("error", {})
        if error:
            words = [f"{error['location']}: " if error["location"] else "", error["problem"]]
            return " ".join("".join(words).split())
        if self.exit_code < 0:
            name = signal.Signals(-self.exit_code).name
            return f"killed by {name}{': out of memory?' if name == 'SIGKILL' else ''}"
        return f"ended with exit code {self.exit_code}"


def run_command(words: Sequence[str], caught: Sequence[int]) -> CommandRun:
    """Runs `agentlite WORDS --json`; what it says goes to our stderr. `caught`: the signals that
    this process has noted, which are passed on to it.

    It has a session of its own, so that Ctrl-C reaches it once, through us; and it ends with us,
    however we end. Raises Stopped if a signal came.
    """
    if caught:
        raise Stopped(caught[0])
    started = time.monotonic()
    with tempfile.TemporaryFile() as answer:
        process = subprocess.Popen(
            [sys.executable, "-m", "agentlite", *words, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=answer,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        try:
            usage = _wait(process, caught)
        except BaseException:
            process.kill()
            process.wait()
            raise
        answer.seek(0)
        printed = answer.read()
    if caught:
        raise Stopped(caught[0])
    scale = 1 if sys.platform == "darwin" else 1024
    return CommandRun(
        process.returncode,
        _object(printed),
        round(time.monotonic() - started, 1),
        round(usage.ru_maxrss * scale / 2**30, 2),
    )


def _die_with_parent() -> None:
    """In a process that was just forked: the system kills it when its parent ends, however that
    ends. Linux only; elsewhere it is left to itself.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


def _wait(process: subprocess.Popen[bytes], caught: Sequence[int]) -> Any:
    """Waits for the end, passing on the first signal. Returns what the process used."""
    passed_on = False
    while True:
        number, status, usage = os.wait4(process.pid, os.WNOHANG)
        if number:
            process.returncode = os.waitstatus_to_exitcode(status)
            return usage
        if caught and not passed_on:
            process.send_signal(caught[0])
            passed_on = True
        time.sleep(LOOK)


def _object(printed: bytes) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        answer = json.loads(printed)
        return answer if isinstance(answer, dict) else {}
    return {}


def _whole_rows(path: Path) -> Iterator[EndedCommand]:
    """A row that cannot be read is left out: its command is run again, and finds itself done."""
    whole = path.read_bytes()[: whole_lines_end(path)] if path.exists() else b""
    for line in whole.splitlines():
        with contextlib.suppress(msgspec.MsgspecError):
            yield msgspec.json.decode(line, type=EndedCommand)


class CommandJournal:
    """commands.jsonl: what was run for the cells. A command that is in it is not run again, as long
    as its stage is as it was left; one that failed is run again only on request.
    """

    def __init__(self, folder: Path, caught: Sequence[int], *, retry: bool):
        self.folder, self.caught, self.retry = folder, caught, retry
        self.path = folder / JOURNAL
        self.rows = list(_whole_rows(self.path))

    def typed(self, words: Sequence[str]) -> str:
        """The command as a user types it."""
        return shlex.join(["agentlite", *words])

    def ask(self, folder: str, words: Sequence[str]) -> CommandRun:
        """Runs a command that leaves nothing, such as a dry run of the stage in `folder`."""
        # without the folder around it, `../prep` would lead nowhere
        with disk_errors(self.folder / folder):
            (self.folder / folder).parent.mkdir(parents=True, exist_ok=True)
        return run_command(words, self.caught)

    def run(
        self,
        cell: str,
        folder: str,
        words: Sequence[str],
        after: Sequence[str] = (),
    ) -> EndedCommand:
        """Runs the command of the stage in `folder`, unless it was run. A stage that was finished
        with other settings, because the cell of that name was another one, is started over. Raises
        UserError 74 or 75, and Stopped.
        """
        typed = self.typed(words)
        if earlier := self.earlier(folder, typed, after):
            return earlier
        run = self.ask(folder, words)
        if run.exit_code == OTHER_PLAN:
            console.notice(f"ablate: {folder} was made with other settings: it is made again")
            run = run_command([*words, "--force"], self.caught)
        if run.exit_code in OF_THE_MACHINE:
            error = run.answer.get("error", {})
            raise UserError(
                error.get("problem", run.problem),
                error.get("fix", ""),
                location=error.get("location", typed),
                exit_code=run.exit_code,
            )
        row = EndedCommand(
            cell=cell,
            folder=folder,
            command=typed,
            # a gate that is not passed is a finding about a model that was measured
            exit_code=0 if run.exit_code == GATE else run.exit_code,
            seconds=run.seconds,
            gib=run.answer.get("figures", {}).get("gpu_gib", run.gib),
            problem="" if run.exit_code == GATE else run.problem,
        )
        self.rows.append(row)
        with Appender(self.path) as file:
            file.append(msgspec.to_builtins(row))
        return row

    def earlier(self, folder: str, typed: str, after: Sequence[str] = ()) -> EndedCommand | None:
        """The last row of that stage, if it is of the same command and still true: no stage in
        `after`, from which it was made, was made again since.
        """
        last = {row.folder: index for index, row in enumerate(self.rows)}
        at = last.get(folder, -1)
        if at < 0 or any(last.get(name, -1) > at for name in after):
            return None
        row = self.rows[at]
        if row.command != typed or (row.exit_code and self.retry):
            return None
        return row if row.exit_code or self._is_as_left(self.folder / folder) else None

    def _is_as_left(self, folder: Path) -> bool:
        """Whether a stage is finished and unchanged, or all evaluations in a folder of them."""
        folders = [folder] if run_folder.is_stage(folder) else run_folder.stages_in(folder, "*/*")
        stored = [run_folder.read(one) for one in folders]
        return bool(stored) and all(one.done and not one.problem() for one in stored)

    def costs(self, cells: Mapping[str, str]) -> dict[str, dict[str, float]]:
        """Seconds of all commands of each cell, and the most memory that one of them took. `cells`:
        the workspace of each, by its name.
        """
        return {
            cell: {
                "seconds": round(sum(row.seconds for row in rows), 1),
                "gib": max(row.gib for row in rows),
            }
            for cell, home in cells.items()
            if (rows := [row for row in self.rows if row.folder.startswith(f"{home}/")])
        }
