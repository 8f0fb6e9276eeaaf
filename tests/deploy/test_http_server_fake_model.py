"""The server with a model that says what the test wants: what it is asked, limits, the queue, who
may ask, the log.
"""

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from support.listening import listen

from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Parsed
from agentlite.data.openai_messages import Turn
from agentlite.deploy.http_server import Server
from agentlite.deploy.local_server import LONGEST_BODY
from agentlite.engine.decoding import Decoding

PATH = "/v1/chat/completions"
IDLE = {"status": "ok", "working": False, "waiting": 0, "longest_queue": 64}
ASKED = {"messages": [{"role": "user", "content": "Hi"}]}


class Model:
    """Notes what it is asked, and says `pieces`."""

    name, max_length, max_new_tokens = "org/sft", 100, 40

    def __init__(self) -> None:
        self.left, self.pieces, self.failure = 50, ["a", "b"], None
        self.decodings: list[Decoding] = []
        self.offered: list[Any] = []
        self.working = self.most = 0
        self.free = threading.Event()  # an answer waits for it, and looks whether it is listened to
        self.free.set()

    def opened(self, messages: Any, tools: Any) -> Any:
        if messages[0]["role"] == "robot":
            raise RowError("E203", "unknown role")
        self.offered.append(tools)
        return SimpleNamespace(ids=[0] * (self.max_length - self.left))

    def least_tokens(self, messages: Any, tools: Any) -> int:
        return len(messages) + len(tools)

    def answer(self, dialog: Any, decoding: Decoding, listener: Any, form: Any) -> Turn:
        self.working += 1
        self.most = max(self.most, self.working)
        self.decodings.append(decoding)
        listened = True
        while listened and not self.free.wait(0.01):
            listened = listener("")
        self.working -= 1
        if self.failure:
            raise self.failure
        for piece in self.pieces:
            listener(piece)
        text = "".join(self.pieces)
        return Turn(text, "turn", Parsed(text), 5, 3)


@pytest.fixture
def model() -> Model:
    return Model()


@contextmanager
def serving(model: Model, **options: Any) -> Iterator[Server]:
    with Server(model, 0, **options) as made:  # type: ignore[arg-type]
        thread = listen(made)
        try:
            yield made
        finally:
            model.free.set()
            made.shutdown()
            thread.join()


@pytest.fixture
def server(model: Model) -> Iterator[Server]:
    with serving(model) as made:
        yield made


def eventually(holds: Callable[[], object]) -> None:
    """Waits for what another thread does, for as long as a busy machine may take."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def post(server: Server, body: Any, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(*server.server_address, timeout=20)
    connection.request("POST", PATH, json.dumps(body), headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, json.loads(content) if not body.get("stream") else content


def health(server: Server) -> Any:
    connection = http.client.HTTPConnection(*server.server_address, timeout=60)
    connection.request("GET", "/health")
    found = json.loads(connection.getresponse().read())
    connection.close()
    return found


def begin(server: Server, body: Any = ASKED) -> socket.socket:
    """A request on its way."""
    content = json.dumps(body).encode()
    client = socket.create_connection(server.server_address, timeout=60)
    client.sendall(head(len(content), "Connection: close") + content)
    return client


def status_of(client: socket.socket) -> int:
    with client:
        return int(b"".join(iter(lambda: client.recv(1 << 16), b"")).split()[1])


@pytest.mark.long
def test_a_client_that_went_away_is_not_worked_for_and_keeps_nobody_waiting(server, model):
    model.free.clear()
    first = begin(server)
    eventually(lambda: server.queue.working)
    second, third = begin(server), begin(server)
    eventually(lambda: server.queue.waiting == 2)
    second.close()
    eventually(lambda: server.queue.waiting == 1)
    first.close()  # in the middle of its answer
    eventually(lambda: len(model.decodings) == 2)
    model.free.set()
    assert status_of(third) == 200 and len(model.decodings) == 2


TOKEN = "0123456789abcdef"


@pytest.mark.parametrize(
    ("path", "given", "status"),
    [
        ("/v1/models", f"Bearer {TOKEN}", 200),
        ("/v1/models", None, 401),
        ("/v1/models", "Bearer", 401),
        ("/v1/models", f"Bearer {TOKEN}x", 401),
        ("/v1/models", f"Bearer {TOKEN[:-1]}", 401),
        ("/v1/models", TOKEN, 401),
        ("/v1/models", "Bearer \xff", 401),
        ("/health", None, 200),
        ("/health/v1/models", None, 401),
    ],
)
def test_a_token_is_asked_of_everybody_on_every_address(model, path, given, status):
    with serving(model, token=TOKEN) as server:
        connection = http.client.HTTPConnection(*server.server_address, timeout=60)
        connection.request("GET", path, headers={"Authorization": given} if given else {})
        answer = connection.getresponse()
        assert answer.status == status
        assert answer.headers["WWW-Authenticate"] == ("Bearer" if status == 401 else None)
        assert TOKEN.encode() not in answer.read()
        connection.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_an_address_of_other_machines_needs_a_token_and_no_host_then(model, host):
    with pytest.raises(UserError, match=r"other machines can reach.*\n.*--token-env") as caught:
        Server(model, 0, host=host)  # type: ignore[arg-type]
    assert caught.value.exit_code == 2
    try:
        Server(model, 0, host=host, token=TOKEN).server_close()  # type: ignore[arg-type]
    except UserError:
        pytest.skip("no such addresses on this machine")
    with serving(model, host=host, token=TOKEN) as server:
        connection = http.client.HTTPConnection(
            "127.0.0.1" if host == "0.0.0.0" else "::1", server.server_address[1], timeout=60
        )
        for key, status in ((f"Bearer {TOKEN}", 200), ("", 401)):
            headers = {"Host": "gpu.example:8000", "Authorization": key}
            connection.request("GET", "/v1/models", headers=headers)
            answer = connection.getresponse()
            assert (answer.status, bool(answer.read())) == (status, True)
        connection.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "localhost"}, 200),
        ({"Host": "127.0.0.1:1"}, 200),
        ({"Host": "[::1]:1"}, 200),
        ({"Host": "LOCALHOST:1"}, 200),
        ({"Host": "[::1"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": "localhost.evil.example:1"}, 403),
        ({"Origin": "http://127.0.0.1:3000"}, 200),
        ({"Origin": "http://localhost"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "file://"}, 403),
    ],
)
def test_a_page_of_another_machine_gets_no_answer(server, model, headers, status):
    found, body = post(server, ASKED, **headers)
    assert found == status and len(model.decodings) == (status == 200)
    if status == 403:
        assert body["error"]["code"] == "forbidden"


def raw(server: Server, request: bytes, half_close: bool = False) -> bytes:
    with socket.create_connection(server.server_address, timeout=20) as client:
        client.sendall(request)
        if half_close:
            client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(1 << 16), b""))


def head(length: object, connection: str = "") -> bytes:
    lines = [f"POST {PATH} HTTP/1.1", "Host: localhost", f"Content-Length: {length}"]
    return "\r\n".join([*lines, *([connection] if connection else []), "", ""]).encode()


@pytest.mark.parametrize(
    ("length", "status"), [(LONGEST_BODY + 1, 413), (-1, 413), ("x", 411), ("", 411)]
)
def test_a_body_of_no_sensible_length_is_refused_and_the_connection_ends(server, length, status):
    answer = raw(server, head(length))
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"Connection: close" in answer
