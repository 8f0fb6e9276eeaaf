"""A job -> the same job in a forked child, killed or failed at one of its file calls.

The functions of Python that open, write, sync, rename and remove are counted; what libraries write
by themselves is not seen.
"""

import builtins
import errno
import io
import os
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
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
    with tempfile.NamedTemporaryFile("w+", encoding="utf-8") as log:
        shim = Shim(folder, "", None, log)
        end = forked(lambda: (shim.install(), job(), log.flush()))
        if end.code:
            raise RuntimeError(end.told)
        lines = Path(log.name).read_text(encoding="utf-8").splitlines()
    found = (line.split(" ", 3) for line in lines)
    return [Point(call, int(number), makes == "True", told) for call, number, makes, told in found]


def run(job: Job, folder: Path, kind: str, point: Point) -> End:
    """Runs the job with a fault at that point."""
    shim = Shim(folder, kind, point)
    end = forked(lambda: (shim.install(), job()))
    return end._replace(
        came=end.code == -signal.SIGKILL if kind == "kill" else "INJECTED" in end.told
    )


def forked(job: Job) -> End:
    """In a child that has all that was imported here."""
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as told:
        child = os.fork()
        if child == 0:
            _child(job, told.fileno())
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        told.seek(0)
        return End(code, False, told.read().decode("utf-8", "replace"))


def _child(job: Job, told: int) -> None:
    code = 1
    try:
        os.dup2(told, 1)
        os.dup2(told, 2)
        sys.stdout, sys.stderr = (
            os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2)
        )
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
