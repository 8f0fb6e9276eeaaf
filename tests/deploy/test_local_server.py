"""A connection over which one request follows another: where each answer ends, and who closes."""

import json
from collections.abc import Iterator
from itertools import product
from typing import ClassVar

import pytest
from support.listening import listen
from support.raw_http import answers, request

from agentlite.deploy.local_server import LocalHandler, LocalServer
from agentlite.deploy.openai_api import Refused

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
# a body that would be a request of its own, if it were not read
SMUGGLED = request("GET", "/smuggled")
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(SMUGGLED), SMUGGLED)
BODIES: dict[str, tuple[tuple[str, ...], bytes]] = {
    "none": ((), b""),
    "empty": (("Content-Length: 0",), b""),
    "request": ((), SMUGGLED),
    "chunked": (("Transfer-Encoding: chunked",), CHUNKED),
    "both": (("Transfer-Encoding: chunked", "Content-Length: 5"), CHUNKED),
    "no number": (("Content-Length: x",), SMUGGLED),
    "negative": (("Content-Length: -1",), SMUGGLED),
}
CONNECTIONS = ("", "Connection: close", "Connection: keep-alive")


class Handler(LocalHandler):
    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.answered(lambda: self.send_object(200, {"got": self.path}))

    def do_POST(self) -> None:
        self.answered(self._post)

    def _post(self) -> None:
        if self.path == "/refused":
            raise Refused(404, "There is no such page.")
        if self.path == "/fails":
            raise ZeroDivisionError
        self.send_object(200, {"read": len(self.body())})

    def _log(self, requested: str) -> None:
        self.seen.append(requested)


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer("test", Handler, 0) as made:
        thread = listen(made)
        yield made
        made.shutdown()
        thread.join()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", BODIES)
def test_an_answer_ends_where_it_says_and_no_body_is_the_next_request(
    server: LocalServer, method: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers, body = BODIES[kind]
    for path, connection, version in product(
        ("/", "/refused", "/fails"), CONNECTIONS, ("1.0", "1.1")
    ):
        monkeypatch.setattr(Handler, "seen", seen := list[str]())
        closing = (connection,) if connection else ()
        first = request(method, path, *closing, *headers, body=body, version=version)
        last = request("GET", "/last", "Connection: close")
        one, *more = answers(server.server_address[:2], (method, "GET"), first, last)
        is_read = method == "POST" and path == "/" and kind in ("empty", "request")
        fails = method == "POST" and path == "/fails"
        wants = connection == "Connection: close" or (version == "1.0" and not connection)
        is_closed = wants or fails or not (kind == "none" or is_read)
        assert [other.status for other in more] == ([] if is_closed else [200])
        assert (one.headers.get("Connection") == "close") == is_closed
        assert seen == [f"{method} {path}", *([] if is_closed else ["GET /last"])]
        assert int(one.headers["Content-Length"]) > 0
        if method == "HEAD":
            assert one.body == b"" and one.status == 200
        if is_read:
            assert one.body == b'{"read": %d}' % len(body)


NO_REQUESTS = {
    b"nonsense\r\n\r\n": 400,
    b"GET / HTTP/x\r\n\r\n": 400,
    b"GET / HTTP/2.0\r\n\r\n": 505,
    b"POST /\r\n\r\n": 400,
    b"BREW / HTTP/1.1\r\n\r\n": 501,
    b"GET /%b HTTP/1.1\r\n\r\n" % (b"a" * 70_000): 414,
    b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n": 431,
    b"GET / HTTP/1.1\r\nA: %b\r\n\r\n" % (b"a" * 70_000): 431,
}


@pytest.mark.parametrize(("sent", "status"), NO_REQUESTS.items(), ids=range(len(NO_REQUESTS)))
def test_what_is_no_request_is_refused_as_others_are_noted_and_ends_the_connection(
    server: LocalServer, sent: bytes, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "seen", seen := list[str]())
    (one,) = answers(server.server_address[:2], ("", ""), sent, request("GET", "/next"))
    assert (one.status, one.headers["Connection"]) == (status, "close")
    assert json.loads(one.body)["error"]["type"] == "invalid_request_error"
    assert seen == ["" if status == 414 else sent.partition(b"\r\n")[0].decode()]


def test_a_fault_of_our_own_is_answered_once_and_named_in_the_log(
    server: LocalServer, capsys: pytest.CaptureFixture[str]
) -> None:
    (one,) = answers(server.server_address[:2], ("POST",), request("POST", "/fails", body=b"x"))
    assert one.status == 500 and b"its log says why" in one.body
    assert "test: ZeroDivisionError" in capsys.readouterr().err
