"""Many clients of our own server at once: most ask in earnest, some do not; not a test itself."""

import contextlib
import http.client
import json
import random
import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

SECONDS = 300.0  # for one answer, the wait for it included
SAY = {"messages": [{"role": "user", "content": "Is it wet in Oslo?"}]}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 9}},
            "required": ["city"],
        },
    },
}
SCHEMA = {"type": "object", "properties": {"wet": {"type": "boolean"}}, "required": ["wet"]}
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
JSON = {"type": "json_schema", "json_schema": {"name": "wet", "schema": SCHEMA}}
EARNEST: Sequence[tuple[str, dict[str, Any]]] = (
    (CHAT, SAY),
    (CHAT, SAY | {"stream": True}),
    (CHAT, SAY | {"tools": [TOOL]}),
    (CHAT, SAY | {"tools": [TOOL], "tool_choice": "required", "max_tokens": 100}),
    (CHAT, SAY | {"response_format": JSON, "max_tokens": 100}),
    (CHAT, SAY | {"temperature": 1.0, "n": 2, "max_tokens": 4}),
    (TEXT, {"prompt": "Once upon a time", "stream": True}),
)
MALFORMED: Sequence[bytes] = (
    b"",
    b"{",
    b"\xff\xfe",
    b"[" * 50_000,
    b'{"messages": []}',
    b'{"messages": "Hi"}',
    b'{"messages": [{"role": "robot", "content": "x"}]}',
    b'{"messages": [{"role": "user", "content": 5}]}',
    b'{"messages": [{"role": "user", "content": "x"}], "temperature": "hot"}',
    b'{"messages": [{"role": "user", "content": "x"}], "unheard_of": 1}',
    b'{"messages": [{"role": "user", "content": "x"}], "tool_choice": "required"}',
    b'{"messages": [{"role": "user", "content": "<|im_end|>"}]}',
)
HUGE = {"messages": [{"role": ("user", "assistant")[n % 2], "content": "a"} for n in range(60_000)]}


class Load(NamedTuple):
    """`counts`: requests by kind; `problems`: those that were not answered as they should be."""

    counts: Counter[str]
    problems: list[str]


def load(url: str, requests: int, clients: int, seed: int = 0) -> Load:
    """Of every 20 requests one is malformed and one is by a client that goes away in the middle of
    its answer; one in all has 60,000 messages. The rest must be answered in full.
    """
    kinds = ["huge"] * (requests > 1)
    kinds += ["malformed"] * (requests // 20) + ["gone"] * (requests // 20)
    kinds += ["earnest"] * (requests - len(kinds))
    random.Random(seed).shuffle(kinds)
    work = list(enumerate(kinds))
    lock, counts, problems = threading.Lock(), Counter(kinds), list[str]()

    def client() -> None:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=SECONDS)
        while True:
            with lock:
                if not work:
                    break
                number, kind = work.pop()
            try:
                problem = ASKED[kind](connection, number)
            except (OSError, http.client.HTTPException) as error:
                problem = f"{type(error).__name__}: {error}"
                connection.close()
            if problem:
                with lock:
                    problems.append(f"{kind} {number}: {problem}")
        connection.close()

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Load(counts, problems)


def _earnest(connection: http.client.HTTPConnection, number: int) -> str:
    path, body = EARNEST[number % len(EARNEST)]
    status, content = _post(connection, path, json.dumps(body).encode())
    if status != 200:
        return f"{status}: {content[:200]!r}"
    if body.get("stream"):
        return "" if content.endswith(b"data: [DONE]\n\n") else f"ends with {content[-80:]!r}"
    choices = json.loads(content)["choices"]
    if body.get("tool_choice"):
        return "" if choices[0]["message"].get("tool_calls") else f"no call: {choices}"
    if "response_format" in body:
        json.loads(choices[0]["message"]["content"])
    return "" if len(choices) == body.get("n", 1) else f"{len(choices)} answers"


def _malformed(connection: http.client.HTTPConnection, number: int) -> str:
    status, content = _post(connection, CHAT, MALFORMED[number % len(MALFORMED)])
    is_told = status == 400 and json.loads(content)["error"]["message"]
    return "" if is_told else f"{status}: {content[:200]!r}"


def _huge(connection: http.client.HTTPConnection, number: int) -> str:
    status, content = _post(connection, CHAT, json.dumps(HUGE).encode())
    is_told = status == 400 and json.loads(content)["error"]["code"] == "context_length_exceeded"
    return "" if is_told else f"{status}: {content[:200]!r}"


def _gone(connection: http.client.HTTPConnection, number: int) -> str:
    """Two of three hang up behind the first bytes of a stream, the others while they wait."""
    body = json.dumps(SAY | {"stream": True, "temperature": 1.0, "max_tokens": 400}).encode()
    with socket.create_connection((connection.host, connection.port), timeout=SECONDS) as client:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        if number % 3:
            with contextlib.suppress(OSError):
                client.recv(1 << 10)
    return ""


def _post(connection: http.client.HTTPConnection, path: str, body: bytes) -> tuple[int, bytes]:
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read()


ASKED: Mapping[str, Callable[[http.client.HTTPConnection, int], str]] = {
    "earnest": _earnest,
    "malformed": _malformed,
    "gone": _gone,
    "huge": _huge,
}
