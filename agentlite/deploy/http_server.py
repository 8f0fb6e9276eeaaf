"""OpenAI's chat completions over HTTP, on this machine only, one answer at a time."""

import json
import select
import socket
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from agentlite.core import console
from agentlite.core.errors import RowError, UserError
from agentlite.data.openai_messages import Opened
from agentlite.deploy.chat_model import ChatModel
from agentlite.deploy.openai_api import (
    Refused,
    Request,
    chunk,
    event,
    last_chunks,
    new_completion,
    read_request,
    response,
    seed_of,
)
from agentlite.engine.decoding import Decoding

HOST = "127.0.0.1"
COMPLETIONS = "/v1/chat/completions"
LONGEST_BODY = 8 << 20
WAIT = 30.0  # seconds for a client to say what it wants


class Server(ThreadingHTTPServer):
    """Raises UserError 2 for a port that cannot be had; port 0 is one that is free."""

    # closing the server waits for no connection: one that a client keeps open would hold it up
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, chat_model: ChatModel, port: int):
        self.chat_model, self.turn = chat_model, threading.Lock()
        try:
            super().__init__((HOST, port), Handler)
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else "no port"
            raise UserError(
                f"port {port} cannot be had: {reason}.",
                "Give another one, or --port 0 for any that is free.",
                location="--port",
            ) from error

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}/v1"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away has nothing to be told."""
        import sys

        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            console.notice(f"serve: {type(error).__name__}: {error}")


class Handler(BaseHTTPRequestHandler):
    """One connection, in a thread of its own."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "agentlite", ""
    timeout = WAIT

    def do_GET(self) -> None:
        name = self.server.chat_model.name
        model = {"id": name, "object": "model", "created": 0, "owned_by": "agentlite"}
        pages: dict[str, Any] = {
            "/health": {"status": "ok"},
            "/v1/models": {"object": "list", "data": [model]},
            f"/v1/models/{name}": model,
        }
        self._guarded(lambda: self._send(200, pages[self._known(pages)]))

    def do_POST(self) -> None:
        self.close_connection = (
            True  # until the body is read: what is left of it would be the next request
        )
        self._guarded(self._complete)

    def _guarded(self, answer: Callable[[], None]) -> None:
        try:
            self._refuse_strangers()
            answer()
        except Refused as refused:
            self._send(refused.status, refused.body)
        except RowError as error:
            self._send(
                400,
                Refused(
                    400, f"{error.reason} ({error.code}).", param="messages", code=error.code
                ).body,
            )
        except UserError as error:
            self._send(500, _failed(error).body)

    def _refuse_strangers(self) -> None:
        """A web page that is open here may send requests too; it names itself, or a host that is
        not this one.
        """
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        origin = self.headers.get("Origin", "")
        local = ("localhost", HOST, "")
        if host not in local or (
            origin and origin.partition("://")[2].partition(":")[0] not in local[:2]
        ):
            raise Refused(
                403, "This server answers programs on its own machine alone.", code="forbidden"
            )

    def _known(self, paths: Iterable[str]) -> str:
        path = self.path.partition("?")[0].rstrip("/")
        if path == COMPLETIONS and self.command != "POST":
            raise Refused(405, "Chat completions are asked for with POST.")
        if path not in paths:
            raise Refused(
                404, f"There is no {path or '/'}: {', '.join(paths)}.", kind="not_found_error"
            )
        return path

    def _complete(self) -> None:
        body = self._body()
        self._known([COMPLETIONS])
        chat_model = self.server.chat_model
        request = read_request(body, chat_model.name)
        longest = chat_model.max_length
        if (least := chat_model.least_tokens(request.messages, request.offered)) >= longest:
            raise _too_long(longest, f"at least {least}")
        dialog = chat_model.opened(request.messages, request.offered)
        if (room := chat_model.room(dialog)) < 1:
            raise _too_long(longest, str(len(dialog.ids)))
        most = request.max_completion_tokens or request.max_tokens or chat_model.max_new_tokens
        decoding = Decoding(
            max_new_tokens=min(most, room),
            temperature=request.temperature or 0.0,
            top_p=1.0 if request.top_p is None else request.top_p,
            seed=seed_of(request),
            stops=request.stops,
        )
        if request.stream:
            self._stream(request, dialog, decoding)
            return
        with self.server.turn:
            turn = chat_model.answer(dialog, decoding, lambda text: not self._gone())
        self._send(200, response(new_completion(chat_model.name), request, turn))

    def _stream(self, request: Request, dialog: Opened, decoding: Decoding) -> None:
        """With tools on offer, words come once the answer is whole: before that, they may be half a
        call.
        """
        about = new_completion(self.server.chat_model.name)
        pieces: list[str] = []

        def listener(text: str) -> bool:
            if self._gone():  # False ends the sampling: the turn is free for the next client
                return False
            if text and not request.offered and not request.stops:
                pieces.append(text)
                self._chunks([chunk(about, {"content": text})])
            return True

        with self.server.turn:
            self._begin()
            self._chunks([chunk(about, {"role": "assistant", "content": ""})])
            try:
                turn = self.server.chat_model.answer(dialog, decoding, listener)
                rest = [*last_chunks(about, request, turn, "".join(pieces))]
            except UserError as error:
                rest = [event(_failed(error).body)]
        # after the turn is given back: a client that reads slowly does not hold up the others
        self._chunks([*rest, b""])

    def _body(self) -> bytes:
        try:
            length = int(self.headers.get("Content-Length", ""))
        except ValueError:
            raise Refused(
                411, "The request does not say how long it is (Content-Length)."
            ) from None
        if not 0 <= length <= LONGEST_BODY:
            raise Refused(413, f"The body of the request is longer than {LONGEST_BODY >> 20} MiB.")
        body = self.rfile.read(length)
        if len(body) < length:
            raise Refused(400, "The body of the request ends before it should.")
        self.close_connection = self.headers.get("Connection", "").lower() == "close"
        return body

    def _begin(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunks(self, events: Iterable[bytes]) -> None:
        """Each in a frame of HTTP's; b"" ends them."""
        for data in events:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _send(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _gone(self) -> bool:
        """Whether the client has hung up: its side says so, and nothing more comes."""
        try:
            ready, _, _ = select.select([self.connection], [], [], 0)
            return bool(ready) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the library finds wrong with a request, told as everything else is."""
        self.close_connection = True
        self._send(code, Refused(code, message or "This is no request.").body)

    def log_message(self, format: str, *args: object) -> None:
        console.notice(f"serve: {format % args}")


def _failed(error: UserError) -> Refused:
    return Refused(500, str(error).replace("\n", " "), kind="server_error")


def _too_long(longest: int, tokens: str) -> Refused:
    return Refused(
        400,
        f"This model's maximum context length is {longest} tokens. However, your messages resulted "
        f"in {tokens} tokens. Please reduce the length of the messages.",
        param="messages",
        code="context_length_exceeded",
    )
