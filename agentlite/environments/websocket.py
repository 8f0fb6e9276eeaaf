"""A WebSocket over httpx: texts to a server and back, as RFC 6455 has it.

It runs in a world's process. Nothing here has a time limit of its own: that of the world holds.
"""

import base64
import contextlib
import hashlib
import os
from itertools import cycle
from typing import Any

from agentlite.core.user_code import LONGEST_ANSWER, one_line
from agentlite.environments.inside import LostWorldError

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # of the RFC: proves that the server knows it
TEXT, CLOSE, PING, PONG = 1, 8, 9, 10
LAST, MASKED = 0x80, 0x80
PIECE = 1 << 16  # bytes that are read at once


class WebSocket:
    """`url`: begins with http:// or https://. All methods raise LostWorldError where the server
    cannot be reached or does not keep to the protocol.
    """

    def __init__(self, url: str):
        import httpcore
        import httpx

        self.errors = (httpx.HTTPError, httpx.InvalidURL, httpcore.NetworkError)
        self.unread = bytearray()
        key = base64.b64encode(os.urandom(16))
        headers = {
            "connection": "Upgrade",
            "upgrade": "websocket",
            "sec-websocket-version": "13",
            "sec-websocket-key": key.decode(),
        }
        with contextlib.ExitStack() as opened:  # a server that refuses is left at once
            try:
                client = opened.enter_context(httpx.Client(timeout=None))
                response = opened.enter_context(client.stream("GET", url, headers=headers))
            except self.errors as error:
                raise LostWorldError(f"the server cannot be reached: {_why(error)}") from error
            accepted = base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()
            if response.status_code != 101:
                raise LostWorldError(f"the server answered {response.status_code} to {url}")
            if response.headers.get("sec-websocket-accept") != accepted:
                raise LostWorldError(f"the server does not speak WebSocket at {url}")
            self.open = opened.pop_all()
        self.stream: Any = response.extensions["network_stream"]

    def send(self, text: str) -> None:
        self._send(TEXT, text.encode())

    def receive(self) -> str:
        """The next text. Raises LostWorldError for one above 16 MiB, too."""
        message = bytearray()
        while True:
            first, payload = self._frame(LONGEST_ANSWER - len(message))
            kind = first & 0x0F
            if kind == CLOSE:
                reason = one_line(payload[2:].decode("utf-8", "replace"))
                raise LostWorldError(f"the server closed the session{reason and f': {reason}'}")
            if kind == PING:
                self._send(PONG, payload)
            elif kind != PONG:
                message += payload
                if first & LAST:
                    return message.decode("utf-8", "replace")

    def close(self) -> None:
        """Tells the server, if it still listens."""
        with contextlib.suppress(LostWorldError):
            self._send(CLOSE, b"\x03\xe8")  # 1000: all is well
        with contextlib.suppress(*self.errors):
            self.open.close()

    def _frame(self, most: int) -> tuple[int, bytes]:
        """The first byte of a frame, and its payload. A length above 125 stands in 2 or 8 bytes of
        its own.
        """
        first, length = self._read(2)
        if length > 125:
            length = int.from_bytes(self._read(2 if length == 126 else 8))
        if length > most:
            limit = LONGEST_ANSWER >> 20
            raise LostWorldError(f"the server answered with more than {limit} MiB")
        return first, self._read(length)

    def _read(self, count: int) -> bytes:
        while len(self.unread) < count:
            try:
                piece = self.stream.read(PIECE)
            except self.errors as error:
                raise LostWorldError(f"the server is gone: {_why(error)}") from error
            if not piece:
                raise LostWorldError("the server ended the connection")
            self.unread += piece
        read = bytes(self.unread[:count])
        del self.unread[:count]
        return read

    def _send(self, kind: int, payload: bytes) -> None:
        """A frame of a client is masked, so that no proxy takes it for a request."""
        size = len(payload)
        if size < 126:
            length = bytes([MASKED | size])
        elif size < 1 << 16:
            length = bytes([MASKED | 126]) + size.to_bytes(2)
        else:
            length = bytes([MASKED | 127]) + size.to_bytes(8)
        mask = os.urandom(4)
        masked = bytes(byte ^ key for byte, key in zip(payload, cycle(mask), strict=False))
        try:
            self.stream.write(bytes([LAST | kind]) + length + mask + masked)
        except self.errors as error:
            raise LostWorldError(f"the server is gone: {_why(error)}") from error


def _why(error: Exception) -> str:
    return one_line(str(error)) or type(error).__name__
