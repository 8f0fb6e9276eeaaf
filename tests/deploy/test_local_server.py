"""A connection over which one request follows another: where each answer ends, and who closes."""

from collections.abc import Iterator
from itertools import product
from typing import ClassVar

import pytest
from support.listening import listen
from support.raw_http import answers, request

from agentlite.deploy.local_server import LocalHandler, LocalServer
from agentlite.deploy.openai_api import Refused

METHODS = ("GET", "HEAD", "POST")
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
    with LocalServer(Handler, 0) as made:
        thread = listen(made)
        yield made
        made.shutdown()
        thread.join()


@pytest.mark.parametrize("kind", BODIES)
def test_an_answer_ends_where_it_says_and_no_body_is_the_next_request(
    server: LocalServer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers, body = BODIES[kind]
    for method, path, connection, version in product(
        METHODS, ("/", "/refused", "/fails"), CONNECTIONS, ("1.0", "1.1")
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
