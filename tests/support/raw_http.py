"""Requests on one connection, and the answers cut where each says that it ends."""

import re
import socket
from collections.abc import Sequence
from typing import NamedTuple


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def request(
    method: str, path: str, *headers: str, body: bytes = b"", version: str = "1.1"
) -> bytes:
    """A body has its length, unless a header says another."""
    given = [f"Content-Length: {len(body)}"] if body and "Length" not in "".join(headers) else []
    lines = [f"{method} {path} HTTP/{version}", "Host: localhost", *given, *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def answers(address: tuple[str, int], methods: Sequence[str], *requests: bytes) -> list[Answer]:
    """All are sent at once. Raises AssertionError for bytes that belong to no answer."""
    with socket.create_connection(address, timeout=20) as client:
        client.sendall(b"".join(requests))
        client.shutdown(socket.SHUT_WR)
        left = b"".join(iter(lambda: client.recv(1 << 16), b""))
    found: list[Answer] = []
    while left:
        assert len(found) < len(methods), left
        head, _, rest = left.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        assert re.fullmatch(r"HTTP/1\.1 \d{3} .*", status), left
        headers = dict(line.split(": ", 1) for line in lines)
        length = 0 if methods[len(found)] == "HEAD" else int(headers["Content-Length"])
        assert len(rest) >= length, left
        found.append(Answer(int(status.split()[1]), headers, rest[:length]))
        left = rest[length:]
    return found
