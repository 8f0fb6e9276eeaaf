"""A Python that has loaded what is slow to load and forks: a fork runs one program as a new one.

Loading torch, Unsloth and TRL takes ten seconds of a core, and what `prep` needs half of one.
`python -m support.warm_python FD SERVER SCRATCH` loads once what that server is for (see
`LOADERS`), and then takes connections on the listening socket FD, each from a process that runs
tests. The first message on a connection is `READY`. A request is JSON `{"argv", "cwd", "env"}`
with four descriptors: stdin, stdout, stderr, and a socket. The fork's process id
is sent to that socket at once, and its exit status when it has ended. The server ends, and removes
the folder SCRATCH, when the last connection has ended; the forks go on.
"""

import array
import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import selectors
import shutil
import signal
import socket
import sys
import threading
import traceback
from typing import Any, NoReturn, cast

from support import no_disk_waits

MAX_REQUEST = 1 << 20
READY = b"ready"


def _load_light() -> None:
    """Loads the package, without the engine and so without torch, and what it reads rows with."""
    _load_package()
    import httpx  # noqa: F401
    import jinja2.sandbox  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import tokenizers  # noqa: F401

    assert "torch" not in sys.modules, "the light one is for tests of what runs without torch"
    gc.freeze()  # forks then share these pages, and do not search them


def _load_package() -> None:
    """All but the engine, which is loaded after its libraries."""
    import agentlite

    for module in pkgutil.walk_packages(agentlite.__path__, "agentlite."):
        if not module.name.startswith(("agentlite.engine", "agentlite.__main__")):
            importlib.import_module(module.name)
    from agentlite.workspace.input_files import load_template

    load_template("smollm2-135m")  # it keeps the tokenizer, which is that of the tiny model too


def _load_torch() -> None:
    from agentlite.engine import load_libraries

    load_libraries("unsloth")
    import datasets  # noqa: F401
    import sentence_transformers  # noqa: F401
    from support import shared_tokenizers
    from trl import DPOTrainer, GRPOTrainer, SFTTrainer  # noqa: F401  (loaded where first named)

    _load_deepspeed()
    if "AGENTLITE_SIMULATED_CARD" not in os.environ:  # there Unsloth reads in its own way
        _load_package()
        shared_tokenizers.share()
        shared_tokenizers.read_before()
    gc.freeze()  # forks then share these pages, and do not search them


def _load_without_unsloth() -> None:
    import bitsandbytes  # noqa: F401
    import peft  # noqa: F401
    from support import shared_tokenizers
    from trl import DPOTrainer, GRPOTrainer, SFTTrainer  # noqa: F401  (loaded where first named)

    _load_deepspeed()
    shared_tokenizers.share()
    shared_tokenizers.read_before()
    gc.freeze()


def _load_deepspeed() -> None:
    """Where it is installed, accelerate loads it in the first step of each process."""
    with contextlib.suppress(ImportError):
        import deepspeed  # noqa: F401


LOADERS = {
    "light": _load_light,
    "torch": _load_torch,
    "rtx3060": _load_torch,  # as simulated by support.simulated_card
    "no card": _load_without_unsloth,  # with the simulation's packages: 4 bit on a CPU
}


def _serve(listener: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers need no waiting for
    with selectors.DefaultSelector() as waiting:
        waiting.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                connection = cast(socket.socket, key.fileobj)
                if connection is listener:
                    connection, _ = listener.accept()
                    connection.send(READY)
                    waiting.register(connection, selectors.EVENT_READ)
                elif not _take(connection, waiting):
                    waiting.unregister(connection)
                    connection.close()
            if len(waiting.get_map()) == 1:  # the listener alone
                return


def _take(connection: socket.socket, waiting: selectors.BaseSelector) -> bool:
    """Forks for one request; whether there was one."""
    request, ancillary, *_ = connection.recvmsg(MAX_REQUEST, socket.CMSG_SPACE(4 * 4))
    fds = array.array("i")
    for *_, data in ancillary:
        fds.frombytes(data)
    if request and os.fork() == 0:
        for key in [*waiting.get_map().values()]:
            cast(socket.socket, key.fileobj).close()  # or they would outlive the server
        waiting.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _keep(json.loads(request), *fds)
    for fd in fds:
        os.close(fd)
    return bool(request)


def _keep(request: dict[str, Any], stdin: int, stdout: int, stderr: int, report: int) -> NoReturn:
    """Forks the program, and reports how it has ended."""
    with socket.socket(fileno=report) as reports:
        child = os.fork()
        if child == 0:
            for number, fd in enumerate((stdin, stdout, stderr)):
                os.dup2(fd, number)
            _reset_signals()
            reports.send(str(os.getpid()).encode())  # from here on it can be sent signals
            os.closerange(3, max(stdin, stdout, stderr, report) + 1)
            _end(_run(**request))
        for fd in (stdin, stdout, stderr):
            os.close(fd)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        reports.send(str(status).encode())
    os._exit(0)


def _reset_signals() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _run(argv: list[str], cwd: str, env: dict[str, str]) -> int:
    """Runs the program that these arguments of an interpreter name; returns its exit status."""
    os.environ.clear()
    os.environ.update(env)
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False), encoding="utf-8")
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(fd, "w", closefd=False), "utf-8", errors, line_buffering=fd == 2)
        for fd, errors in ((1, "strict"), (2, "backslashreplace"))
    )
    try:
        os.chdir(cwd)
        first, *rest = argv
        if first == "-c":
            sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
            exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
        elif first == "-m":
            sys.argv, sys.path[0] = rest, cwd
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv, sys.path[0] = argv, os.path.dirname(os.path.abspath(first))
            runpy.run_path(first, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _end(status: int) -> NoReturn:
    """Ends as an interpreter does, but does not take apart every module of torch, which takes a
    second.
    """
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    no_disk_waits.install()
    LOADERS[sys.argv[2]]()
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        _serve(listening)
    shutil.rmtree(sys.argv[3], ignore_errors=True)
