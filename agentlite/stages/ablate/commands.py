"""The commands of cells, each in a process of its own, and a journal of those that have ended."""

import contextlib
import ctypes
import json
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from agentlite.core import console
from agentlite.core.errors import DISK, GATE, LOCKED, OTHER_PLAN, UserError
from agentlite.core.row_files import Appender, disk_errors, read_rows
from agentlite.engine.watch import Stopped
from agentlite.workspace import stage_folder

JOURNAL = "commands.jsonl"
LOOK = 0.05  # seconds between two looks at a process
# errors that the next cell would meet as well: they end the run, which carries on later
OF_THE_MACHINE = (DISK, LOCKED)


class CellCommand(NamedTuple):
    """`agentlite WORDS`, which makes the stage in `folder`, in that of the ablation."""

    words: Sequence[str]
    folder: str

    @property
    def typed(self) -> str:
        """As a user types it."""
        return shlex.join(["agentlite", *self.words])


class EndedCommand(Struct, frozen=True, kw_only=True):
    """A row of commands.jsonl: a command that has ended by itself, whole or with an error. `gib`:
    the most memory of a GPU that its training took.
    """

    folder: str
    command: str
    exit_code: int
    seconds: float
    gib: float | None = None
    problem: str = ""


class CommandRun(Struct, frozen=True):
    """How a process has ended. `answer`: the JSON object of its stdout; {} if there is none."""

    exit_code: int
    answer: dict[str, Any]
    seconds: float

    @property
    def problem(self) -> str:
        """Why it failed, in one line; "" if it did not."""
        if not self.exit_code:
            return ""
        if error := self.answer.get("error"):
            place = f"{error['location']}: " if error["location"] else ""
            return " ".join(f"{place}{error['problem']}".split())
        if self.exit_code == -signal.SIGKILL:
            return "killed by SIGKILL: out of memory?"
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
    with (
        tempfile.TemporaryFile() as stdout,
        subprocess.Popen(
            [sys.executable, "-m", "agentlite", *words, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        ) as process,
    ):
        passed_on = False
        try:
            while process.poll() is None:
                if caught and not passed_on:
                    process.send_signal(caught[0])
                    passed_on = True
                time.sleep(LOOK)
        except BaseException:
            process.kill()
            raise
        stdout.seek(0)
        answer = None
        with contextlib.suppress(ValueError):
            answer = json.load(stdout)
    if caught:
        raise Stopped(caught[0])
    seconds = round(time.monotonic() - started, 1)
    return CommandRun(process.returncode, answer if isinstance(answer, dict) else {}, seconds)


def _die_with_parent() -> None:
    """In a process that was just forked: the system kills it when its parent ends, however that
    ends. Linux only; elsewhere it is left to itself.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


class CommandJournal:
    """commands.jsonl: what was run for the cells. A command that is in it is not run again, as long
    as its stage is there; one that failed is run again only on request.
    """

    def __init__(self, folder: Path, caught: Sequence[int], *, retry: bool):
        self.folder, self.caught, self.retry = folder, caught, retry
        with Appender(folder / JOURNAL):  # cuts a torn line
            pass
        self.rows = [msgspec.convert(row, EndedCommand) for row in read_rows(folder / JOURNAL)]

    def results(self, commands: Sequence[CellCommand]) -> list[EndedCommand]:
        """Of commands that build on each other, the rows of the first ones that are not to be run
        again; one that failed is the last. Such a row is the last one of its stage, of the same
        command, and younger than the rows before it.
        """
        last = {row.folder: number for number, row in enumerate(self.rows)}
        ended, newest = list[EndedCommand](), -1
        for command in commands:
            number = last.get(command.folder, -1)
            row = self.rows[number] if number > newest else None
            if row is None or row.command != command.typed or (row.exit_code and self.retry):
                break
            # a stage, or the evaluations in a folder of them
            folder = self.folder / command.folder
            stages = [folder, *stage_folder.stages_in(folder, "*/*")]
            if not row.exit_code and not any(map(stage_folder.is_finished, stages)):
                break
            ended.append(row)
            newest = number
            if row.exit_code:
                break
        return ended

    def run(self, command: CellCommand) -> EndedCommand:
        """Runs a command. A stage that was finished with other settings, because the cell of that
        name was another one, is started over.
        """
        folder = self.folder / command.folder
        with disk_errors(folder):  # without the folder around it, `../prep` would lead nowhere
            folder.parent.mkdir(parents=True, exist_ok=True)
        run = run_command(command.words, self.caught)
        if run.exit_code == OTHER_PLAN:
            console.notice(
                f"ablate: {command.folder} was made with other settings: it is made again"
            )
            run = run_command([*command.words, "--force"], self.caught)
        if run.exit_code in OF_THE_MACHINE:
            error = run.answer["error"]
            raise UserError(
                error["problem"], error["fix"], location=error["location"], exit_code=run.exit_code
            )
        # a gate that is not passed is a finding about a model that was measured
        is_gate = run.exit_code == GATE
        row = EndedCommand(
            folder=command.folder,
            command=command.typed,
            exit_code=0 if is_gate else run.exit_code,
            seconds=run.seconds,
            gib=run.answer.get("figures", {}).get("gpu_gib"),
            problem="" if is_gate else run.problem,
        )
        self.rows.append(row)
        with Appender(self.folder / JOURNAL) as file:
            file.append(msgspec.to_builtins(row))
        return row

    def costs(self, cells: Mapping[str, str]) -> dict[str, dict[str, float]]:
        """Seconds of all commands of each cell, and the most memory that one of them took. `cells`:
        the workspace of each, by its name.
        """
        return {
            cell: {
                "seconds": round(sum(row.seconds for row in rows), 1),
                "gib": max(row.gib or 0.0 for row in rows),
            }
            for cell, home in cells.items()
            if (rows := [row for row in self.rows if row.folder.startswith(f"{home}/")])
        }
