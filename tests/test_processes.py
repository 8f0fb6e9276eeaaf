"""support/processes.py: what a test has started ends with it, and nobody is taken for a server."""

import os
import socket
import sys

import pytest
from support import processes


@pytest.mark.long
def test_a_test_that_fails_does_not_wait_for_what_it_has_started() -> None:
    sleeping = [sys.executable, "-c", "import time; time.sleep(600)"]
    with pytest.raises(ZeroDivisionError), processes.start(sleeping) as process:
        raise ZeroDivisionError
    assert process.returncode == -9 and not processes.is_running(process.pid)


GRANDPARENT = """
import os, pathlib
print(pathlib.Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
"""


def server_of(worker: processes.WarmPython, monkeypatch: pytest.MonkeyPatch) -> int:
    """The process id of the light server that forks for this worker."""
    monkeypatch.setattr(processes, "warm", worker)
    program = [sys.executable, "-c", GRANDPARENT]
    done = processes.run(program, server="light", capture_output=True, text=True)
    return int(done.stdout)


@pytest.mark.long
def test_the_workers_of_a_run_share_a_server_which_ends_with_the_last_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", f"a run of {os.getpid()}")
    first, second = processes.WarmPython(), processes.WarmPython()
    server = server_of(first, monkeypatch)
    assert server_of(second, monkeypatch) == server
    first.close()
    assert server_of(second, monkeypatch) == server
    second.close()
    assert processes.waits_until(lambda: not processes.is_running(server))
    third = processes.WarmPython()
    assert server_of(third, monkeypatch) != server
    third.close()


def test_a_connection_that_has_met_itself_is_no_server() -> None:
    port = processes.free_port()
    assert not processes.listens(port)
    with socket.create_server(("127.0.0.1", port)):
        assert processes.listens(port)
    with socket.socket() as alone:
        alone.bind(("127.0.0.1", port))
        alone.connect(("127.0.0.1", port))  # as the system may pair them by chance
        assert alone.getsockname() == alone.getpeername()
