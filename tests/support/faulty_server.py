"""An OpenAI-compatible server that answers, or fails to, in one of many ways; not a test itself."""

import contextlib
import email.utils
import gzip
import hashlib
import json
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

Outcome = Literal["answered", "open", "some open"]
CITIES = ("Oslo", "Paris", "Rome", "Lyon")
ESCAPES = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e"  # what a terminal would obey
PROBE = "Say yes."  # the beginning of the question by which an endpoint is probed


class Request(NamedTuple):
    """`times`: how often this very question came before; `number`: the question, from 0, in the
    order in which they first came; `probe`: it is none of the stage's own. `over` is set at the
    end of the test.
    """

    body: dict[str, Any]
    times: int
    number: int
    key: str
    probe: bool
    over: threading.Event


class Kind(NamedTuple):
    """`outcome`: of a stage that asks it; `url`: in place of the server's own address; `seconds`:
    the deadline of a try.
    """

    outcome: Outcome
    behave: Callable[[socket.socket, Request], None]
    seconds: float = 20.0
    url: str = ""


class FaultyServer:
    """`asked`: how often each question came, in requests; its probes are not counted."""

    def __init__(self, kind: str = "it answers"):
        self.kind = kind
        self.asked: Counter[str] = Counter()
        self._numbers: dict[str, int] = {}
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def url(self) -> str:
        return KINDS[self.kind].url.format(port=self.port) or f"http://127.0.0.1:{self.port}/v1"

    def forget(self) -> None:
        """As if no question had come yet; what ended processes have sent is read before."""
        time.sleep(0.02)
        with self._lock:
            self.asked.clear()
            self._numbers.clear()

    def close(self) -> None:
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connection, args=(client,), daemon=True).start()

    def _connection(self, client: socket.socket) -> None:
        client.settimeout(10)  # nothing here outlives its test by more
        with client, contextlib.suppress(OSError):  # the client may go away first
            body = _read_body(client)
            if body is None:
                return
            key = json.dumps([body["messages"], body.get("seed")], sort_keys=True)
            probe = body["messages"][-1].get("content", "").startswith(PROBE)
            with self._lock:
                if not probe:
                    self._numbers.setdefault(key, len(self._numbers))
                    self.asked[key] += 1
                request = Request(
                    body, self.asked[key] - 1, self._numbers.get(key, 0), key, probe, self._closing
                )
            KINDS[self.kind].behave(client, request)


def _read_body(client: socket.socket) -> dict[str, Any] | None:
    """The JSON of a POST; None for anything else, such as the beginning of TLS."""
    data = client.recv(1 << 16)
    while data.startswith(b"POST") and b"\r\n\r\n" not in data:
        data += client.recv(1 << 16)
    if not data.startswith(b"POST"):
        return None
    head, _, content = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(content) < length:
        content += client.recv(1 << 16)
    return dict(json.loads(content))


# --- what is sent ---


def answer(request: Request) -> dict[str, Any]:
    """A completion that depends on the question alone: a call or words, or the score of a judge."""
    number = int(hashlib.sha256(request.key.encode()).hexdigest(), 16)
    city = CITIES[number % len(CITIES)]
    function = {"name": "get_weather", "arguments": json.dumps({"city": city})}
    message: dict[str, Any] = {"role": "assistant", "content": f"It rains in {city}."}
    if "You grade the answer" in request.key:
        message["content"] = json.dumps({"reason": city, "score": number % 6})
    elif number % 3:
        call = {"id": "call_0", "type": "function", "function": function}
        message |= {"content": None, "tool_calls": [call]}
    return completion(message)


def completion(message: Any, finish: Any = "stop") -> dict[str, Any]:
    usage = {"prompt_tokens": 9, "completion_tokens": 7}
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": usage}


def http(status: str, content: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(content)}", "", ""]
    return "\r\n".join(lines).encode() + content


def good(client: socket.socket, request: Request) -> None:
    client.sendall(http("200 OK", json.dumps(answer(request)).encode()))


# --- the ways ---

Behave = Callable[[socket.socket, Request], None]


def always(status: str, content: bytes | str = b"", *headers: str) -> Behave:
    raw = content.encode() if isinstance(content, str) else content
    return lambda client, request: client.sendall(http(status, raw, *headers))


def once(behave: Behave) -> Behave:
    """At the first try of each question; the second one is answered."""
    return lambda client, request: (good if request.times else behave)(client, request)


def replied(change: Callable[[dict[str, Any]], Any]) -> Behave:
    """200 with an answer that was changed, as JSON."""
    return lambda client, request: client.sendall(
        http("200 OK", json.dumps(change(answer(request))).encode())
    )


def content(text: Any, finish: Any = "stop") -> Behave:
    return replied(lambda _: completion({"role": "assistant", "content": text}, finish))


def drip(head: bytes, byte: bytes) -> Behave:
    """A start, and then a byte at a time for as long as the client listens."""

    def behave(client: socket.socket, request: Request) -> None:
        client.sendall(head)
        while not request.over.wait(0.02):
            client.sendall(byte)

    return behave


def flood(head: bytes, content: bytes) -> Behave:
    def behave(client: socket.socket, request: Request) -> None:
        client.sendall(head)
        while not request.over.is_set():
            client.sendall(content)

    return behave


def hang(client: socket.socket, request: Request) -> None:
    request.over.wait(10)


def raw(content: bytes) -> Behave:
    return lambda client, request: client.sendall(content)


def reset(client: socket.socket, request: Request) -> None:
    """In the middle of the body, by RST."""
    client.sendall(http("200 OK", json.dumps(answer(request)).encode())[:-20])
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def framed(frame: Callable[[bytes], bytes]) -> Behave:
    """The answer as bytes of HTTP in another framing."""
    return lambda client, request: client.sendall(frame(json.dumps(answer(request)).encode()))


def chunked(content: bytes) -> bytes:
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in content)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


def for_one(behave: Behave) -> Behave:
    """For the first question alone."""
    return lambda client, request: (behave if request.number == 0 and not request.probe else good)(
        client, request
    )


def after_two(behave: Behave) -> Behave:
    """Two questions are answered, and none after that."""
    return lambda client, request: (good if request.number < 2 and not request.probe else behave)(
        client, request
    )


def later(*headers: str) -> Behave:
    return once(always("429 Later", b"slow down", *headers))


OK = b"HTTP/1.1 200 OK\r\n"
HTML = "<!DOCTYPE html><html><body>Sign in to the hotel's network</body></html>"
ERROR = json.dumps({"error": {"message": f"overloaded {ESCAPES}", "code": 502}})
PAST = email.utils.formatdate(0, usegmt=True)
SHORT = 0.1  # seconds of a try at servers that never end one

KINDS: dict[str, Kind] = {
    # ends well
    "it answers": Kind("answered", good),
    "503 once": Kind("answered", once(always("503 Busy"))),
    "500 once": Kind("answered", once(always("500 Error", ERROR))),
    "529 once": Kind("answered", once(always("529 Overloaded"))),
    "408 once": Kind("answered", once(always("408 Timeout"))),
    "429 with Retry-After: 0": Kind("answered", later("Retry-After: 0")),
    "429 with Retry-After: 0.01": Kind("answered", later("Retry-After: 0.01")),
    "429 with Retry-After: -5": Kind("answered", later("Retry-After: -5")),
    "429 with Retry-After: soon": Kind("answered", later("Retry-After: soon")),
    "429 with Retry-After: nan": Kind("answered", later("Retry-After: nan")),
    "429 with a date that has passed": Kind("answered", later(f"Retry-After: {PAST}")),
    "429 with the year 99999999999999": Kind(
        "answered", later("Retry-After: Mon, 01 Jan 99999999999999 00:00:00 GMT")
    ),
    "429 with two Retry-After": Kind("answered", later("Retry-After: 0", "Retry-After: 0")),
    "reset in the body, once": Kind("answered", once(reset)),
    "closed without a byte, once": Kind("answered", once(lambda client, request: None)),
    "a page of HTML with 200, once": Kind("answered", once(always("200 OK", HTML))),
    "an error object with 200, once": Kind("answered", once(always("200 OK", ERROR))),
    "an empty text": Kind("answered", content("")),
    "a text that was cut": Kind("answered", content("It rains in", "length")),
    "a thought that was cut, and no text": Kind("answered", content(None, "length")),
    "control characters in the text": Kind("answered", content(f"It rains.{ESCAPES}\0")),
    "half a surrogate pair in the text": Kind("answered", content("It \ud83d rains.")),
    "choices out of order": Kind(
        "answered",
        replied(lambda found: {"choices": [{"index": 1, "message": {}}, *found["choices"]]}),
    ),
    "counts of tokens that are none": Kind(
        "answered", replied(lambda found: {**found, "usage": {"completion_tokens": "\x1b[31m"}})
    ),
    "another content type": Kind(
        "answered",
        framed(lambda found: http("200 OK", found, "Content-Type: text/html; charset=utf-16")),
    ),
    "no length": Kind("answered", framed(lambda found: OK + b"Connection: close\r\n\r\n" + found)),
    "a byte a chunk": Kind("answered", framed(chunked)),
    "a byte order mark": Kind(
        "answered", framed(lambda found: http("200 OK", b"\xef\xbb\xbf" + found))
    ),
    "bytes that are not UTF-8": Kind(
        "answered", framed(lambda found: http("200 OK", found.replace(b"It rains", b"It \xff")))
    ),
    "100 Continue first": Kind(
        "answered", framed(lambda found: b"HTTP/1.1 100 Continue\r\n\r\n" + http("200 OK", found))
    ),
    "bytes after the body": Kind(
        "answered", framed(lambda found: http("200 OK", found) + b"\0\xff")
    ),
    # no question is answered
    "401 with escape sequences": Kind("open", always("401 No", ESCAPES + "bad key")),
    "402": Kind("open", always("402 Pay", ERROR)),
    "403": Kind("open", always("403 No", HTML)),
    "404, as for an unknown model": Kind("open", always("404 No", ERROR)),
    "405": Kind("open", always("405 No")),
    "a redirect": Kind("open", always("307 Moved", b"", "Location: http://127.0.0.1:9/")),
    "304": Kind("open", raw(b"HTTP/1.1 304 Same\r\n\r\n")),
    "101": Kind("open", raw(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n")),
    "400 for everything": Kind("open", always("400 Bad", ERROR)),
    "413 for everything": Kind("open", always("413 Large", HTML)),
    "429 with Retry-After: 86400": Kind("open", always("429 Later", b"", "Retry-After: 86400")),
    "429 with Retry-After: 1e400": Kind("open", always("429 Later", b"", "Retry-After: 1e400")),
    "500 with escape sequences": Kind("open", always("500 Error", ERROR)),
    "503 for everything": Kind("open", always("503 Busy", HTML)),
    "a page of HTML with 200": Kind("open", always("200 OK", HTML)),
    "an error object with 200": Kind("open", always("200 OK", ERROR)),
    "204": Kind("open", raw(b"HTTP/1.1 204 None\r\n\r\n")),
    "no text and no call": Kind("open", content(None)),
    "an answer that ended with an error": Kind("open", content("It rai", "error")),
    "no choices": Kind("open", replied(lambda found: {**found, "choices": []})),
    "choices of null": Kind("open", replied(lambda found: {**found, "choices": None})),
    "a choice without a message": Kind("open", replied(lambda found: {"choices": [{"index": 0}]})),
    "a list": Kind("open", replied(lambda found: [found])),
    "half of a JSON object": Kind(
        "open", framed(lambda found: http("200 OK", found[: len(found) // 2]))
    ),
    "100,000 brackets": Kind("open", always("200 OK", b"[" * 100_000)),
    "a number of 100,000 digits": Kind("open", always("200 OK", b"9" * 100_000)),
    "a stream that nobody asked for": Kind(
        "open", always("200 OK", b'data: {"choices": [{"delta": {"content": "It"}}]}\n\n')
    ),
    "a packed bomb": Kind(
        "open", always("200 OK", gzip.compress(bytes(1 << 24)), "Content-Encoding: gzip")
    ),
    "no HTTP": Kind("open", raw(b"SSH-2.0-OpenSSH_9.6\x1b[2J\r\n")),
    "a status that is none": Kind("open", raw(b"HTTP/1.1 \x1b[2J OK\r\n\r\n")),
    "headers without end": Kind("open", flood(OK, b"X-Header: " + b"x" * 5000 + b"\r\n")),
    "a body without end": Kind("open", flood(OK + b"\r\n", b"x" * (1 << 16))),
    "an error's body without end": Kind(
        "open", flood(b"HTTP/1.1 500 Error\r\n\r\n", b"x" * (1 << 16))
    ),
    "more length than body": Kind("open", raw(OK + b'Content-Length: 99\r\n\r\n{"choices"')),
    "closed without a byte": Kind("open", lambda client, request: None),
    "reset in the body": Kind("open", reset),
    "not a byte": Kind("open", hang, SHORT),
    "headers that drip": Kind("open", drip(OK + b"X: ", b"x"), SHORT),
    "a body that drips": Kind("open", drip(OK + b"Content-Length: 999\r\n\r\n", b" "), SHORT),
    "an error's body that drips": Kind(
        "open", drip(b"HTTP/1.1 500 Error\r\nContent-Length: 999\r\n\r\n", b" "), SHORT
    ),
    "100 Continue without end": Kind("open", flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), SHORT),
    "nobody at the port": Kind("open", good, url="http://127.0.0.1:9/v1"),
    "a host that is unknown": Kind("open", good, url="http://models.invalid/v1"),
    "TLS that the server does not speak": Kind("open", good, url="https://127.0.0.1:{port}/v1"),
    # some questions are answered
    "500 for one prompt": Kind("some open", for_one(always("500 Error", ERROR))),
    "400 for one prompt": Kind("some open", for_one(always("400 Too long", ERROR))),
    "no text for one prompt": Kind("some open", for_one(content(None))),
    "dies after two answers": Kind("some open", after_two(reset)),
    "no credit after two answers": Kind("some open", after_two(always("402 Pay", ERROR))),
}
