"""The user's functions, run in a child process that may raise, hang, print or die."""

import contextlib
import importlib.util
import inspect
import json
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentlite.core.console import printable
from agentlite.core.errors import UserError

LOADING_SECONDS = 60.0  # seconds to start the child and import the user's files
CLOSING_SECONDS = 5.0  # seconds within which a child whose connection is closed should have ended
LONGEST_WAIT = 1e6  # seconds; a poll takes no infinity
LONGEST_REASON = 200  # characters of what an exception says
TOOK_LONGER = "took longer than"  # so begins the problem of an answer that did not come in time
MEMORY = 16.0  # GiB
FORKSERVER = sys.platform == "linux"  # macOS has libraries that do not survive a fork
loop: Any = None  # of a child, in which what it awaits runs


class UserFunction(NamedTuple):
    """A function of the user's, or a class: where it stands, as the user wrote it, and its name."""

    file: str
    name: str


class UserCode:
    """Functions of the user's. All run in one child process, which is replaced when it is lost.

    `apply` runs in the child: (function, payload) -> (a value of JSON, problem or ""). It must be
    defined at the top of a module, so that the child can import it. `seconds` bound an answer,
    `memory` (GiB) the child and each process that it starts.
    """

    def __init__(
        self,
        functions: Sequence[UserFunction],
        apply: Callable[[Callable[..., Any], Any], tuple[Any, str]],
        seconds: float,
        memory: float = MEMORY,
    ):
        self.functions, self.apply, self.seconds, self.memory = functions, apply, seconds, memory
        self.child: BaseProcess | None = None

    def start(self) -> None:
        """Raises UserError 2 where a file cannot be imported or has no such function."""
        context: Any = multiprocessing.get_context("forkserver" if FORKSERVER else "spawn")
        if FORKSERVER:  # each child is forked from a process that has imported these already
            context.set_forkserver_preload([__name__, self.apply.__module__])
        self.connection, child_connection = context.Pipe()
        self.child = context.Process(
            target=_serve,
            args=(child_connection, self.functions, self.apply, self.memory, {**os.environ}),
            daemon=True,
        )
        try:
            self.child.start()
            # our copy of the child's end: while it is open, no EOF would say that the child ended
            child_connection.close()
            refusal, problem = self._receive(LOADING_SECONDS)
        except BaseException:
            self.stop()
            raise
        if problem:
            refusal = (
                f"the process that imports it {problem}.",
                "Do less at import. A script that calls agentlite does so under `if __name__ == "
                "'__main__':`.",
                self.functions[0].file,
            )
        if refusal:
            self.stop()
            problem, fix, location = refusal
            raise UserError(problem, fix, location=location)

    def ask(self, name: str, payload: object) -> tuple[Any, str]:
        """What `apply` returns for the function of this name; or None and why there is nothing."""
        if self.child is None:
            self.start()
        try:
            with contextlib.suppress(ConnectionError):  # it has ended: the answer says how
                self.connection.send((name, payload))
            return self._receive(self.seconds)
        except BaseException:  # an interrupt: what is under way is of no use to the next question
            self.stop()
            raise

    def stop(self) -> None:
        if self.child is not None and self.child.pid is not None:
            if self.child.is_alive():
                # OSError: it does not lead a group yet. AttributeError: a system without groups.
                with contextlib.suppress(OSError, AttributeError):
                    os.killpg(self.child.pid, signal.SIGKILL)
                self.child.kill()
            self.child.join()
            self.connection.close()
        self.child = None

    def _receive(self, seconds: float) -> tuple[Any, str]:
        """Where no answer will come, the child is stopped, and the problem says what it did."""
        try:
            if self.connection.poll(min(seconds, LONGEST_WAIT)):
                return msgspec.json.decode(self.connection.recv_bytes(), type=tuple[Any, str])
            problem = f"{TOOK_LONGER} {seconds:g} s"
        except (EOFError, ConnectionError):
            assert self.child
            self.child.join(CLOSING_SECONDS)
            problem = f"ended with exit code {self.child.exitcode}"
        self.stop()
        return None, problem


def _serve(
    connection: Connection,
    user_functions: Sequence[UserFunction],
    apply: Callable[..., tuple[Any, str]],
    memory: float,
    environment: Mapping[str, str],
) -> None:
    """What the child does, as the leader of a group of its own: a signal to the parent's is the
    parent's to answer. The process that it is forked from may have the environment of an earlier
    time: the present one is sent.
    """
    if hasattr(os, "setsid"):
        os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _limit_memory(memory)
    # what the user's code prints goes to stderr: stdout holds the result of the command
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    try:
        functions = _load(user_functions)
    except UserError as error:
        connection.send_bytes(_encode([error.problem, error.fix, error.location], ""))
        return
    connection.send_bytes(_encode(None, ""))
    files = {function.name: function.file for function in user_functions}
    while True:
        try:
            name, payload = connection.recv()
        except EOFError:
            return
        try:
            reply = _encode(*apply(functions[name], payload))
        except BaseException as error:
            file = files[name]
            reply = _encode(None, f"raised {_describe(error)} ({file}{_last_line(error, file)})")
        connection.send_bytes(reply)


def _encode(value: object, problem: str) -> bytes:
    """JSON. Half a character, as `'\\ud83d'` is, becomes U+FFFD: nothing could store it or send it
    to a model.
    """
    text = json.dumps([value, problem], ensure_ascii=False, allow_nan=False)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def _limit_memory(gibibytes: float) -> None:
    """Of private memory, so that what a GPU driver only reserves does not count. Systems other than
    Linux have no such limit.
    """
    if sys.platform == "linux":
        import resource

        size = int(min(gibibytes * 2**30, 2**62))
        _, hard_limit = resource.getrlimit(resource.RLIMIT_DATA)
        if hard_limit == resource.RLIM_INFINITY or size < hard_limit:
            resource.setrlimit(resource.RLIMIT_DATA, (size, size))


def await_result(value: object) -> Any:
    """The result of a function that may be `async`. All that is awaited runs in one loop, so that
    locks and clients serve from call to call.
    """
    global loop
    if not inspect.isawaitable(value):
        return value
    if loop is None:
        import asyncio

        loop = asyncio.new_event_loop()
    return loop.run_until_complete(value)


def _end_with_parent() -> None:
    """A process that hangs, or waits for more to do, would outlive a parent that is killed: its
    group ends with it.
    """
    parent = multiprocessing.parent_process()
    assert parent
    parent.join()
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _load(user_functions: Iterable[UserFunction]) -> dict[str, Callable[..., Any]]:
    """The functions by name. Raises UserError 2."""
    functions: dict[str, Callable[..., Any]] = {}
    modules: dict[str, Any] = {}
    for file, name in user_functions:
        if file not in modules:
            try:
                modules[file] = _import_file(Path(file).resolve())
            except BaseException as error:
                raise UserError(
                    f"cannot be imported: {_describe(error)}.",
                    "Fix the file.",
                    location=f"{file}{_last_line(error, file)}",
                ) from error
        value = getattr(modules[file], name, None)
        if not callable(value):
            raise UserError(
                f"has no function or class {name}.",
                "Define it there, or name another.",
                location=file,
            )
        functions[name] = value
    return functions


def _import_file(path: Path) -> object:
    name = f"user_code_in_{path.stem}"
    while name in sys.modules:  # of another folder: its classes look for their names there
        name += "_"
    spec = importlib.util.spec_from_file_location(name, path)
    if not spec or not spec.loader:
        raise ImportError("it is not a .py file")
    sys.path.insert(0, str(path.parent))  # it may import its neighbours
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _describe(error: BaseException) -> str:
    return one_line(": ".join(filter(None, (type(error).__name__, str(error)))))


def one_line(text: str) -> str:
    return printable(" ".join(text.split()))[:LONGEST_REASON]


def _last_line(error: BaseException, file: str) -> str:
    """`:12`, the last line of the user's file on the way to the error; "" if it is on no way."""
    path = str(Path(file).resolve())
    lines = [error.lineno] if isinstance(error, SyntaxError) and error.filename == path else []
    frames = traceback.extract_tb(error.__traceback__)
    lines += [frame.lineno for frame in frames if frame.filename == path]
    return f":{lines[-1]}" if lines else ""
