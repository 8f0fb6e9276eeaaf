"""The server with a model that says what the test wants: what it is asked, limits, one answer at a
time.
"""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Parsed
from agentlite.data.openai_messages import Turn
from agentlite.deploy.http_server import LONGEST_BODY, Server
from agentlite.engine.decoding import Decoding

PATH = "/v1/chat/completions"
ASKED = {"messages": [{"role": "user", "content": "Hi"}]}


class Model:
    """Notes what it is asked, and says `pieces`."""

    name, max_length, max_new_tokens = "org/sft", 100, 40

    def __init__(self) -> None:
        self.left, self.pieces, self.failure = 50, ["a", "b"], None
        self.decodings: list[Decoding] = []
        self.offered: list[Any] = []
        self.working = self.most = 0
        self.seconds = 0.0

    def opened(self, messages: Any, tools: Any) -> Any:
        if messages[0]["role"] == "robot":
            raise RowError("E203", "unknown role")
        self.offered.append(tools)
        return SimpleNamespace(ids=[0] * (self.max_length - self.left))

    def least_tokens(self, messages: Any, tools: Any) -> int:
        return len(messages) + len(tools)

    def room(self, dialog: Any) -> int:
        return self.left

    def answer(self, dialog: Any, decoding: Decoding, listener: Any) -> Turn:
        self.working += 1
        self.most = max(self.most, self.working)
        self.decodings.append(decoding)
        time.sleep(self.seconds)
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


@pytest.fixture
def server(model: Model) -> Iterator[Server]:
    with Server(model, 0) as made:  # type: ignore[arg-type]
        thread = threading.Thread(target=lambda: made.serve_forever(0.01))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def post(server: Server, body: Any, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(*server.server_address, timeout=20)
    connection.request("POST", PATH, json.dumps(body), headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, json.loads(content) if not body.get("stream") else content


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, Decoding(40, 0.0, 1.0)),
        ({"max_tokens": 7}, Decoding(7)),
        ({"max_tokens": 7, "max_completion_tokens": 3}, Decoding(3)),
        ({"max_completion_tokens": 7, "max_tokens": 3}, Decoding(7)),
        ({"max_tokens": 1000}, Decoding(50)),
        ({"temperature": 0.5, "top_p": 0.9}, Decoding(40, 0.5, 0.9)),
        ({"stop": ["x"]}, Decoding(40, stops=("x",))),
    ],
)
def test_the_model_is_asked_as_the_request_says_and_within_the_room_that_is_left(
    server, model, fields, expected
):
    status, _ = post(server, ASKED | {"seed": 9} | fields)
    assert status == 200
    assert model.decodings == [expected._replace(seed=9)]


def test_tools_are_offered_unless_the_choice_is_none(server, model):
    tools = [{"type": "function", "function": {"name": "f"}}]
    post(server, ASKED | {"tools": tools})
    post(server, ASKED | {"tools": tools, "tool_choice": "none"})
    assert model.offered == [tools, []]


def test_a_prompt_that_leaves_room_for_one_token_is_answered_and_a_longer_one_is_not(server, model):
    model.left = 1
    assert post(server, ASKED)[0] == 200 and model.decodings[0].max_new_tokens == 1
    model.left = 0
    status, body = post(server, ASKED)
    error = body["error"]
    assert (status, error["code"], error["param"]) == (400, "context_length_exceeded", "messages")
    assert "100 tokens" in error["message"] and len(model.decodings) == 1


def test_more_messages_than_tokens_are_refused_before_they_are_rendered(server, model):
    for count, status in ((99, 200), (100, 400), (60_001, 400)):
        found, body = post(server, {"messages": ASKED["messages"] * count})
        assert found == status and len(model.offered) == 1
    error = body["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
    assert "at least 60001 tokens" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_one_answer_is_made_at_a_time(server, model, stream):
    model.seconds = 0.05
    bodies: list[Any] = []
    threads = [
        threading.Thread(target=lambda: bodies.append(post(server, ASKED | {"stream": stream})))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [status for status, _ in bodies] == [200] * 4
    assert len(model.decodings) == 4 and model.most == 1


def deltas(content: bytes) -> list[Any]:
    lines = [line[6:] for line in content.decode().split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line)["choices"][0]["delta"] for line in lines[:-1]]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ["a", "b"]),
        ({"stop": "x"}, ["ab"]),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, ["ab"]),
    ],
)
def test_words_are_streamed_as_they_come_unless_they_may_be_half_a_call(server, fields, expected):
    status, content = post(server, ASKED | {"stream": True} | fields)
    first, *rest, last = deltas(content)
    assert (status, first, last) == (200, {"role": "assistant", "content": ""}, {})
    assert [delta["content"] for delta in rest] == expected


def test_an_error_of_the_machine_is_one_of_the_server(server, model):
    model.failure = UserError("out of memory.", "Lower it.", exit_code=7)
    for stream in (False, True):
        status, content = post(server, ASKED | {"stream": stream})
        if stream:
            assert status == 200 and b"server_error" in content
        else:
            assert status == 500
            assert content["error"]["message"] == "out of memory. Lower it."
            assert content["error"]["type"] == "server_error"


def test_a_dialog_that_cannot_be_read_is_named_with_its_code(server):
    status, body = post(server, {"messages": [{"role": "robot", "content": "x"}]})
    assert (status, body["error"]["message"]) == (400, "unknown role (E203).")
    assert (body["error"]["param"], body["error"]["code"]) == ("messages", "E203")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "localhost"}, 200),
        ({"Host": "127.0.0.1:1"}, 200),
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


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/health", {"status": "ok"}),
        ("/health/?x=1", {"status": "ok"}),
        (
            "/v1/models/org/sft",
            {"id": "org/sft", "object": "model", "created": 0, "owned_by": "agentlite"},
        ),
    ],
)
def test_pages(server, path, expected):
    connection = http.client.HTTPConnection(*server.server_address, timeout=20)
    connection.request("GET", path)
    answer = connection.getresponse()
    assert answer.status == 200 and json.loads(answer.read()) == expected
    assert answer.headers["Content-Type"] == "application/json"
    connection.request("GET", "/v1/models")
    listed = json.loads(connection.getresponse().read())
    assert listed["object"] == "list" and listed["data"][0]["id"] == "org/sft"
    connection.request("GET", "/nothing")
    missing = connection.getresponse()
    assert missing.status == 404
    assert json.loads(missing.read())["error"]["type"] == "not_found_error"
    connection.close()


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


def test_a_body_that_ends_early_is_refused(server):
    answer = raw(server, head(100) + b"{}", half_close=True)
    assert answer.startswith(b"HTTP/1.1 400 ") and b"ends before it should" in answer


def test_the_longest_body_is_eight_mebibytes(server):
    assert LONGEST_BODY == 8 * 1024 * 1024
    body = json.dumps(ASKED).encode().ljust(LONGEST_BODY)
    answer = raw(server, head(len(body), "Connection: close") + body)
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_a_connection_stays_open_for_the_next_request_unless_the_client_says_close(server):
    body = json.dumps(ASKED).encode()
    one = head(len(body)) + body
    last = head(len(body), "Connection: close") + body
    assert raw(server, one * 2 + last).count(b"HTTP/1.1 200 ") == 3


def test_a_port_that_cannot_be_had_is_named(server, model):
    for port, reason in ((server.server_address[1], "in use"), (70000, "no port")):
        with pytest.raises(UserError, match=f"port {port} cannot be had: .*{reason}") as refused:
            Server(model, port)  # type: ignore[arg-type]
        assert refused.value.location == "--port" and refused.value.exit_code == 2
    assert server.url == f"http://127.0.0.1:{server.server_address[1]}/v1"


@pytest.mark.parametrize(("error", "shown"), [(OSError(), ""), (ValueError("x"), "ValueError: x")])
def test_a_fault_is_noted_and_a_client_that_left_is_not(server, error, shown, capsys):
    try:
        raise error
    except Exception:
        server.handle_error(None, None)
    assert shown in capsys.readouterr().err if shown else capsys.readouterr().err == ""
