"""The user's functions, run in a child process that may raise, hang, print or die."""

import contextlib
import importlib.util
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from agentlite.core.errors import UserError

LOADING = 60.0  # seconds to start the child and import the user's files
LONGEST = 200  # characters of what an exception says


class Named(NamedTuple):
    """A function of the user's: where it stands, as the user wrote it, and its name."""

    file: str
    function: str


class Refusal(NamedTuple):
    """What the child could not load: the parts of a UserError."""

    problem: str
    fix: str
    location: str


class UserCode:
    """Functions of the user's. All run in one child process, which is replaced when it is lost.

    `use` runs in the child: (function, payload) -> (value to send back, problem or ""). It must be
    defined at the top of a module, so that the child can import it.
    """

    def __init__(
        self,
        named: Sequence[Named],
        use: Callable[[Callable[..., Any], Any], tuple[Any, str]],
        seconds: float,
    ):
        self.named, self.use, self.seconds = named, use, seconds
        self.child: BaseProcess | None = None

    def start(self) -> None:
        """Raises UserError 2 where a file cannot be imported or has no such function."""
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.child = context.Process(
            target=_serve, args=(theirs, self.named, self.use), daemon=True
        )
        try:
            with _held_back():
                self.child.start()
            # our copy of the child's end: while it is open, no EOF would say that the child ended
            theirs.close()
            refusal = self._answer(LOADING)
        except TimeoutError:
            self.stop()
            refusal = Refusal(
                f"not imported within {LOADING:g} s.", "Do less at import.", self.named[0].file
            )
        except EOFError as error:
            refusal = Refusal(
                f"the process that imports it {error}.",
                "A script that calls agentlite does so under `if __name__ == '__main__':`.",
                self.named[0].file,
            )
        if refusal:
            self.stop()
            raise UserError(refusal.problem, refusal.fix, location=refusal.location)

    def ask(self, function: str, payload: object) -> tuple[Any, str]:
        """What `use` returns; or None and why there is nothing."""
        if self.child is None:
            self.start()
        try:
            self.connection.send((function, payload))
            value, problem = self._answer(self.seconds)
            return value, problem
        except TimeoutError:
            self.stop()
            return None, f"took longer than {self.seconds:g} s"
        except (EOFError, OSError) as error:
            self.stop()
            return None, str(error) if isinstance(error, EOFError) else "lost its process"

    def stop(self) -> None:
        if self.child is not None and self.child.pid is not None:
            # The group holds what the child started as well. OSError: it does not lead one yet.
            # AttributeError: a system without groups.
            with contextlib.suppress(OSError, AttributeError):
                os.killpg(self.child.pid, signal.SIGKILL)
            # the child too, where it leads no group yet; joined, so that no zombie is left
            self.child.kill()
            self.child.join()
            self.connection.close()
        self.child = None

    def _answer(self, seconds: float) -> Any:
        """Raises TimeoutError, or EOFError where the child has ended."""
        if not self.connection.poll(seconds):
            raise TimeoutError
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            assert self.child
            self.child.join(1)
            raise EOFError(f"ended with exit code {self.child.exitcode}") from None


def _serve(
    connection: Connection, named: Sequence[Named], use: Callable[..., tuple[Any, str]]
) -> None:
    """What the child does, as the leader of a group of its own: a signal to the parent's is the
    parent's to answer.
    """
    # ignored first, unblocked last: a signal that waited since the start ends nothing
    for number in _ending():
        signal.signal(number, signal.SIG_IGN)
    if hasattr(os, "setsid"):
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ending())
    # what the user's code prints goes to stderr: stdout holds the result of the command
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    threading.Thread(target=end_with_parent, args=(True,), daemon=True).start()
    loaded = _load(named)
    if isinstance(loaded, Refusal):
        return connection.send(loaded)
    connection.send(None)
    files = {name.function: name.file for name in named}
    while True:
        try:
            function, payload = connection.recv()
        except EOFError:
            return
        connection.send(_used(loaded[function], payload, use, files[function]))


def end_with_parent(leads: bool = False) -> None:
    """What hangs, or waits for more to do, would outlive a parent that is killed. `leads`: its
    group ends as well.
    """
    parent = multiprocessing.parent_process()
    assert parent
    parent.join()
    if leads and hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _ending() -> list[signal.Signals]:
    return [
        getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
    ]


@contextmanager
def _held_back() -> Iterator[None]:
    """Signals that come while a child is started reach it when it ignores them, and the parent
    right after.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ending())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _load(named: Iterable[Named]) -> dict[str, Callable[..., Any]] | Refusal:
    functions: dict[str, Callable[..., Any]] = {}
    modules: dict[str, Any] = {}
    for file, function in named:
        if file not in modules:
            try:
                modules[file] = _imported(Path(file).resolve())
            except BaseException as error:
                location = f"{file}{_line(error, file)}"
                return Refusal(
                    f"cannot be imported: {_described(error)}.", "Fix the file.", location
                )
        candidate = getattr(modules[file], function, None)
        if not callable(candidate):
            what = "no function" if candidate is None else "no function, but another thing, called"
            return Refusal(
                f"has {what} {function}.",
                f"Define `def {function}(...):` in it, or name another.",
                file,
            )
        functions[function] = candidate
    return functions


def _imported(path: Path) -> object:
    spec = importlib.util.spec_from_file_location(f"user_code_in_{path.stem}", path)
    if not spec or not spec.loader:
        raise ImportError("it is no .py file")
    sys.path.insert(0, str(path.parent))  # it may import its neighbours
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _used(
    function: Callable[..., object], payload: object, use: Callable[..., tuple[Any, str]], file: str
) -> tuple[object, str]:
    try:
        return use(function, payload)
    except BaseException as error:
        code = getattr(function, "__code__", None)  # its own line where it was not even entered
        line = _line(error, file) or (f":{code.co_firstlineno}" if code else "")
        return None, f"raised {_described(error)} ({file}{line})"


def _described(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # the user's own exception may fail to print
        text = ""
    return one_line(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def one_line(text: str) -> str:
    return " ".join(text.split())[:LONGEST]


def _line(error: BaseException, file: str) -> str:
    """`:12`, the last line of the user's file on the way to the error; "" if it is on no way."""
    path = str(Path(file).resolve())
    lines = [error.lineno] if isinstance(error, SyntaxError) and error.filename == path else []
    trace: TracebackType | None = error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == path:
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return f":{lines[-1]}" if lines else ""
