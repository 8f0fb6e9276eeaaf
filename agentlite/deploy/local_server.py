"""HTTP for this machine: connections, who may ask, bodies, and a line in the log per request."""

import hmac
import ipaddress
import json
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from urllib.parse import urlsplit

from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.deploy.answer_queue import ClientGone
from agentlite.deploy.openai_api import Refused

HOST = "127.0.0.1"
LOCAL = ("localhost", HOST, "::1")
LONGEST_BODY = 8 << 20
LONGEST_NAME = 200  # characters of a path or a model's name in the log
WAIT = 30.0  # seconds for a client to say what it wants
LINGER = 2.0  # seconds in which a client may end what it sends, behind its answer
GONE = 499  # the status in the log where the client hung up, as nginx writes it


class LocalServer(ThreadingHTTPServer):
    """`token`: what clients must send; "" for none.

    Raises UserError 2 for an address that is missing, or that other machines reach without a
    token; port 0 is one that is free.
    """

    # closing the server waits for no connection: one that a client keeps open would hold it up
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 512  # connections that the system holds until they are accepted

    def __init__(
        self,
        handler: "type[LocalHandler]",
        port: int,
        *,
        host: str = HOST,
        token: str = "",
    ):
        self.host, self.token = host, token
        self.logging = threading.Lock()
        self.is_closing = False
        self.address_family, address = _resolved(host, port)
        self.is_local = ipaddress.ip_address(address[0].partition("%")[0]).is_loopback
        if not (self.is_local or token):
            raise UserError(
                f"other machines can reach {host}, and no token protects the server.",
                "Put a token into an environment variable and name that: --token-env VAR.",
                location="--host",
            )
        try:
            super().__init__(address, handler)
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else "no port"
            raise UserError(
                f"cannot listen on port {port}: {reason}.",
                "Give another one, or --port 0 for any that is free.",
                location="--port",
            ) from error

    @property
    def origin(self) -> str:
        """`http://127.0.0.1:8000`"""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.server_address[1]}"

    def server_bind(self) -> None:
        """Without the look-up of the machine's name, which may take seconds."""
        TCPServer.server_bind(self)

    def server_close(self) -> None:
        """What is being answered ends at its next piece."""
        self.is_closing = True
        super().server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away has nothing to be told."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            self.log(f"{type(error).__name__}: {error}")

    def log(self, text: str) -> None:
        """A line on stderr, whole."""
        with self.logging:
            console.notice(f"serve: {text}")


def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    """The first address of a host. Raises UserError 2."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a host name"
        raise UserError(
            f"{host!r} is not an address of this machine: {reason}.",
            "Leave it out to serve this machine only, or give 0.0.0.0 for every network.",
            location="--host",
        ) from error
    return found[0][0], (found[0][4][0], port, *found[0][4][2:])


class LocalHandler(BaseHTTPRequestHandler):
    """One connection, in a thread of its own."""

    server: LocalServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "agentlite", ""
    timeout = WAIT
    # a body behind its headers would wait until the client has acknowledged these: 40 ms on Linux
    disable_nagle_algorithm = True

    def parse_request(self) -> bool:
        """A body that is announced and not read would be the next request: the connection ends
        behind the answer, unless `body` reads it.
        """
        is_one = super().parse_request()
        self.client_closes = self.close_connection
        if is_one and ("Content-Length" in self.headers or "Transfer-Encoding" in self.headers):
            self.close_connection = True
        return is_one

    def do_GET(self) -> None:
        raise NotImplementedError

    def do_HEAD(self) -> None:
        """As GET; `send_object` leaves the body out."""
        self.do_GET()

    def answered(self, answer: Callable[[], object]) -> None:
        """Answers one request, whatever happens, and logs it."""
        self.started, self.status, self.details = time.monotonic(), 0, dict[str, object]()
        try:
            self.refuse_strangers()
            answer()
        except Refused as refused:
            error = refused.body["error"]
            self.details["refused"] = error["code"] or error["param"] or error["type"]
            self.send_object(refused.status, refused.body, refused.headers)
        except UserError as error:
            self.send_object(500, failed(error).body)
        except (ClientGone, OSError):
            self.status, self.close_connection = GONE, True
        except Exception as error:
            self.close_connection = True
            self.server.log(f"{type(error).__name__}: {error}")
            if not self.status:
                reason = "The server failed; its log says why."
                self.send_object(500, Refused(500, reason, kind="server_error").body)
        finally:
            self._log(f"{self.command} {self.path}")

    def refuse_strangers(self) -> None:
        """A web page that is open here may send requests too; it names itself, or a host that is
        not this one. Where other machines may ask, the token says who is a stranger.
        """
        if self.server.is_local:
            host = _name_of(f"//{self.headers.get('Host') or 'localhost'}")
            origin = self.headers.get("Origin")
            if host not in LOCAL or (origin and _name_of(origin) not in LOCAL):
                raise Refused(
                    403, "This server only answers programs on its own machine.", code="forbidden"
                )

        given = self.headers.get("Authorization", "").encode("utf-8", "replace")
        expected = f"Bearer {self.server.token}".encode()
        is_open = not self.server.token or self.plain_path == "/health"
        if not (is_open or hmac.compare_digest(given, expected)):
            raise Refused(
                401,
                "Send the server's token as the API key (Authorization: Bearer TOKEN).",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    @property
    def plain_path(self) -> str:
        return self.path.partition("?")[0].rstrip("/")

    def body(self) -> bytes:
        """The body of the request. Raises Refused for one that is too long, or ends early."""
        try:
            length = int(self.headers.get("Content-Length", ""))
        except ValueError:
            raise Refused(
                411, "The request does not say how long it is (Content-Length)."
            ) from None
        if not 0 <= length <= LONGEST_BODY:
            raise Refused(413, f"The body of the request is longer than {LONGEST_BODY >> 20} MiB.")
        body = bytearray()
        while len(body) < length:
            if not (piece := self.rfile.read1(min(length - len(body), 1 << 16))):
                raise Refused(400, "The body of the request ends before it should.")
            body += piece
        self.close_connection = self.client_closes or "Transfer-Encoding" in self.headers
        return bytes(body)

    def send_object(
        self, status: int, value: object, headers: Mapping[str, str] | None = None
    ) -> None:
        body = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def is_gone(self) -> bool:
        """Whether nobody listens: the client has hung up, or the server closes."""
        if self.server.is_closing:
            return True
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        try:
            return bool(poll.poll(0)) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def finish(self) -> None:
        """What the client still sends is read for a moment: with a part of a body unread, the
        system would end the connection so that the client never sees its answer.
        """
        super().finish()
        end, left = time.monotonic() + LINGER, LONGEST_BODY
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(LINGER)
            while left > 0 and time.monotonic() < end:
                if not (piece := self.connection.recv(1 << 16)):
                    break
                left -= len(piece)

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        self.status = int(code)

    def _log(self, requested: str) -> None:
        """What was asked and how long it took, in one line."""
        known = "".join(f" {name}={value}" for name, value in self.details.items())
        self.server.log(
            f"{time.strftime('%Y-%m-%d %H:%M:%S')} {self.client_address[0]} {self.status} "
            f"{time.monotonic() - self.started:.2f} s {one_line(requested)}{known}"
        )

    def log_message(self, format: str, *args: object) -> None:
        """A connection that said nothing in time; every request has its line in the log."""


def one_line(text: str) -> str:
    """The beginning of a text, with what a terminal would obey as escapes."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode()
        for sign in text[:LONGEST_NAME]
    )


def _name_of(url: str) -> str | None:
    """The host in a URL; None if there is none."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def failed(error: UserError) -> Refused:
    """An error of this machine's, as an answer."""
    return Refused(500, str(error).replace("\n", " "), kind="server_error")
