"""Commands that the board has started: processes of their own, which outlive it, and their logs."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from agentlite.core.console import hidden
from agentlite.core.errors import UserError
from agentlite.core.row_files import disk_errors, write_json

FOLDER = ".board"  # in a workspace: a file for each command that the board has started there
MOST = 50  # commands of a workspace that are listed, the newest
TAIL = 20_000  # bytes of a log that are shown
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


class StartedCommand(Struct, frozen=True):
    """`id`: the name of its files in the workspace. `start_time`: of the process, as the system
    counts it: another process that gets the same number has another one. `code`: its exit status,
    None while it runs or where nobody saw its end.
    """

    id: str
    run: str
    words: list[str]
    pid: int
    start_time: str
    at: float
    running: bool = True
    code: int | None = None


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Processes:
    """Those of any number of workspaces. A board that is started again finds them."""

    def __init__(self) -> None:
        self._children: dict[tuple[int, str], subprocess.Popen[bytes]] = {}
        self._codes: dict[tuple[int, str], int] = {}
        self._lock = threading.Lock()

    def start(self, run: Path, words: Sequence[str]) -> StartedCommand:
        """Runs `agentlite WORDS` in a session of its own: closing the page, or the board, does not
        end it. Raises UserError 74.
        """
        folder = run / FOLDER
        with disk_errors(folder), self._lock:
            folder.mkdir(parents=True, exist_ok=True)
            name = f"{time.strftime('%Y%m%d-%H%M%S')}-{time.monotonic_ns() % 10**6:06}-{words[0]}"
            with open(folder / f"{name}.log", "wb") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", "agentlite", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    # a board in a shell's background ignores SIGINT, by which it stops a stage
                    preexec_fn=_heed_interrupts,
                )
            start_time = _start_time(process.pid)
            self._children[process.pid, start_time] = process
            started = StartedCommand(name, str(run), [*words], process.pid, start_time, time.time())
            write_json(folder / f"{name}.json", started)
        return started

    def stop(self, run: Path, name: str) -> None:
        """As Ctrl-C does: SIGINT to the command and to what it has started. Raises UserError 2 for
        one that does not run.
        """
        one = next((found for found in self.listed(run) if found.id == name), None)
        if one is None or not one.running:
            raise UserError("no such command runs.", location=str(run))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGINT)

    def listed(self, run: Path) -> list[StartedCommand]:
        """The commands of a workspace, the newest first."""
        self._reap()
        try:
            paths = sorted((run / FOLDER).glob("*.json"), reverse=True)[:MOST]
        except OSError:
            return []
        return [one for path in paths if (one := self._read(run, path))]

    def log(self, run: Path, name: str) -> str:
        """The end of what a command has printed. A name that is not listed has none."""
        if name not in {one.id for one in self.listed(run)}:
            return ""
        try:
            with open(run / FOLDER / f"{name}.log", "rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - TAIL))
                text = file.read(TAIL).decode("utf-8", "replace")
        except OSError:
            return ""
        return hidden(CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))

    def _read(self, run: Path, path: Path) -> StartedCommand | None:
        import msgspec

        try:
            one = msgspec.convert(json.loads(path.read_bytes()), StartedCommand)
        except (OSError, ValueError, RecursionError):
            return None
        if one.id != path.stem or one.pid < 2:  # was copied or changed
            return None
        key = one.pid, one.start_time
        # the start time and the words: nothing that a file of a stranger says ends another process
        running = key in self._children or (
            bool(one.start_time)
            and _start_time(one.pid) == one.start_time
            and _is_command(one.pid, one.words)
        )
        code = self._codes.get(key)
        return msgspec.structs.replace(one, run=str(run), running=running, code=code)

    def _reap(self) -> None:
        """Collects those that have ended, which would else stay in the list of processes."""
        with self._lock:
            for key, process in [*self._children.items()]:
                if (code := process.poll()) is not None:
                    self._codes[key] = code
                    del self._children[key]


def _start_time(pid: int) -> str:
    """When a process began, in the system's words; "" for one that has ended."""
    try:
        # the name, in brackets, may hold anything
        parts = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return "" if parts[0] == b"Z" else parts[19].decode()
    except (OSError, IndexError):
        pass
    if sys.platform == "linux":
        return ""
    found = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True)
    return found.stdout.strip()


def _is_command(pid: int, words: Sequence[str]) -> bool:
    """Whether the process runs `agentlite WORDS`."""
    try:
        line: Any = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        if sys.platform == "linux":
            return False
        shown = subprocess.run(["ps", "-o", "args=", "-p", str(pid)], capture_output=True)
        return " ".join(["-m agentlite", *words]).encode() in shown.stdout
    return bool(line[1:] == [b"-m", b"agentlite", *(word.encode() for word in words)])
