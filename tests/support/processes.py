"""agentlite and other programs as processes of their own, new or forked from a warm Python."""

import contextlib
import errno
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from support import simulated_card
from support.samples import ROOT
from support.warm_python import READY

TIMEOUT = 300
Command = Sequence[str | os.PathLike[str]]


def environment() -> dict[str, str]:
    """The variables of a child that imports this checkout and the helpers of the tests."""
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join(
        [*filter(None, [inherited]), *map(str, (ROOT, ROOT / "tests", ROOT / "scripts/bench"))]
    )
    return {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": path, "NO_COLOR": "1"}


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def free_port() -> int:
    """A port for a server that is to be started. It is none of those that the system gives to
    connections: until the server listens, one of them could take it.
    """
    while True:
        port = random.SystemRandom().randrange(20_000, 30_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def listens(port: int) -> bool:
    """Whether a server takes connections on this port of the machine."""
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), 1) as connection,
    ):
        # a port of its own may be given to the connection: then it has met itself, and no server
        return bool(connection.getsockname() != connection.getpeername())
    return False


def waits_until(condition: Callable[[], bool], seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def agentlite(
    *arguments: object, stdin: bytes = b"", cwd: Path | None = None, new: bool = False
) -> subprocess.CompletedProcess[bytes]:
    """Runs one command; fails where it ends with a traceback. `new`: in a new interpreter and not
    in a fork of the warm Python.
    """
    command = [sys.executable, "-m", "agentlite", *map(str, arguments)]
    runs = subprocess.run if new else run
    done = runs(
        command, input=stdin, capture_output=True, cwd=cwd, env=environment(), timeout=TIMEOUT
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done


def run(
    command: Command,
    *,
    input: Any = None,
    capture_output: bool = False,
    text: bool = False,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    timeout: float | None = None,
    server: str = "",
) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run`, by the warm Python.
    `server`: of warm_python.LOADERS, where the test says more than conftest knows.
    """
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} if capture_output else {}
    stdin = None if input is None else subprocess.PIPE
    with start(
        command,
        stdin=stdin,
        text=text,
        cwd=cwd,
        env=env,
        server=server,
        **streams,
    ) as process:
        try:
            stdout, stderr = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def start(command: Command, **settings: Any) -> "WarmProcess":
    """`subprocess.Popen`, by the warm Python."""
    assert command[0] == sys.executable, "only programs of this Python can be forked"
    return WarmProcess([os.fspath(word) for word in command[1:]], **settings)


class WarmPython:
    """The servers of support/warm_python.py, each begun with its first request. The workers of one
    run share them, since loading one takes up to half a minute of a core.
    """

    def __init__(self) -> None:
        self.wanted = "light"  # or "torch": conftest says so, for a test that needs it
        self._controls: dict[str, socket.socket] = {}

    def fork(self, request: dict[str, Any], fds: Sequence[int], server: str) -> socket.socket:
        """The socket that receives the process id and then the exit status."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control = self._server(server or self.wanted)
        with theirs:
            socket.send_fds(control, [json.dumps(request).encode()], [*fds, theirs.fileno()])
        return ours

    def _server(self, name: str) -> socket.socket:
        while name not in self._controls:
            control = _connected(name)
            if control.recv(len(READY)) == READY:  # it may have ended just before: its last
                self._controls[name] = control  # worker was done
        return self._controls[name]

    def close(self) -> None:
        """Leaves its servers, as the end of this process does."""
        while self._controls:
            self._controls.popitem()[1].close()


def _connected(name: str) -> socket.socket:
    """A connection to this run's server of that name, which is begun where there is none."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"process-{os.getpid()}"
    address = f"\0agentlite-tests-{run}-{name}"  # abstract: it is gone with the server
    while True:
        control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            control.connect(address)
        except ConnectionRefusedError:
            control.close()
            _begin_server(name, address)
        else:
            return control


def _begin_server(name: str, address: str) -> None:
    """Unless another worker does so at this moment."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        try:
            listener.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            time.sleep(0.01)
            return
        listener.listen()
        scratch = tempfile.mkdtemp(prefix="agentlite-tests-")
        subprocess.Popen(
            [sys.executable, "-m", "support.warm_python", str(listener.fileno()), name, scratch],
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            env=_server_environment(name, Path(scratch)),
            pass_fds=[listener.fileno()],
        )


def _server_environment(name: str, scratch: Path) -> dict[str, str]:
    if name in ("light", "torch"):
        return {**environment(), "UNSLOTH_COMPILE_LOCATION": str(scratch)}
    card = None if name == "no card" else name
    return simulated_card.environment_with(card, scratch, environment())


warm = WarmPython()


class WarmProcess:
    """A program in a fork of the warm Python, used as `subprocess.Popen` is."""

    def __init__(
        self,
        argv: list[str],
        *,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        text: bool = False,
        cwd: str | os.PathLike[str] | None = None,
        env: dict[str, str] | None = None,
        server: str = "",
    ) -> None:
        self.args, self.returncode = argv, None
        ends = [_ends(number, wanted) for number, wanted in enumerate((stdin, stdout, stderr))]
        request = {
            "argv": argv,
            "cwd": os.fspath(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
        }
        self._report = warm.fork(request, [theirs for _, theirs in ends], server)
        for number, (_, theirs) in enumerate(ends):
            if theirs != number:
                os.close(theirs)
        self.stdin, self.stdout, self.stderr = (
            None if ours is None else _file(ours, mode, text)
            for (ours, _), mode in zip(ends, "wrr", strict=True)
        )
        process_id = self._report.recv(32)
        assert process_id, "the warm Python has ended: see what it wrote to stderr"
        self.pid = int(process_id)

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while the program runs."""
        try:
            return self.wait(timeout=0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._report.settimeout(timeout)
            try:
                status = self._report.recv(32)
            except (BlockingIOError, TimeoutError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self.returncode = int(status)
            self._report.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        """Writes `input`, and returns all of stdout and stderr, each None where it is no pipe."""
        texts: dict[int, Any] = {}
        readers = [
            threading.Thread(target=lambda n=n, s=stream: texts.update({n: s.read()}), daemon=True)
            for n, stream in enumerate((self.stdout, self.stderr), 1)
            if stream is not None
        ]
        for reader in readers:
            reader.start()
        if self.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                if input:
                    self.stdin.write(input)
                self.stdin.close()
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
        return texts.get(1), texts.get(2)

    def __enter__(self) -> "WarmProcess":
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error:
            self.kill()  # a test that has failed does not wait for its server
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()


def _ends(number: int, wanted: int | None) -> tuple[int | None, int]:
    """What the test holds of a stream, and the descriptor for the program."""
    if wanted is None:
        return None, number
    if wanted == subprocess.DEVNULL:
        return None, os.open(os.devnull, os.O_RDWR)
    assert wanted == subprocess.PIPE
    read, write = os.pipe()
    return (write, read) if number == 0 else (read, write)


def _file(fd: int, mode: str, text: bool) -> IO[Any]:
    return os.fdopen(fd, mode, encoding="utf-8") if text else os.fdopen(fd, f"{mode}b")
