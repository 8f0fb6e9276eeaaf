"""OpenAI's API over HTTP: connections, who may ask, the queue for the model, and a log."""

import hmac
import ipaddress
import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from urllib.parse import urlsplit

from agentlite.core import console
from agentlite.core.errors import RowError, UserError
from agentlite.data.openai_messages import Turn
from agentlite.deploy.answer_queue import AnswerQueue, ClientGone, QueueFull
from agentlite.deploy.chat_model import ChatModel
from agentlite.deploy.jobs import CHAT, JOBS, ServeJob
from agentlite.deploy.openai_api import (
    CompletionBody,
    Refused,
    event,
    new_completion,
    until_stops,
)
from agentlite.deploy.saved_dialogs import SavedDialogs, ServedPlace
from agentlite.engine.stream import Listener

HOST = "127.0.0.1"
LOCAL = ("localhost", HOST, "::1")
LONGEST_BODY = 8 << 20
LONGEST_QUEUE = 64
LONGEST_NAME = 200  # characters of a path or a model's name in the log
MOST_CONNECTIONS = 512
WAIT = 30.0  # seconds for a client to say what it wants
LINGER = 2.0  # seconds in which a client may end what it sends, behind its answer
OF_TOOLS = ("E124", "E211", "E212")  # the reject codes of tools; others are of messages
GONE = 499  # the status in the log where the client hung up, as nginx writes it


class Server(ThreadingHTTPServer):
    """`token`: what clients must send as their key; "" for none. `saved`: where dialogs are kept.

    Raises UserError 2 for an address that is missing, or that other machines reach without a
    token; port 0 is one that is free.
    """

    # closing the server waits for no connection: one that a client keeps open would hold it up
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 512  # connections that the system holds until they are accepted

    def __init__(
        self,
        chat_model: ChatModel,
        port: int,
        *,
        host: str = HOST,
        token: str = "",
        longest_queue: int = LONGEST_QUEUE,
        saved: SavedDialogs | None = None,
    ):
        self.chat_model, self.host, self.token = chat_model, host, token
        self.queue = AnswerQueue(longest_queue)
        self.saved = saved
        self.preparing = threading.Lock()  # a template renders for one request at a time
        self.logging = threading.Lock()
        # one thread runs the model: torch and the allocator keep memory for each that ever did
        self.model_thread = ThreadPoolExecutor(1)
        self.is_closing = False
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.address_family, address = _resolved(host, port)
        self.is_local = ipaddress.ip_address(address[0].partition("%")[0]).is_loopback
        if not (self.is_local or token):
            raise UserError(
                f"other machines can reach {host}, and no token protects the server.",
                "Put a token into an environment variable and name that: --token-env VAR.",
                location="--host",
            )
        try:
            super().__init__(address, Handler)
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else "no port"
            raise UserError(
                f"cannot listen on port {port}: {reason}.",
                "Give another one, or --port 0 for any that is free.",
                location="--port",
            ) from error

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.server_address[1]}/v1"

    def server_bind(self) -> None:
        """Without the look-up of the machine's name, which may take seconds."""
        TCPServer.server_bind(self)

    def server_close(self) -> None:
        """The answer under way ends at its next token."""
        self.is_closing = True
        super().server_close()
        self.model_thread.shutdown(wait=False)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            with suppress(OSError):
                request.sendall(BUSY)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away has nothing to be told."""
        import sys

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


class Handler(BaseHTTPRequestHandler):
    """One connection, in a thread of its own."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "agentlite", ""
    timeout = WAIT
    # a body behind its headers would wait until the client has acknowledged these: 40 ms on Linux
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._handled(self._page)

    def do_POST(self) -> None:
        # until the body is read: what is left of it would be the next request
        self.close_connection = True
        self._handled(self._complete)

    def _handled(self, answer: Callable[[], None]) -> None:
        """Answers one request, whatever happens, and logs it."""
        self.started, self.status, self.details = time.monotonic(), 0, dict[str, object]()
        try:
            self._refuse_strangers()
            answer()
        except Refused as refused:
            error = refused.body["error"]
            self.details["refused"] = error["code"] or error["param"] or error["type"]
            self._send(refused.status, refused.body, refused.headers)
        except RowError as error:
            self.details["refused"] = error.code
            reason = f"{error.reason} ({error.code})."
            param = "tools" if error.code in OF_TOOLS else "messages"
            self._send(400, Refused(400, reason, param=param, code=error.code).body)
        except UserError as error:
            self._send(500, _failed(error).body)
        except (ClientGone, OSError):
            self.status, self.close_connection = GONE, True
        except Exception as error:
            self.close_connection = True
            self.server.log(f"{type(error).__name__}: {error}")
            if not self.status:
                reason = "The server failed; its log says why."
                self._send(500, Refused(500, reason, kind="server_error").body)
        finally:
            self._log(f"{self.command} {self.path}")

    def _page(self) -> None:
        name, queue = self.server.chat_model.name, self.server.queue
        model = {"id": name, "object": "model", "created": 0, "owned_by": "agentlite"}
        health = {
            "status": "ok",
            "working": queue.working,
            "waiting": queue.waiting,
            "longest_queue": queue.longest,
        }
        pages: dict[str, Any] = {
            "/health": health,
            "/v1/models": {"object": "list", "data": [model]},
            f"/v1/models/{name}": model,
        }
        self._send(200, pages[self._known(pages)])

    def _refuse_strangers(self) -> None:
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
        is_open = not self.server.token or self._path == "/health"
        if not (is_open or hmac.compare_digest(given, expected)):
            raise Refused(
                401,
                "Send the server's token as the API key (Authorization: Bearer TOKEN).",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    @property
    def _path(self) -> str:
        return self.path.partition("?")[0].rstrip("/")

    def _known(self, paths: Iterable[str]) -> str:
        path = self._path
        if path in JOBS and self.command != "POST":
            raise Refused(405, "Completions are asked for with POST.", headers={"Allow": "POST"})
        if path not in paths:
            raise Refused(
                404, f"There is no {path or '/'}: {', '.join(paths)}.", kind="not_found_error"
            )
        return path

    def _complete(self) -> None:
        body = self._body()
        make = JOBS[self._known(JOBS)]
        chat_model = self.server.chat_model
        self.details["model"] = chat_model.name
        with self.server.preparing:
            job = make(body, chat_model)
            del body
        self.details |= {
            "messages": job.messages,
            "prompt": sum(len(prompt.ids) for prompt in job.prompts),
        }
        about = new_completion(chat_model.name, job.writer.kind)
        place: ServedPlace | None = None
        if self.server.saved and job.writer is CHAT:  # a plain text is not a dialog
            job, place = self.server.saved.continued(job, chat_model.max_length)
        if job.request.stream:
            self._stream(job, about, place)
            return
        with self._turn():
            turns = [
                self._answered(job, index, lambda text: not self._gone())
                for index in range(job.answers)
            ]
        self.details["new"] = sum(turn.new_tokens for turn in turns)
        if self._gone():
            raise ClientGone
        for turn in turns:
            self._save(place, job, turn)
        self._send(200, job.writer.response(about, job.request, turns))

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """The model, for one answer."""
        try:
            with self.server.queue.turn(self._gone) as waited:
                self.details["waited"] = f"{waited:.2f}"
                yield
        except QueueFull as full:
            raise Refused(
                503,
                f"{self.server.queue.longest} requests wait already: ask again in about "
                f"{full.seconds} s.",
                code="queue_full",
                kind="server_error",
                headers={"Retry-After": str(full.seconds)},
            ) from full

    def _answered(self, job: ServeJob, index: int, listener: Listener) -> Turn:
        server = self.server
        return server.model_thread.submit(job.answer, server.chat_model, index, listener).result()

    def _save(self, place: ServedPlace | None, job: ServeJob, turn: Turn) -> None:
        """An answer is on the disk before its client has it whole."""
        if self.server.saved and place:
            self.server.saved.save(place, job, turn)

    def _stream(self, job: ServeJob, about: CompletionBody, place: ServedPlace | None) -> None:
        writer, turns, index, written = job.writer, list[Turn](), 0, ""

        def listener(text: str) -> bool:
            nonlocal written
            if self._gone():  # False ends the sampling: the model is free for the next client
                return False
            if text and job.is_wordwise:
                whole = until_stops(written + text, job.request.stops)
                if new := whole[len(written) :]:
                    self._chunks([writer.words(about, index, new)])
                written = whole
            return True

        rest: list[bytes] = []
        with self._turn():
            self._begin()
            try:
                for index in range(job.answers):
                    written = ""
                    self._chunks([*rest, writer.first(about, index)])
                    turns.append(self._answered(job, index, listener))
                    if not self._gone():  # or it is the half of an answer
                        self._save(place, job, turns[-1])
                    rest = [*writer.last(about, index, job.request, turns[-1], written)]
                rest += writer.end(about, job.request, turns)
            except UserError as error:
                rest = [event(_failed(error).body)]
            except Refused as refused:
                rest = [event(refused.body)]
            self.details["new"] = sum(turn.new_tokens for turn in turns)
        # after the model is given back: a client that reads slowly does not hold up the others
        self._chunks(rest)
        self.wfile.write(b"0\r\n\r\n")

    def _body(self) -> bytes:
        try:
            length = int(self.headers.get("Content-Length", ""))
        except ValueError:
            raise Refused(
                411, "The request does not say how long it is (Content-Length)."
            ) from None
        if not 0 <= length <= LONGEST_BODY:
            raise Refused(413, f"The body of the request is longer than {LONGEST_BODY >> 20} MiB.")
        body, deadline = bytearray(), time.monotonic() + WAIT
        while len(body) < length:
            if not (piece := self.rfile.read1(min(length - len(body), 1 << 16))):
                raise Refused(400, "The body of the request ends before it should.")
            body += piece
            if time.monotonic() > deadline:
                raise Refused(408, f"The body of the request took longer than {WAIT:g} s.")
        self.close_connection = self.headers.get("Connection", "").lower() == "close"
        return bytes(body)

    def _begin(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunks(self, events: Iterable[bytes]) -> None:
        """Each in a frame of HTTP's; an empty one would end them."""
        for data in filter(None, events):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _send(
        self, status: int, value: dict[str, Any], headers: Mapping[str, str] | None = None
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
        self.wfile.write(body)

    def _gone(self) -> bool:
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

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Sends the library's errors about a request in the same form as all others."""
        self.started, self.details, self.close_connection = time.monotonic(), {}, True
        self._send(code, Refused(code, message or "This is not a request.").body)
        self._log(self.requestline)

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


def _failed(error: UserError) -> Refused:
    return Refused(500, str(error).replace("\n", " "), kind="server_error")


def _busy() -> bytes:
    """The answer where there are too many connections, written before any request is read."""
    body = json.dumps(
        Refused(503, "Too many connections.", code="too_many", kind="server_error").body
    ).encode()
    lines = [
        "HTTP/1.1 503 Service Unavailable",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Retry-After: 1",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


BUSY = _busy()
