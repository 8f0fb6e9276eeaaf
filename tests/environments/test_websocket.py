"""agentlite.environments.websocket: texts of every length go out and in, as RFC 6455 has it."""

import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentlite.environments import websocket
from agentlite.environments.inside import LostWorldError
from agentlite.environments.websocket import WebSocket

# the length stands in 7 bits up to 125, in 16 behind 126, in 64 behind 127 (section 5.2)
LENGTHS = [(0, 0), (1, 0), (125, 0), (126, 2), (127, 2), (65535, 2), (65536, 8), (65537, 8)]


class Wire:
    """What was written, and what is read in pieces of `most` bytes."""

    def __init__(self, incoming: bytes = b"", most: int = 1):
        self.written, self.incoming, self.most = b"", incoming, most

    def write(self, content: bytes) -> None:
        self.written += content

    def read(self, _: int) -> bytes:
        piece, self.incoming = self.incoming[: self.most], self.incoming[self.most :]
        return piece


def socket_on(wire: Wire) -> WebSocket:
    socket = WebSocket.__new__(WebSocket)
    socket.stream, socket.unread, socket.errors = wire, bytearray(), (OSError,)
    return socket


def head(first: int, size: int, more: int, mask: int = 0) -> bytes:
    short = size if not more else 126 if more == 2 else 127
    return bytes([first, mask | short]) + (size.to_bytes(more) if more else b"")


@pytest.mark.parametrize(("size", "more"), LENGTHS)
def test_a_text_goes_out_in_one_masked_frame(size, more):
    wire, text = Wire(), "ab" * (size // 2) + "c" * (size % 2)
    socket_on(wire).send(text)
    begins = head(0x81, size, more, mask=0x80)
    assert wire.written.startswith(begins)
    mask, payload = wire.written[len(begins) :][:4], wire.written[len(begins) + 4 :]
    assert bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload)).decode() == text


@pytest.mark.parametrize("most", [97, 1 << 16])
@pytest.mark.parametrize(("size", "more"), LENGTHS)
def test_a_text_comes_in_whole_however_it_is_cut(size, more, most):
    payload = b"ab" * (size // 2) + b"c" * (size % 2)
    parts = head(0x01, size, more) + payload + head(0x80, 3, 0) + b"end"
    socket = socket_on(Wire(parts + head(0x81, 4, 0) + b"next", most))
    assert socket.receive() == payload.decode() + "end"
    assert socket.receive() == "next"


def test_a_ping_is_answered_in_kind_and_a_pong_passed_over_also_within_a_text():
    frames = [(0x01, b"one "), (0x89, b"are you there?"), (0x8A, b"yes"), (0x80, b"text")]
    wire = Wire(b"".join(head(first, len(one), 0) + one for first, one in frames))
    assert socket_on(wire).receive() == "one text"
    assert wire.written[:2] == head(0x8A, 14, 0, mask=0x80)
    mask, payload = wire.written[2:6], wire.written[6:]
    assert bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload)) == b"are you there?"


@pytest.mark.parametrize(
    ("incoming", "reason"),
    [
        (head(0x88, 5, 0) + b"\x03\xe8bye", "the server closed the session: bye$"),
        (head(0x88, 2, 0) + b"\x03\xe8", "the server closed the session$"),
        (head(0x88, 0, 0), "the server closed the session$"),
        (head(0x81, 9, 0) + b"half", "the server ended the connection"),
        (b"", "the server ended the connection"),
    ],
)
def test_a_session_that_the_server_ends_says_why(incoming, reason):
    with pytest.raises(LostWorldError, match=reason):
        socket_on(Wire(incoming)).receive()


def test_the_server_hears_that_a_session_ends_and_one_that_is_gone_does_not_matter():
    for is_gone in (False, True):
        wire, closed = Wire(), []
        socket = socket_on(wire)
        socket.open = contextlib.ExitStack()
        socket.open.callback(closed.append, True)
        if is_gone:
            wire.write = lambda _: (_ for _ in ()).throw(OSError("gone"))
        socket.close()
        assert closed == [True]
        assert is_gone or wire.written[:2] == head(0x88, 2, 0, mask=0x80)


@pytest.mark.parametrize("parts", [(11,), (1, 10), (10, 1), (4, 4, 3), (10,), (1, 9), (4, 4, 2)])
def test_a_text_may_be_so_long_in_all_its_frames_and_no_longer(parts, monkeypatch):
    monkeypatch.setattr(websocket, "LONGEST_ANSWER", 10)
    last = len(parts) - 1
    frames = [
        head((at == 0) | 0x80 * (at == last), size, 0) + b"x" * size
        for at, size in enumerate(parts)
    ]
    socket = socket_on(Wire(b"".join(frames)))
    if sum(parts) > 10:
        with pytest.raises(LostWorldError, match="answered with more than"):
            socket.receive()
    else:
        assert socket.receive() == "x" * 10


@pytest.mark.parametrize("answer", ["403 Forbidden", "101 Switching Protocols"])
def test_a_server_that_speaks_otherwise_is_left(answer):
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as thread:

        def serve() -> bytes:
            """All that comes behind the answer, until the client is gone."""
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(10)
                connection.recv(1 << 16)
                connection.sendall(f"HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n".encode())
                return connection.recv(1)

        left = thread.submit(serve)
        with pytest.raises(LostWorldError, match=r"answered 403|does not speak WebSocket") as kept:
            WebSocket(f"http://127.0.0.1:{listener.getsockname()[1]}/ws")
        assert left.result() == b"", kept  # the error, and with it what it has seen, lives on
