"""The client against raw sockets: deadlines, limits, proxies and hostile replies."""

import contextlib
import email.utils
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from agentlite.core import openai_client
from agentlite.core.errors import UserError
from agentlite.core.openai_client import LONGEST_REPLY, Endpoint, Reply, ask

Serve = Callable[[socket.socket, int], None]
COMPLETION = json.dumps({"choices": [{"message": {"content": "Yes."}}]}).encode()


def response(status: str, content: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(content)}", "", ""]
    return "\r\n".join(lines).encode() + content


class Requests(list[bytes]):
    url = ""


@contextmanager
def serving(serve: Serve) -> Iterator[Requests]:
    """Gives each connection, once its request is read, to `serve` with its number from 0."""
    requests = Requests()

    def connection(client: socket.socket, number: int) -> None:
        with client, contextlib.suppress(OSError):  # the client may go away first
            serve(client, number)

    def listen() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            request = client.recv(1 << 16)
            length = int(request.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            while len(request.partition(b"\r\n\r\n")[2]) < length:
                request += client.recv(1 << 16)
            requests.append(request)
            arguments = (client, len(requests) - 1)
            threading.Thread(target=connection, args=arguments, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        requests.url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        threading.Thread(target=listen, daemon=True).start()
        yield requests
        server.shutdown(socket.SHUT_RDWR)


def asked(requests: Requests, **options: float) -> Reply:
    endpoint = Endpoint(requests.url, "m", "NO_SUCH_KEY", **{"pause": 0.01, "tries": 1, **options})
    return ask(endpoint, [{"role": "user", "content": "Rain?"}], {}, threading.Event())


def drip(client: socket.socket, content: bytes) -> None:
    for byte in content:
        client.sendall(bytes([byte]))
        time.sleep(0.05)


SLOW = {
    "nothing": lambda client: time.sleep(5),
    "headers": lambda client: drip(client, b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100),
    "body": lambda client: (
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"),
        drip(client, b" " * 100),
    ),
}


@pytest.mark.parametrize("what", SLOW)
def test_a_try_ends_in_time_however_slowly_a_server_drips(what):
    with serving(lambda client, number: SLOW[what](client)) as requests:
        begun = time.monotonic()
        reply = asked(requests, timeout=0.4)
    assert (reply.problem, reply.silent) == ("timed out", True)
    assert time.monotonic() - begun < 2


def test_a_refusal_whose_body_drips_is_a_refusal_in_time():
    def serve(client: socket.socket, number: int) -> None:
        client.sendall(b"HTTP/1.1 401 No\r\nContent-Length: 100\r\n\r\nbad key")
        drip(client, b" " * 93)

    begun = time.monotonic()
    with serving(serve) as requests, pytest.raises(UserError, match="answered 401: bad key"):
        asked(requests, timeout=0.4)
    assert time.monotonic() - begun < 2


def test_a_wait_until_a_date_is_waited():
    def serve(client: socket.socket, number: int) -> None:
        date = email.utils.formatdate(time.time() + 2, usegmt=True)
        client.sendall(
            response("200 OK", COMPLETION)
            if number
            else response("429 Later", b"", f"Retry-After: {date}")
        )

    with serving(serve) as requests:
        begun = time.monotonic()
        assert asked(requests, tries=2).text == "Yes."
    assert time.monotonic() - begun > 0.9  # a date has whole seconds


def test_what_a_terminal_would_obey_is_not_shown():
    content = "\x1b[2J\x1b]0;owned\x07 no \u202eletters \x9b31m".encode()
    with serving(lambda client, _: client.sendall(response("400 Bad", content))) as requests:
        detail = asked(requests).detail
    assert detail.isprintable() and "no letters" in detail


def test_an_endless_reply_is_left_at_its_limit():
    sent = 0

    def serve(client: socket.socket, number: int) -> None:
        nonlocal sent
        client.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        while True:
            sent += client.send(b"x" * (1 << 16))

    with serving(serve) as requests:
        assert asked(requests, timeout=20).problem == "no chat completion"
        time.sleep(0.2)
    assert sent < LONGEST_REPLY + (8 << 20)  # and what the buffers of the system held


@pytest.mark.parametrize(
    "content",
    [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}"],
    ids=["closed", "no HTTP", "broken off"],
)
def test_what_is_no_whole_response_is_no_connection(content):
    with serving(lambda client, _: client.sendall(content)) as requests:
        assert asked(requests).problem == "no connection"


def test_a_packed_reply_is_neither_asked_for_nor_unpacked():
    packed = response("200 OK", COMPLETION, "Content-Encoding: gzip")
    with serving(lambda client, _: client.sendall(packed)) as requests:
        assert asked(requests).text == "Yes."  # read as it came
    assert b"accept-encoding: identity\r\n" in requests[0].lower()


@pytest.mark.parametrize("variable", ["http_proxy", "all_proxy"])
def test_this_machine_is_reached_directly_and_others_by_the_proxy(monkeypatch, variable):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    answer = response("200 OK", COMPLETION)
    with (
        serving(lambda client, _: client.sendall(answer)) as proxy,
        serving(lambda client, _: client.sendall(answer)) as requests,
    ):
        monkeypatch.setenv(variable, proxy.url.removesuffix("/v1"))
        assert asked(requests).text == "Yes." and len(requests) == 1 and not proxy
        requests.url = "http://models.invalid/v1"
        assert asked(requests).text == "Yes."
        assert proxy[0].startswith(b"POST http://models.invalid/v1/chat/completions ")
        monkeypatch.setenv("no_proxy", "models.invalid")
        assert asked(requests).problem == "no connection"


def test_a_proxy_that_cannot_be_used_is_named_and_its_password_is_not(monkeypatch):
    monkeypatch.setenv("all_proxy", "socks4://me:secret@127.0.0.1:1")
    requests = Requests()
    requests.url = "http://models.invalid/v1"
    with pytest.raises(UserError, match="proxy") as caught:
        asked(requests)
    assert "secret" not in str(caught.value) and "secret" not in repr(caught.value)


def test_waits_double_and_the_last_try_is_followed_by_none(monkeypatch):
    waits: list[float] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            return False

    def refuse(endpoint: Endpoint, body: bytes) -> object:
        raise ConnectionError

    monkeypatch.setattr(openai_client, "_post", refuse)
    monkeypatch.setattr("random.uniform", lambda low, high: 1.0)
    endpoint = Endpoint("http://localhost:1/v1", "m", tries=4, pause=50.0)
    assert ask(endpoint, [], {}, Stop()).silent
    assert waits == [50, 100, openai_client.LONGEST_WAIT]
