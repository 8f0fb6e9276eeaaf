"""support/processes.py: what a test has started ends with it, and nobody is taken for a server."""

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


def test_a_connection_that_has_met_itself_is_no_server() -> None:
    port = processes.free_port()
    assert not processes.listens(port)
    with socket.create_server(("127.0.0.1", port)):
        assert processes.listens(port)
    with socket.socket() as alone:
        alone.bind(("127.0.0.1", port))
        alone.connect(("127.0.0.1", port))  # as the system may pair them by chance
        assert alone.getsockname() == alone.getpeername()
