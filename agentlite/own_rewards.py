"""`file.py:function` -> a component of the user's own, run in a child process that may raise, hang, print or die."""

import importlib.util
import multiprocessing
import os
import reprlib
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from numbers import Real
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from agentlite.errors import UserError
from agentlite.rewards import COMPONENTS, PENALTIES, Attempt, Component, ComponentError
from agentlite.stages import file_digest

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
    place: str


def function_files(texts: Iterable[str]) -> dict[str, str]:
    """The files of some functions, with their digests. Raises UserError 2 for what names no file or function."""
    return {named.file: file_digest(Path(named.file)) for named in _named(texts)}


class OwnFunctions:
    """The user's functions as components, by name, inside a `with`. All run in one child, replaced when it is lost."""

    def __init__(self, texts: Sequence[str], seconds: float = 10.0):
        self.named, self.seconds = _named(texts), seconds
        self.child: BaseProcess | None = None

    def __enter__(self) -> dict[str, Component]:
        """Raises UserError 2 where a file cannot be imported or has no such function."""
        if self.named:
            self._start()
        return {named.function: partial(self._ask, named.function) for named in self.named}

    def __exit__(self, *error: object) -> None:
        self._stop()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.child = context.Process(target=_serve, args=(theirs, self.named), daemon=True)
        try:
            self.child.start()
            theirs.close()
            refusal = self._answer(LOADING)
        except TimeoutError:
            self._stop()
            refusal = Refusal(f"not imported within {LOADING:g} s.", "Do less at import.", self.named[0].file)
        except EOFError as error:
            refusal = Refusal(f"the process that imports it {error}.", "A script that calls agentlite does so under "
                              "`if __name__ == '__main__':`.", self.named[0].file)  # fmt: skip
        if refusal:
            self._stop()
            raise UserError(refusal.problem, refusal.fix, place=refusal.place)

    def _ask(self, function: str, attempt: Attempt) -> float:
        if self.child is None:
            self._start()
        try:
            self.connection.send((function, attempt))
            value, problem = self._answer(self.seconds)
        except TimeoutError:
            self._stop()
            problem = f"took longer than {self.seconds:g} s"
        except (EOFError, OSError) as error:
            self._stop()
            problem = str(error) if isinstance(error, EOFError) else "lost its process"
        if problem:
            raise ComponentError(f"{function} {problem}")
        return float(value)

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

    def _stop(self) -> None:
        if self.child is not None and self.child.pid is not None:
            self.child.kill()
            self.child.join()
            self.connection.close()
        self.child = None


def _named(texts: Iterable[str]) -> list[Named]:
    found: dict[str, Named] = {}
    for text in texts:
        file, _, function = text.rpartition(":")
        if not file or not function.isidentifier():
            raise UserError(f"'{text}' names no function.", "Write it as file.py:function.", place="rewards")
        if function in COMPONENTS or function in PENALTIES or function in found:
            raise UserError(f"there is another part called {function}.", "Rename the function.", place=text)
        if not Path(file).is_file():
            raise UserError("no such file.", f"Write it as folder/file.py:{function}, seen from here.", place=file)
        found[function] = Named(file, function)
    return list(found.values())


def _serve(connection: Connection, named: Sequence[Named]) -> None:
    """What the child does. A signal to the whole group is the parent's to answer."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    threading.Thread(target=_end_with_parent, daemon=True).start()
    loaded = _load(named)
    if isinstance(loaded, Refusal):
        return connection.send(loaded)
    connection.send(None)
    places = {one.function: one.file for one in named}
    while True:
        try:
            function, attempt = connection.recv()
        except EOFError:
            return
        connection.send(_value(loaded[function], attempt, places[function]))


def _end_with_parent() -> None:
    """A function that hangs would outlive a parent that is killed."""
    parent = multiprocessing.parent_process()
    assert parent
    parent.join()
    os._exit(1)


def _load(named: Iterable[Named]) -> dict[str, Callable[[Attempt], Any]] | Refusal:
    functions: dict[str, Callable[[Attempt], Any]] = {}
    modules: dict[str, Any] = {}
    for file, function in named:
        if file not in modules:
            try:
                modules[file] = _imported(Path(file).resolve())
            except BaseException as error:
                place = f"{file}{_line(error, file)}"
                return Refusal(f"cannot be imported: {_said(error)}.", "Mend the file.", place)
        found = getattr(modules[file], function, None)
        if not callable(found):
            what = "no function" if found is None else "no function, but another thing, called"
            return Refusal(
                f"has {what} {function}.", f"Define `def {function}(attempt):` in it, or name another.", file
            )
        functions[function] = found
    return functions


def _imported(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"own_rewards_in_{path.stem}", path)
    if not spec or not spec.loader:
        raise ImportError("it is no .py file")
    sys.path.insert(0, str(path.parent))  # it may import its neighbours
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _value(function: Callable[[Attempt], Any], attempt: Attempt, file: str) -> tuple[float, str]:
    """What a function returned, and what was wrong with it: all but a number from 0 to 1 is."""
    try:
        value = function(attempt)
        if isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) <= 1:
            return float(value), ""
        return 0.0, f"returned {_line_of(reprlib.repr(value))}, no number from 0 to 1"
    except BaseException as error:
        code = getattr(function, "__code__", None)  # its own line where it was not even entered
        line = _line(error, file) or (f":{code.co_firstlineno}" if code else "")
        return 0.0, f"raised {_said(error)} ({file}{line})"


def _said(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # the user's own exception may fail to print
        text = ""
    return _line_of(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def _line_of(text: str) -> str:
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
