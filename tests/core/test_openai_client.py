"""The client against raw sockets: deadlines, limits, proxies and hostile replies."""

import contextlib
import email.utils
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agentlite.core import openai_client
from agentlite.core.errors import UserError
from agentlite.core.openai_client import LONGEST_REPLY, Endpoint, Reply, ask, check

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


@pytest.mark.long
@pytest.mark.parametrize("what", SLOW)
def test_a_try_ends_in_time_however_slowly_a_server_drips(what):
    with serving(lambda client, number: SLOW[what](client)) as requests:
        begun = time.monotonic()
        reply = asked(requests, timeout=0.4)
    assert (reply.problem, reply.silent) == ("timed out", True)
    assert time.monotonic() - begun < 2


@pytest.mark.long
def test_a_refusal_whose_body_drips_is_a_refusal_in_time():
    def serve(client: socket.socket, number: int) -> None:
        client.sendall(b"HTTP/1.1 401 No\r\nContent-Length: 100\r\n\r\nbad key")
        drip(client, b" " * 93)

    begun = time.monotonic()
    with serving(serve) as requests, pytest.raises(UserError, match="answered 401: bad key"):
        asked(requests, timeout=0.4)
    assert time.monotonic() - begun < 2


def test_a_failure_whose_body_breaks_off_counts_as_its_status():
    broken = b"HTTP/1.1 503 Busy\r\nContent-Length: 100\r\n\r\nat lunch"
    with serving(lambda client, _: client.sendall(broken)) as requests:
        reply = asked(requests)
    assert (reply.problem, reply.detail, reply.silent) == ("answered 503", "at lunch", True)


def test_an_explanation_that_comes_in_pieces_is_read_whole():
    content = json.dumps({"error": {"message": "too long " + "x" * 1900}}).encode()

    def serve(client: socket.socket, _: int) -> None:
        answer = response("400 Bad", content)
        client.sendall(answer[:-5])
        time.sleep(0.1)
        client.sendall(answer[-5:])

    with serving(serve) as requests:
        assert asked(requests).detail == "too long " + "x" * 191


@pytest.mark.long
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
        assert asked(requests, timeout=20).problem == "sent no chat completion"
        time.sleep(0.2)
    assert sent < LONGEST_REPLY + (64 << 20)  # the buffers of the system hold some as well


@pytest.mark.parametrize(
    "content",
    [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}"],
    ids=["closed", "no HTTP", "broken off"],
)
def test_what_is_no_whole_response_is_no_connection(content):
    with serving(lambda client, _: client.sendall(content)) as requests:
        assert asked(requests).problem == "no connection"


def test_why_there_is_no_connection_is_said_also_where_the_library_does_not():
    def reset(client: socket.socket, _: int) -> None:
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with serving(reset) as requests:
        assert asked(requests).detail
    with socket.create_server(("127.0.0.1", 0)) as listener:
        requests.url = f"https://127.0.0.1:{listener.getsockname()[1]}/v1"
        closing = threading.Thread(target=lambda: listener.accept()[0].close(), daemon=True)
        closing.start()
        detail = asked(requests).detail
        assert "TLS" in detail or "SSL" in detail
    requests.url = "http://127.0.0.1:9/v1"
    assert asked(requests).detail


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
    def refuse(endpoint: Endpoint, body: bytes) -> object:
        raise ConnectionError

    monkeypatch.setattr(openai_client, "_post", refuse)
    monkeypatch.setattr("random.uniform", lambda low, high: 1.0)
    endpoint = Endpoint("http://localhost:1/v1", "m", tries=4, pause=50.0)
    stop = Stop()
    assert ask(endpoint, [], {}, stop).silent
    assert stop.waits == [50, 100, openai_client.LONGEST_WAIT]


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

    def post(endpoint: Endpoint, body: bytes) -> openai_client._Response:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        status, retry_after, content = answer
        return openai_client._Response(status, retry_after, bytearray(content))

    monkeypatch.setattr(openai_client, "_post", post)
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


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_every_status_of_success_holds_a_reply(status, answers):
    answers += [(status, "", COMPLETION)]
    assert ask(HERE, [], {}, Stop()).text == "Yes."


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (TimeoutError(), "timed out"),
        (ConnectionError(), "no connection"),
        ((503, "", b""), "answered 503"),
    ],
)
def test_after_the_last_try_the_endpoint_counts_as_silent(answer, problem, answers):
    answers += [answer] * 4
    stop = Stop()
    assert ask(HERE, [], {}, stop) == Reply("", problem, silent=True)
    if problem == "timed out":  # each could take minutes
        assert len(answers) == 2 and stop.waits == [1.0]
    else:
        assert len(answers) == 1 and stop.waits == [1.0, 2.0]


@pytest.mark.parametrize(
    ("header", "wait"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("2.5", 2.5),
        ("-3", 0.0),
        ("120", openai_client.LONGEST_WAIT),
        ("0.25", 0.25),
        ("nan", 1.0),
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


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("121", "answered 429 and asks to wait 121 s"),
        ("86400", "answered 429 and asks to wait 24.0 h"),
        ("1e400", "answered 429 and asks to wait for months"),
        ("Thu, 01 Jan 1970 01:00:40 GMT", "answered 429 and asks to wait 1.0 h"),
    ],
)
def test_a_longer_wait_than_anybody_has_patience_for_is_not_begun(
    header, problem, answers, monkeypatch
):
    monkeypatch.setattr("time.time", lambda: 40.0)
    answers += [(429, header, b"slow down"), (200, "", COMPLETION)]
    stop = Stop()
    reply = ask(HERE, [], {}, stop)
    assert reply == Reply("", problem, silent=True, detail="slow down")
    assert stop.waits == [] and len(answers) == 1


def test_a_question_that_timed_out_twice_is_not_tried_a_third_time(answers):
    answers += [TimeoutError(), (503, "", b""), TimeoutError(), (200, "", COMPLETION)]
    assert ask(HERE._replace(tries=9), [], {}, Stop()) == Reply("", "timed out", silent=True)
    assert len(answers) == 1


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b'{"error": {"message": "no such model", "code": 1}}', "no such model"),
        (b'{"error": "no such model"}', "no such model"),
        (b'{"message": "no such\\nmodel \\u001b[2J"}', "no such model [2J"),
        (b'{"detail": "x"}', '{"detail": "x"}'),
        (b"[[[", "[[["),
        (b"\xff\x1b]0;a\x07 no", "\ufffd]0;a no"),
    ],
)
def test_what_a_server_explains_is_shown_as_one_printable_line(content, shown, answers):
    answers += [(400, "", content)]
    assert ask(HERE, [], {}, Stop()).detail == shown


def test_a_name_that_is_looked_up_for_long_does_not_hold_a_try(monkeypatch):
    over = threading.Event()
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: over.wait(20) or [])
    requests = Requests()
    requests.url = "http://models.invalid/v1"
    begun = time.monotonic()
    assert asked(requests, timeout=0.1).problem == "timed out"
    assert time.monotonic() - begun < 5
    over.set()


def test_waits_are_spread_so_that_clients_do_not_come_back_together(monkeypatch):
    ranges: list[tuple[float, float]] = []
    monkeypatch.setattr("random.uniform", lambda *given: ranges.append(given) or given[0])
    waits = [openai_client._pause(HERE, trial) for trial in range(3)]
    assert ranges == [(0.75, 1.25)] * 3 and waits == [0.75, 1.5, 3.0]


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
        (completion({"content": 3}), Reply("", "sent no text")),
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
        (completion({"content": None, "tool_calls": {}}), Reply("", "sent no text")),
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


@pytest.mark.parametrize("before", [0, 1, 180, 3990, 3996, 3999, 4000])
@pytest.mark.parametrize("blank", [b" ", b"\n"])
def test_no_part_of_the_key_is_shown_wherever_it_stands(monkeypatch, answers, before, blank):
    monkeypatch.setenv("MY_KEY", "k-123")
    answers += [(400, "", blank * before + b"k-123 is wrong")]
    reply = ask(HERE._replace(key="MY_KEY"), [], {}, Stop())
    assert "k-1" not in reply.detail and "(the key)".startswith(reply.detail[:9])


@pytest.mark.parametrize("sign", ["\0", "\x1b", "\x7f", "\u200b"], ids=ascii)
def test_a_key_that_is_parted_by_what_is_not_printed_is_not_shown_whole(monkeypatch, answers, sign):
    monkeypatch.setenv("MY_KEY", "k-123")
    answers += [(400, "", f"bad {sign.join('k-123')}".encode())]
    assert ask(HERE._replace(key="MY_KEY"), [], {}, Stop()).detail == "bad (the key)"


def test_an_explanation_is_shown_in_part_and_without_the_key(monkeypatch, answers):
    monkeypatch.setenv("MY_KEY", "k-123")
    answers += [(400, "", b"bad k-123 " + b"x" * 500)]
    reply = ask(HERE._replace(key="MY_KEY"), [], {}, Stop())
    assert reply.detail == "bad (the key) " + "x" * 186 and len(reply.detail) == 200


@pytest.mark.parametrize("around", ["x", "x ", "  \n x"])
def test_no_part_of_the_key_is_shown_wherever_an_explanation_is_cut(around, monkeypatch, answers):
    key = "k-0123456789abcdef"
    monkeypatch.setenv("MY_KEY", key)
    for before in range(2 * openai_client.LONGEST_DETAIL):
        text = (around * before)[:before] + key + " " + around * 300
        answers += [(400, "", text.encode())]
        detail = ask(HERE._replace(key="MY_KEY"), [], {}, Stop()).detail
        assert detail and key[:3] not in detail and key[-3:] not in detail


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://h/v1", "http://h/v1/chat/completions"),
        ("http://h/v1/", "http://h/v1/chat/completions"),
        ("http://h/v1/chat/completions", "http://h/v1/chat/completions"),
        ("http://h/v1/chat/completions/", "http://h/v1/chat/completions"),
    ],
)
def test_an_address_is_completed(url, address):
    assert Endpoint(url, "m").address == address


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://localhost:8000/v1", ""),
        ("https://h/v1", ""),
        ("http://h:1/v1", ""),
        ("http://h:0/v1", "not the address of an endpoint"),
        ("http://h:70000/v1", "not the address of an endpoint"),
        ("ftp://h/v1", "not the address of an endpoint"),
        ("localhost:8000/v1", "not the address of an endpoint"),
        ("http:///v1", "not the address of an endpoint"),
        ("http://[h/v1", "not the address of an endpoint"),
        ("http://me@h/v1", "holds a name, a password or a query"),
        ("http://:pw@h/v1", "holds a name, a password or a query"),
        ("http://h/v1?key=1", "holds a name, a password or a query"),
    ],
)
def test_an_address_is_checked_before_anything_is_sent(url, problem):
    endpoint = Endpoint(url, "m", "NO_SUCH_KEY")
    if not problem:
        check(endpoint, "--judge")
        return
    with pytest.raises(UserError, match=problem) as refused:
        check(endpoint, "--judge")
    assert (refused.value.location, refused.value.exit_code) == ("--judge", 2)
    assert "pw" not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "usable"), [("", True), (" sk-1 \n", True), ("schlüssel", False), ("a\tb", False)]
)
def test_a_key_that_cannot_be_sent_is_refused_by_the_name_of_its_variable(key, usable, monkeypatch):
    monkeypatch.setenv("MY_KEY", key)
    endpoint = Endpoint("http://h/v1", "m", "MY_KEY")
    if usable:
        check(endpoint, "--judge")
        return
    with pytest.raises(UserError, match="cannot be sent") as refused:
        check(endpoint, "--judge")
    assert refused.value.location == "MY_KEY"


def test_a_redirect_is_not_followed():
    def move(client: socket.socket, _: int) -> None:
        client.sendall(response("307 Moved", b"", f"Location: {other.url}/chat/completions"))

    with (
        serving(lambda client, _: client.sendall(response("200 OK", COMPLETION))) as other,
        serving(move) as requests,
        pytest.raises(UserError, match="answered 307") as refused,
    ):
        asked(requests)
    assert "redirects" in refused.value.fix and other == []


def test_an_endpoint_is_asked_with_these_limits_where_nothing_else_is_said():
    assert Endpoint("http://h/v1", "m") == Endpoint(
        "http://h/v1", "m", key="OPENAI_API_KEY", timeout=60.0, tries=5, pause=1.0
    )


def test_a_long_reply_is_read_whole_and_a_long_refusal_in_part():
    long = json.dumps({"choices": [{"message": {"content": "x" * 500_000}}]}).encode()
    with serving(lambda client, _: client.sendall(response("200 OK", long))) as requests:
        assert asked(requests).text == "x" * 500_000
    sent = 0

    def refuse(client: socket.socket, _: int) -> None:
        nonlocal sent
        client.sendall(b"HTTP/1.1 400 Bad\r\nConnection: close\r\n\r\n")
        while sent < 1 << 28:
            sent += client.send(b"x" * (1 << 16))

    with serving(refuse) as requests:
        assert asked(requests, timeout=20).detail == "x" * 200
        time.sleep(0.1)
    assert sent < 8 << 20  # what the buffers of the system held
