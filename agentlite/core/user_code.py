"""The user's functions, run in a child process that may raise, hang, print or die."""

import contextlib
import importlib.util
import inspect
import json
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import msgspec

from agentlite.core import process_guard
from agentlite.core.errors import UserError

LOADING = 60.0  # seconds to start the child and import the user's files
CLOSED = 5.0  # seconds within which a child whose connection is closed should have ended
LONGEST_WAIT = 1e6  # seconds; a socket takes no infinity
LONGEST = 200  # characters of what an exception says
LONGEST_ANSWER = 16 << 20  # bytes
MEMORY = 16.0  # GiB
FORKSERVER = process_guard.AVAILABLE  # macOS has libraries that do not survive a fork
loop: Any = None  # of a child, in which what it awaits runs


class Named(NamedTuple):
    """A function of the user's, or a class: where it stands, as the user wrote it, and its name."""

    file: str
    function: str
    define: str = "def {}(...):"


class Refusal(NamedTuple):
    """What the child could not load: the parts of a UserError."""

    problem: str
    fix: str
    location: str


class LostChildError(Exception):
    """There will be no answer; the text says what the child did."""


class UserCode:
    """Functions of the user's. All run in one child process, which is replaced when it is lost.

    `use` runs in the child: (function, payload) -> (a value that JSON can hold, problem or ""). It
    must be defined at the top of a module, so that the child can import it. `seconds` bound a
    question and its answer together, `memory` (GiB) each process of the child.
    """

    def __init__(
        self,
        named: Sequence[Named],
        use: Callable[[Callable[..., Any], Any], tuple[Any, str]],
        seconds: float,
        memory: float = MEMORY,
    ):
        self.named, self.use, self.seconds, self.memory = named, use, seconds, memory
        self.child: BaseProcess | None = None
        self.questions = 0

    def start(self) -> None:
        """Raises UserError 2 where a file cannot be imported or has no such function."""
        self.socket, theirs = socket.socketpair()
        try:
            with _held_back():
                self.child = self._started(theirs)
            if FORKSERVER:
                socket.send_fds(self.socket, [b"\n"], [2])
            # our copy of the child's end: while it is open, no EOF would say that the child ended
            theirs.close()
            refusal, _ = self._answer(0, time.monotonic() + LOADING)
        except TimeoutError:
            refusal = (
                f"not imported within {LOADING:g} s.",
                "Do less at import.",
                self.named[0].file,
            )
        except LostChildError as lost:
            refusal = (
                f"the process that imports it {lost}.",
                "A script that calls agentlite does so under `if __name__ == '__main__':`.",
                self.named[0].file,
            )
        except BaseException:
            self.stop()
            raise
        if refusal:
            self.stop()
            problem, fix, location = refusal
            raise UserError(problem, fix, location=location)

    def _started(self, theirs: socket.socket) -> BaseProcess:
        """Each child is forked from a clean process that has imported this module already: that
        takes milliseconds, and the start of an interpreter takes a tenth of a second.
        """
        arguments = (theirs, self.named, self.use, self.memory, {**os.environ})
        if FORKSERVER:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload([__name__, self.use.__module__, *_of_main()])
            forked = context.Process(target=_serve, args=arguments, daemon=True)
            # OSError: its socket is a file, and a long TMPDIR makes the path too long
            with contextlib.suppress(OSError):
                forked.start()
                return forked
        spawned = multiprocessing.get_context("spawn").Process(
            target=_serve, args=arguments, daemon=True
        )
        spawned.start()
        return spawned

    def ask(self, function: str, payload: object) -> tuple[Any, str]:
        """What `use` returns; or None and why there is nothing."""
        if self.child is None:
            self.start()
        self.questions += 1
        deadline = time.monotonic() + min(self.seconds, LONGEST_WAIT)
        try:
            with contextlib.suppress(ConnectionError):  # it has ended: the answer says how
                self.socket.settimeout(_left(deadline))
                self.socket.sendall(pickle.dumps((self.questions, function, payload)))
            return self._answer(self.questions, deadline)
        except TimeoutError:
            self.stop()
            return None, f"took longer than {self.seconds:g} s"
        except LostChildError as lost:
            self.stop()
            return None, str(lost)
        except BaseException:  # an interrupt: what is under way is of no use to the next question
            self.stop()
            raise

    def stop(self) -> None:
        if self.child is not None and self.child.pid is not None:
            # alive: the number of a process that has ended may be another's, as its server reaps it
            if process_guard.STOP and self.child.is_alive():
                with contextlib.suppress(OSError):
                    os.kill(self.child.pid, process_guard.STOP)
                    os.kill(self.child.pid, signal.SIGCONT)  # user code may have stopped it
                self.child.join(2 * process_guard.ENDING)
            if self.child.is_alive():
                # Without a guard, its group. OSError: it does not lead one yet. AttributeError: a
                # system without groups.
                with contextlib.suppress(OSError, AttributeError):
                    os.killpg(self.child.pid, signal.SIGKILL)
                # the child too, where it leads no group yet; joined, so that no zombie is left
                self.child.kill()
            self.child.join()
            self.socket.close()
        self.child = None

    def _answer(self, number: int, deadline: float) -> tuple[Any, str]:
        """The child's line about a question. Raises TimeoutError, or LostChildError where there
        will be none: user code can write into the socket too, close it, or end the child.
        """
        line = bytearray()
        while not line.endswith(b"\n"):
            if len(line) > 2 * LONGEST_ANSWER:
                raise LostChildError("wrote without end into the connection of agentlite")
            self.socket.settimeout(_left(deadline))
            try:
                piece = self.socket.recv(1 << 20)
            except ConnectionError:
                piece = b""
            if not piece:
                assert self.child
                self.child.join(CLOSED)
                code = self.child.exitcode
                raise LostChildError(
                    "closed its connection" if code is None else f"ended with exit code {code}"
                )
            line += piece
        try:
            answered, value, problem = msgspec.json.decode(line, type=tuple[int, Any, str])
        except msgspec.DecodeError:
            answered = -1
        if answered != number:
            raise LostChildError("wrote into the connection of agentlite")
        return value, problem


def _of_main() -> list[str]:
    """The modules of this package that the main script imports, as each child imports it again."""
    names = {
        str(getattr(value, "__module__", None) or getattr(value, "__name__", None))
        for value in vars(sys.modules["__main__"]).values()
    }
    return sorted(name for name in names if name.startswith("agentlite."))


def _left(deadline: float) -> float:
    """Seconds until then. Raises TimeoutError."""
    if (left := deadline - time.monotonic()) <= 0:
        raise TimeoutError
    return left


def _serve(
    theirs: socket.socket,
    named: Sequence[Named],
    use: Callable[..., tuple[Any, str]],
    memory: float,
    environment: Mapping[str, str],
) -> None:
    """What the child does, as the leader of a group of its own: a signal to the parent's is the
    parent's to answer. The process that it is forked from may have the environment and the stderr
    of an earlier time: the present ones are sent.
    """
    # ignored first, unblocked last: a signal that waited since the start ends nothing; not by
    # SIG_IGN, which the programs that the user's code starts would inherit
    for number in _ending():
        signal.signal(number, lambda *_: None)
    if hasattr(os, "setsid"):
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ending())
    if FORKSERVER:
        _, (stderr,), *_ = socket.recv_fds(theirs, 1, 1)
        os.dup2(stderr, 2)
        os.close(stderr)
        os.environ.clear()
        os.environ.update(environment)
    if process_guard.AVAILABLE:
        parent = multiprocessing.parent_process()
        assert parent
        process_guard.fork_under_guard(parent.sentinel, theirs.fileno())
        process_guard.limit_memory(memory)
    else:
        threading.Thread(target=end_with_parent, args=(True,), daemon=True).start()
    # what the user's code prints goes to stderr: stdout holds the result of the command
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    loaded = _load(named)
    theirs.sendall(_line(0, None if isinstance(loaded, dict) else loaded, ""))
    if not isinstance(loaded, dict):
        return
    files = {name.function: name.file for name in named}
    questions = theirs.makefile("rb")
    while True:
        try:
            number, function, payload = pickle.load(questions)
        except EOFError:
            return
        theirs.sendall(_answered(number, loaded[function], payload, use, files[function], memory))


def _answered(
    number: int,
    function: Callable[..., object],
    payload: object,
    use: Callable[..., tuple[Any, str]],
    file: str,
    memory: float,
) -> bytes:
    try:
        line = _line(number, *use(function, payload))
        if len(line) > LONGEST_ANSWER:
            line = _line(number, None, f"returned more than {LONGEST_ANSWER >> 20} MiB")
        return line
    except MemoryError as error:
        problem = f"needed more than {memory:g} GiB of memory"
        return _line(number, None, f"{problem} ({file}{_place(error, function, file)})")
    except BaseException as error:
        problem = f"raised {_described(error)} ({file}{_place(error, function, file)})"
        return _line(number, None, problem)


def _line(number: int, value: object, problem: str) -> bytes:
    """One line of JSON. Half a character, as `'\\ud83d'` is, becomes U+FFFD: nothing could store it
    or send it to a model.
    """
    text = json.dumps([number, value, problem], ensure_ascii=False, allow_nan=False)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode() + b"\n"


def awaited(value: object) -> Any:
    """The result of a function that may be `async`, or the items of a generator as a list. All that
    is awaited runs in one loop, so that locks and clients serve from call to call.
    """
    global loop
    if inspect.isgenerator(value):
        return list(value)
    if inspect.isasyncgen(value):
        value = _items(value)
    if not inspect.isawaitable(value):
        return value
    if loop is None:
        import asyncio

        loop = asyncio.new_event_loop()
    return loop.run_until_complete(value)


async def _items(generator: AsyncIterator[object]) -> list[object]:
    return [one async for one in generator]


def end_loop() -> None:
    """Ends what is still under way in the loop. The next value that is awaited begins another."""
    global loop
    if loop is None:
        return
    import asyncio

    if left := asyncio.all_tasks(loop):
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.wait(left))
    loop.close()
    loop = None


def end_with_parent(leads: bool = False) -> None:
    """A process that hangs, or waits for more to do, would outlive a parent that is killed.
    `leads`: its group ends as well.
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
    resource_tracker.ensure_running()  # which lets signals through again once it has started
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ending())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _load(named: Iterable[Named]) -> dict[str, Callable[..., Any]] | Refusal:
    functions: dict[str, Callable[..., Any]] = {}
    modules: dict[str, Any] = {}
    for file, function, define in named:
        if file not in modules:
            try:
                modules[file] = _imported(Path(file).resolve())
            except BaseException as error:
                location = f"{file}{_last_line(error, file)}"
                return Refusal(
                    f"cannot be imported: {_described(error)}.", "Fix the file.", location
                )
        candidate = getattr(modules[file], function, None)
        if not callable(candidate):
            kind = "class" if define.startswith("class") else "function"
            what = f"no {kind}" if candidate is None else f"no {kind}, but something else, called"
            return Refusal(
                f"has {what} {function}.",
                f"Define `{define.format(function)}` in it, or name another.",
                file,
            )
        functions[function] = candidate
    return functions


def _imported(path: Path) -> object:
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


def _described(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException:  # the user's own exception may fail to print
        text = ""
    return one_line(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def one_line(text: str) -> str:
    return " ".join(text.split())[:LONGEST]


def _place(error: BaseException, function: Callable[..., object], file: str) -> str:
    """`:12`, the last line of the user's file on the way to the error; or the function's first, if
    it was not even entered.
    """
    code = getattr(function, "__code__", None)
    return _last_line(error, file) or (f":{code.co_firstlineno}" if code else "")


def _last_line(error: BaseException, file: str) -> str:
    """`:12`, the last line of the user's file on the way to the error; "" if it is on no way."""
    path = str(Path(file).resolve())
    lines = [error.lineno] if isinstance(error, SyntaxError) and error.filename == path else []
    trace: TracebackType | None = error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == path:
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return f":{lines[-1]}" if lines else ""
