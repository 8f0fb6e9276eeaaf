"""The client against raw sockets: deadlines, limits, proxies and hostile replies."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from agentlite.core import openai_client
from agentlite.core.errors import UserError
from agentlite.core.openai_client import Endpoint, Reply, ask

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
    "body": lambda client: (
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"),
        drip(client, b" " * 100),
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("what", SLOW)
def test_a_try_ends_in_time_however_slowly_a_server_drips(what):
    with serving(lambda client, number: SLOW[what](client)) as requests:
        begun = time.monotonic()
        reply = asked(requests, timeout=0.4)
    assert (reply.problem, reply.silent) == ("timed out", True)
    assert time.monotonic() - begun < 2


class Stop(threading.Event):
    """Notes the waits, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        return False


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the endpoint answers to each try, in turn: (status, Retry-After, content) or an
    exception. Those that were used are gone.
    """
    left: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        status, retry_after, content = left.pop(0)
        return httpx.Response(
            status, headers={"Retry-After": retry_after}, stream=httpx.ByteStream(content)
        )

    transport = httpx.MockTransport(answer)
    monkeypatch.setattr(
        openai_client, "_client", lambda endpoint: httpx.Client(transport=transport)
    )
    monkeypatch.setattr("random.uniform", lambda low, high: 1.0)
    return left


HERE = Endpoint("http://localhost:1/v1", "m", "NO_SUCH_KEY", tries=3, pause=1.0)
LATER = (408, 409, 425, 429, 500, 502, 503, 504, 529)
NEVER = (401, 402, 403, 404, 405, 300, 301, 307, 308)
THIS_ONE = (400, 406, 410, 413, 415, 422, 451, 501, 505)


@pytest.mark.parametrize("status", [*LATER, *NEVER, *THIS_ONE])
def test_a_status_is_tried_again_or_costs_the_prompt_or_ends_all(status, answers):
    answers += [(status, "", b"because"), (status, "", b""), (200, "", COMPLETION)]
    stop = Stop()
    if status in NEVER:
        with pytest.raises(UserError, match=f"answered {status}: because") as refused:
            ask(HERE, [], {}, stop)
        assert refused.value.exit_code == 8 and refused.value.fix
        assert len(answers) == 2
    elif status in THIS_ONE:
        reply = ask(HERE, [], {}, stop)
        assert reply == Reply("", f"answered {status}", detail="because")
        assert len(answers) == 2 and not reply.silent
    else:
        assert ask(HERE, [], {}, stop).text == "Yes."
        assert answers == [] and stop.waits == [1.0, 2.0]


@pytest.mark.parametrize(
    ("header", "wait"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("2.5", 2.5),
        ("-3", 0.0),
        ("120", openai_client.LONGEST_WAIT),
        ("0.25", 0.25),
        ("Mon, 01 Jan 99999999999999 00:00:00 GMT", 1.0),
        ("", 1.0),
        ("soon", 1.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 60.0),
        ("Thu, 01 Jan 1970 00:00:10 GMT", 0.0),
    ],
)
def test_the_endpoint_says_how_long_to_wait(header, wait, answers, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 40.0)
    answers += [(429, header, b""), (200, "", COMPLETION)]
    stop = Stop()
    assert ask(HERE, [], {}, stop).text == "Yes." and stop.waits == [wait]


def test_a_stop_ends_the_tries(answers):
    stop = Stop()
    stop.set()
    assert ask(HERE, [], {}, stop) == Reply("", "stopped")
    assert stop.waits == []

    class Later(Stop):
        def wait(self, timeout: float | None = None) -> bool:
            self.set()
            return True

    answers += [(503, "", b""), (200, "", COMPLETION)]
    assert ask(HERE, [], {}, Later()) == Reply("", "answered 503", silent=True)
    assert len(answers) == 1


def completion(message: object = None, **more: object) -> dict[str, object]:
    return {"choices": [{"message": message, **more}]}


@pytest.mark.parametrize(
    ("content", "reply"),
    [
        (
            {
                **completion({"content": "Hi"}, finish_reason="stop"),
                "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
            },
            Reply("Hi", "", 5, 2, finish="stop"),
        ),
        (completion({"content": ""}), Reply("")),
        (completion({"content": None}), Reply("", "sent no text")),
        (completion({"content": 3}), Reply("", "sent no chat completion", silent=True)),
        (completion({}), Reply("", "sent no text")),
        (completion({"content": None}, finish_reason="length"), Reply("", finish="length")),
        (
            completion({"content": "a"}, finish_reason="error"),
            Reply("", "sent an answer that ended with an error", silent=True),
        ),
        (
            {"choices": [{"index": 1}, {"index": 0, "message": {"content": "first"}}]},
            Reply("first"),
        ),
        (completion({"content": None, "tool_calls": [1]}), Reply("", calls=[1])),
        (completion({"content": "a", "tool_calls": []}), Reply("a")),
        (
            {
                **completion({"content": "a"}),
                "usage": {"prompt_tokens": -1, "completion_tokens": "2"},
            },
            Reply("a"),
        ),
        ({**completion({"content": "a"}), "usage": [1]}, Reply("a")),
        ({**completion({"content": "a"}), "usage": {"prompt_tokens": 0}}, Reply("a")),
        (completion("text"), Reply("", "sent no chat completion", silent=True)),
        ({"choices": []}, Reply("", "sent no chat completion", silent=True)),
        ({"choices": {"0": 1}}, Reply("", "sent no chat completion", silent=True)),
        ([], Reply("", "sent no chat completion", silent=True)),
        ("text", Reply("", "sent no chat completion", silent=True)),
    ],
    ids=str,
)
def test_a_reply_holds_text_calls_and_counts_or_says_why_not(content, reply, answers):
    answers += [(200, "", json.dumps(content).encode())]
    found = ask(HERE._replace(tries=1), [], {}, Stop())._replace(detail="")
    assert found._replace(calls=list(found.calls)) == reply._replace(calls=list(reply.calls))


def test_a_request_says_who_asks_and_holds_the_key_trimmed(monkeypatch):
    monkeypatch.setenv("MY_KEY", " k-123\n")
    answer = response("200 OK", COMPLETION)
    with serving(lambda client, _: client.sendall(answer)) as requests:
        endpoint = Endpoint(requests.url, "m", "MY_KEY", tries=1)
        ask(endpoint, [{"role": "user", "content": "Rain?"}], {"top_p": 0.5}, threading.Event())
        monkeypatch.delenv("MY_KEY")
        ask(endpoint, [], {}, threading.Event())
    head, _, body = requests[0].partition(b"\r\n\r\n")
    lines = head.decode().lower().split("\r\n")
    assert lines[0].startswith("post /v1/chat/completions ")
    for line in (
        "authorization: bearer k-123",
        "content-type: application/json",
        "user-agent: agentlite",
    ):
        assert line in lines
    assert json.loads(body) == {
        "model": "m",
        "messages": [{"role": "user", "content": "Rain?"}],
        "top_p": 0.5,
    }
    assert b"authorization" not in requests[1].lower()


def test_an_explanation_is_shown_in_part_and_without_the_key(monkeypatch, answers):
    monkeypatch.setenv("MY_KEY", "k-123")
    answers += [(400, "", b"bad k-123 " + b"x" * 500)]
    reply = ask(HERE._replace(key="MY_KEY"), [], {}, Stop())
    assert reply.detail == "bad (the key) " + "x" * 186 and len(reply.detail) == 200
