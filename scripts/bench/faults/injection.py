"""A job -> the same job in a forked child, killed or failed at one of its file calls: by strace,
else from Python.

strace sees every call, those of safetensors and torch too. Where it is missing, or may not attach,
the functions of Python that open, write, sync, rename and remove are counted instead; `tool()` says
which of the two it is.
"""

import builtins
import errno
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

Job = Callable[[], Any]
WRITES = {
    "write",
    "pwrite64",
    "writev",
    "sendfile",
    "copy_file_range",
    "fsync",
    "fdatasync",
    "ftruncate",
    "rename",
    "renameat",
    "renameat2",
    "mkdir",
    "mkdirat",
}
REMOVES = {"unlink", "unlinkat", "rmdir"}
READS = {"openat", "close"}
HOW = {"kill": "signal=SIGKILL", "ENOSPC": "error=ENOSPC", "EIO": "error=EIO"}
LINE = re.compile(r"^(\d+) +(\w+)\((.*)")


class Point(NamedTuple):
    """A file call of a job: the `number`-th of this name. `makes`: it may make a file, so it takes
    room.
    """

    call: str
    number: int
    makes: bool
    told: str

    def takes(self, kind: str) -> bool:
        """Whether such a fault can come here: a full disk where room is taken, a kill where
        anything is changed.
        """
        changes = self.makes or self.call in REMOVES
        return {"kill": changes, "ENOSPC": self.makes, "EIO": True}[kind]


class End(NamedTuple):
    """How a child ended: its exit status, negative for a signal; whether the fault came; what it
    printed.
    """

    code: int
    came: bool
    told: str


def points(job: Job, folder: Path) -> list[Point]:
    """Runs the job without a fault. Its file calls under `folder`, in order."""
    return _traced_points(job, folder) if tool() == "strace" else _shimmed_points(job, folder)


def run(job: Job, folder: Path, kind: str, point: Point) -> End:
    """Runs the job with a fault at that point."""
    if tool() == "strace":
        with tempfile.NamedTemporaryFile() as log:
            inject = f"inject={point.call}:{HOW[kind]}:when={point.number}"
            end = forked(job, ["-o", log.name, "-e", f"trace={point.call}", "-e", inject])
            lines = Path(log.name).read_text(encoding="utf-8", errors="replace").splitlines()
        failed = any("(INJECTED)" in line and str(folder) in line for line in lines)
        came = end.code == -signal.SIGKILL if kind == "kill" else failed
        return end._replace(came=came)
    shim = Shim(folder, kind, point)
    end = forked(lambda: (shim.install(), job()))
    return end._replace(
        came=end.code == -signal.SIGKILL if kind == "kill" else "INJECTED" in end.told
    )


def forked(job: Job, strace: list[str] | None = None) -> End:
    """In a child that has all that was imported here. With `strace` it waits until it is traced."""
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as told:
        child = os.fork()
        if child == 0:
            _child(job, told.fileno(), wait=strace is not None)
        tracer = _attach(child, strace) if strace is not None else None
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if tracer:
            tracer.communicate()
        told.seek(0)
        return End(code, False, told.read().decode("utf-8", "replace"))


def started(job: Job, told: int) -> int:
    """The id of a child that runs by itself; its output goes to a file that is open."""
    child = os.fork()
    if child == 0:
        _child(job, told, wait=False)
    return child


@cache
def tool() -> str:
    """`strace`, or `Python` where that is not to be had, or $FAULTS_BY says so."""
    if os.environ.get("FAULTS_BY") == "Python" or not shutil.which("strace"):
        return "Python"
    try:
        end = forked(
            lambda: os.rmdir("/nowhere"),
            ["-o", os.devnull, "-e", "trace=rmdir", "-e", "inject=rmdir:signal=SIGKILL"],
        )
    except OSError:
        return "Python"
    return "strace" if end.code == -signal.SIGKILL else "Python"


def _child(job: Job, told: int, *, wait: bool) -> None:
    code = 1
    try:
        os.dup2(told, 1)
        os.dup2(told, 2)
        sys.stdout, sys.stderr = (
            os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2)
        )
        if wait:
            _may_be_traced()
            os.kill(os.getpid(), signal.SIGSTOP)
        job()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1 if error.code else 0
    except KeyboardInterrupt:  # before the command line could say so
        code = 128 + signal.SIGINT
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def _may_be_traced() -> None:
    """By its sibling: Yama allows ancestors only, unless it is told so."""
    import ctypes

    ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1 % 2**64), 0, 0, 0)


def _attach(child: int, options: list[str]) -> "subprocess.Popen[str]":
    os.waitpid(child, os.WUNTRACED)
    command = ["strace", "-f", "-y", "-s", "8", *options, "-p", str(child)]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert tracer.stderr
    attached = tracer.stderr.readline()  # it says that it is attached, or why not
    os.kill(child, signal.SIGCONT)
    if "attached" not in attached:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        tracer.communicate()
        raise OSError(attached)
    return tracer


def _traced_points(job: Job, folder: Path) -> list[Point]:
    with tempfile.NamedTemporaryFile() as log:
        calls = ",".join(sorted(WRITES | REMOVES | READS))
        end = forked(job, ["-o", log.name, "-e", f"trace={calls}"])
        if end.code:
            raise RuntimeError(end.told)
        lines = Path(log.name).read_text(encoding="utf-8", errors="replace").splitlines()
    counts: Counter[str] = Counter()
    found = []
    main = lines[0].split()[0]
    for line in lines:
        if (match := LINE.match(line)) and match[1] == main:
            call, given = match[2], match[3]
            counts[call] += 1
            if str(folder) in given:
                makes = call in WRITES or "O_CREAT" in given or "O_TMPFILE" in given
                found.append(Point(call, counts[call], makes, given[:200]))
    return found


def _shimmed_points(job: Job, folder: Path) -> list[Point]:
    with tempfile.NamedTemporaryFile("w+", encoding="utf-8") as log:
        shim = Shim(folder, "", None, log)
        end = forked(lambda: (shim.install(), job(), log.flush()))
        if end.code:
            raise RuntimeError(end.told)
        lines = Path(log.name).read_text(encoding="utf-8").splitlines()
    found = (line.split(" ", 3) for line in lines)
    return [Point(call, int(number), makes == "True", told) for call, number, makes, told in found]


class Shim:
    """Python's own file calls under a folder, counted by name; at the point it dies, or the call
    fails.
    """

    def __init__(self, folder: Path, kind: str, point: Point | None, log: Any = None):
        self.folder, self.kind, self.point, self.log = str(folder), kind, point, log
        self.counts: Counter[str] = Counter()

    def called(self, call: str, path: Any, makes: bool) -> None:
        if not str(path).startswith(self.folder):
            return
        self.counts[call] += 1
        if self.log:
            self.log.write(f"{call} {self.counts[call]} {makes} {path}\n")
        elif self.point and (call, self.counts[call]) == self.point[:2]:
            if self.kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            print("INJECTED", file=sys.stderr)
            number = getattr(errno, self.kind)
            raise OSError(number, os.strerror(number), str(path))

    def install(self) -> None:
        """For good: in a child."""
        shim, opens = self, io.open

        class Counted(io.FileIO):
            def write(self, content: Any) -> int:
                shim.called("write", self.name, True)
                return super().write(content)

            def truncate(self, size: int | None = None) -> int:
                shim.called("ftruncate", self.name, True)
                return super().truncate(size)

        def opening(
            file: Any,
            mode: str = "r",
            buffering: int = -1,
            encoding: Any = None,
            errors: Any = None,
            newline: Any = None,
            closefd: bool = True,
            opener: Any = None,
        ) -> Any:
            if (
                isinstance(file, int)
                or "+" in mode
                or not str(os.fspath(file)).startswith(shim.folder)
            ):
                return opens(file, mode, buffering, encoding, errors, newline, closefd, opener)
            changes = not set(mode).isdisjoint("wax")
            shim.called("openat", file, changes)
            if not changes:
                return opens(file, mode, buffering, encoding, errors, newline, closefd, opener)
            raw = Counted(file, mode.replace("b", "").replace("t", ""))
            if buffering == 0:
                return raw
            buffer = io.BufferedWriter(raw)
            return buffer if "b" in mode else io.TextIOWrapper(buffer, encoding, errors, newline)

        builtins.open = io.open = opening  # type: ignore[assignment]
        names = {
            "rename": "rename",
            "replace": "rename",
            "mkdir": "mkdir",
            "unlink": "unlink",
            "remove": "unlink",
            "rmdir": "rmdir",
        }
        for name, call in names.items():
            setattr(os, name, self._counted(getattr(os, name), call))
        sync = os.fsync

        def syncing(handle: Any) -> None:
            number = handle if isinstance(handle, int) else handle.fileno()
            shim.called("fsync", os.path.realpath(f"/proc/self/fd/{number}"), True)
            sync(handle)

        os.fsync = syncing

    def _counted(self, original: Callable[..., Any], call: str) -> Callable[..., Any]:
        def counted(path: Any, *rest: Any, **more: Any) -> Any:
            self.called(call, path, call in WRITES)
            return original(path, *rest, **more)

        return counted
