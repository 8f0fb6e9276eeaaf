"""Many clients at once, some of them broken: all others are answered, and nothing is left behind.

The whole, 1,000 requests of 20 clients with the memory measured: scripts/bench/faults serve.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.examples import turn
from support.listening import listen
from support.serve_load import load

from agentlite.deploy.chat_model import ChatModel
from agentlite.deploy.http_server import Server


@pytest.fixture(scope="module")
def chat_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> ChatModel:
    run = tmp_path_factory.mktemp("run")
    made = ChatModel(str(tiny_model), run, engine="hf", max_length=512, max_new_tokens=8)
    made.load()
    return made


def eventually(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end, threading.enumerate()
        time.sleep(0.05)


@turn(0, of=2)
def test_the_others_are_answered_and_no_thread_is_left(chat_model, capsys):
    before = threading.active_count()
    with Server(chat_model, 0) as server:
        listening = listen(server)
        try:
            found = load(server.url, requests=80, clients=8)
            eventually(lambda: not server.queue.working)
        finally:
            server.shutdown()
            listening.join()
    eventually(lambda: threading.active_count() <= before)
    assert found.problems == []
    assert found.counts == {"earnest": 71, "malformed": 4, "gone": 4, "huge": 1}
    log = capsys.readouterr().err
    assert log.count("serve: ") == 80 and "Traceback" not in log
