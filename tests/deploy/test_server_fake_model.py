"""The server with a model that says what the test wants: what it is asked, limits, the queue, who
may ask, the log.
"""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from support.processes import waits_until
from support.serving import serving

from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Parsed
from agentlite.data.openai_messages import Turn
from agentlite.deploy.server import Server
from agentlite.engine.decoding import Decoding
from agentlite.rendering import PROTOCOLS

PATH = "/v1/chat/completions"
ASKED = {"messages": [{"role": "user", "content": "Hi"}]}


class Model:
    """Notes what it is asked, and says "ab"."""

    name, max_length, max_new_tokens = "org/sft", 100, 40
    protocol = PROTOCOLS["hermes"]

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.decodings: list[Decoding] = []
        self.working = self.most = 0
        self.free = threading.Event()  # an answer waits for it, and looks whether it is listened to
        self.free.set()

    def open_dialog(self, messages: Any, tools: Any) -> Any:
        if messages[0]["role"] == "robot":
            raise RowError("E203", "unknown role")
        return SimpleNamespace(ids=[0] * 50, text="")

    def answer(self, dialog: Any, decoding: Decoding, listener: Any) -> Turn:
        self.working += 1
        self.most = max(self.most, self.working)
        self.decodings.append(decoding)
        listened = True
        while listened and not self.free.wait(0.01):
            listened = listener("")
        self.working -= 1
        if self.failure:
            raise self.failure
        listener("a")
        listener("b")
        return Turn("ab", "turn", Parsed("ab"), 5, 3)


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def server(model: Model) -> Iterator[Server]:
    with serving(model) as made:
        yield made


def post(server: Server, body: Any, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(*server.address, timeout=20)
    connection.request("POST", PATH, json.dumps(body), headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, json.loads(content) if not body.get("stream") else content


def health(server: Server) -> Any:
    connection = http.client.HTTPConnection(*server.address, timeout=60)
    connection.request("GET", "/health")
    found = json.loads(connection.getresponse().read())
    connection.close()
    return found


def begin(server: Server, body: Any = ASKED) -> socket.socket:
    """A request on its way."""
    content = json.dumps(body)
    client = socket.create_connection(server.address, timeout=60)
    lines = [f"POST {PATH} HTTP/1.1", "Host: localhost", f"Content-Length: {len(content)}"]
    client.sendall("\r\n".join([*lines, "Connection: close", "", content]).encode())
    return client


def status_of(client: socket.socket) -> int:
    with client:
        return int(b"".join(iter(lambda: client.recv(1 << 16), b"")).split()[1])


def wait_for(server: Server, asked: int) -> None:
    assert waits_until(lambda: server.open_requests == asked, 60)


@pytest.mark.long
def test_a_client_that_went_away_is_not_worked_for_and_keeps_nobody_waiting(server, model):
    model.free.clear()
    first = begin(server)
    wait_for(server, 1)
    second = begin(server)
    wait_for(server, 2)
    third = begin(server)
    wait_for(server, 3)
    second.close()
    wait_for(server, 2)
    first.close()  # in the middle of its answer
    assert waits_until(lambda: len(model.decodings) == 2, 60)
    model.free.set()
    assert status_of(third) == 200 and len(model.decodings) == 2


def test_no_client_gets_more_tokens_than_the_server_allows(server, model):
    for fields in ({}, {"max_tokens": 7}, {"max_completion_tokens": 10**30}, {"max_tokens": 41}):
        assert post(server, ASKED | fields)[0] == 200
    assert [one.max_new_tokens for one in model.decodings] == [40, 7, 40, 40]


def test_one_is_answered_and_the_others_wait_in_order(server, model):
    model.free.clear()
    clients = []
    for number in range(3):
        clients.append(begin(server, ASKED | {"max_tokens": number + 1}))
        wait_for(server, number + 1)
    assert health(server) == {"status": "ok", "waiting": 2}
    model.free.set()
    assert [status_of(client) for client in clients] == [200] * 3
    assert [one.max_new_tokens for one in model.decodings] == [1, 2, 3]
    assert model.most == 1 and server.open_requests == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_server_that_stops_ends_the_answer_under_way_and_those_that_wait(model, stream):
    model.free.clear()
    with serving(model) as server:
        first = begin(server, ASKED | {"stream": stream})
        wait_for(server, 1)
        second = begin(server)
        wait_for(server, 2)
        server.stop()
        assert status_of(first) == (200 if stream else 503) and status_of(second) == 503
    assert len(model.decodings) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("failure", "message"),
    [(UserError("no memory", exit_code=7), "no memory"), (ZeroDivisionError("x"), "its log says")],
)
def test_a_failure_is_an_answer_and_the_next_request_is_answered(
    server, model, stream, failure, message, capsys
):
    model.failure = failure
    status, body = post(server, ASKED | {"stream": stream})
    if stream:
        events = [part for part in body.split(b"\n\n") if part]
        body = json.loads(events[-1].removeprefix(b"data: "))
    assert status == (200 if stream else 500)
    assert body["error"]["type"] == "server_error" and message in body["error"]["message"]
    model.failure = None
    assert post(server, ASKED)[0] == 200
    err = capsys.readouterr().err  # the failure is written before the answer
    assert ("ZeroDivisionError: x" in err) == isinstance(failure, ZeroDivisionError)
    assert "Traceback" not in err


def test_every_page_has_its_status_and_every_request_is_a_line(server, caplog):
    caplog.set_level("INFO", "uvicorn.access")
    connection = http.client.HTTPConnection(*server.address, timeout=60)
    for method, path, status in (
        ("GET", "/v1/models/org%2Fsft", 200),
        ("GET", "/v1/models/other/", 404),
        ("PUT", "/v1/models", 405),
        ("GET", "/%0aevil%1b[2J", 404),
        ("HEAD", "/health/", 200),
    ):
        connection.request(method, path)
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == status and ("error" in json.loads(content or "{}")) == (
            status >= 400
        )
        assert answer.headers.get("Allow", "GET, HEAD") in ("GET, HEAD", "HEAD, GET")
    connection.close()
    lines = [one.getMessage() for one in caplog.records if one.name == "uvicorn.access"]
    assert len(lines) == 5 and all(line.isprintable() for line in lines)
    assert lines[0].endswith('"GET /v1/models/org/sft HTTP/1.1" 200')


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost"}, 200),
        ({"Host": "[::1]:1"}, 200),
        ({"Host": "LOCALHOST:1"}, 200),
        ({"Host": "[::1"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": "localhost.evil.example:1"}, 403),
        ({"Origin": "http://localhost"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_a_page_of_another_machine_gets_no_answer(server, model, headers, status):
    found, body = post(server, ASKED, **headers)
    assert found == status and len(model.decodings) == (status == 200)
    if status == 403:
        assert body["error"]["code"] == "forbidden"
