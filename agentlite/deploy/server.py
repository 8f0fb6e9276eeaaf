"""OpenAI's API over HTTP, by starlette and uvicorn: pages, who may ask, the queue."""

import asyncio
import logging
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from agentlite.core import console
from agentlite.core.errors import RowError, UserError
from agentlite.deploy.chat_model import ChatModel
from agentlite.deploy.openai_api import ApiError, ClientGone, Completion, as_json, chat_job, event

HOST = "127.0.0.1"
COMPLETIONS = "/v1/chat/completions"
LOOK_SECONDS = 0.2  # seconds between two looks at whether a waiting client is still there
CLOSING_SECONDS = 2  # seconds that answers have to end in when the server is stopped


class Server:
    """Programs of this machine can connect as soon as it is made; `run` answers them. Raises
    UserError 2 for a port that is taken; 0 is one that is free.

    How it ends: `stop`, or a signal, sets `should_exit`. The answer under way sees that at its next
    token and raises ClientGone, as those that wait do when they are begun: a client gets 503, or an
    error as the last event of a stream. uvicorn waits CLOSING_SECONDS for them. Then `run` returns,
    and `__exit__` does not wait for the thread of the model.
    """

    def __init__(self, chat_model: ChatModel, port: int):
        self.chat_model = chat_model
        try:
            self.socket = socket.create_server((HOST, port), backlog=512)
        except OSError as error:
            raise UserError(
                f"cannot listen on port {port}: {error.strerror}.",
                "Give another one, or --port 0 for any that is free.",
                location="--port",
            ) from error
        self.address = self.socket.getsockname()
        self.url = f"http://{HOST}:{self.address[1]}/v1"
        self.open_requests = 0  # requests: the one that is answered and those that wait
        # The model answers one request at a time, in the order in which they came, and always in
        # one thread: torch and the allocator keep memory for each that ever ran it.
        self.model_thread = ThreadPoolExecutor(1)
        self.pages = Starlette(
            routes=[
                Route("/health", self._health),
                Route("/v1/models", self._models),
                Route("/v1/models/{name:path}", self._models),
                Route(COMPLETIONS, self._complete, methods=["POST"]),
            ],
            exception_handlers={HTTPException: _answer_error, Exception: _answer_error},
        )
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self.uvicorn = uvicorn.Server(
            uvicorn.Config(
                self._answer,
                interface="asgi3",
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                server_header=False,
                proxy_headers=False,  # the log names who has sent the request
                timeout_graceful_shutdown=CLOSING_SECONDS,
            )
        )

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.socket.close()
        self.model_thread.shutdown(wait=False, cancel_futures=True)

    def run(self) -> None:
        """Until `stop`, or a signal, which is raised again once the server has ended."""
        self.uvicorn.run([self.socket])

    def stop(self) -> None:
        self.uvicorn.should_exit = True

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request, whatever happens."""
        scope["path"] = scope["path"].rstrip("/") or "/"  # /v1/models/ is /v1/models
        with suppress(Exception):  # starlette raises it again, behind the answer
            await (_web_page_error(Request(scope)) or self.pages)(scope, receive, send)

    async def _health(self, _: Request) -> Response:
        return _json({"status": "ok", "waiting": max(0, self.open_requests - 1)})

    async def _models(self, request: Request) -> Response:
        """The one model, in a list, or alone where its name is asked for."""
        model_name = self.chat_model.name
        model = {"id": model_name, "object": "model", "created": 0, "owned_by": "agentlite"}
        name = request.path_params.get("name")
        if name not in (None, model_name):
            raise HTTPException(404)
        return _json(model if name else {"object": "list", "data": [model]})

    async def _complete(self, request: Request) -> Response:
        job = await asyncio.to_thread(chat_job, await request.body(), self.chat_model)
        if job.request.stream:
            headers = {"Cache-Control": "no-cache"}
            return StreamingResponse(self._events(job), 200, headers, "text/event-stream")
        with self._answers(job) as (answer, _):
            while not answer.done():  # nobody says that a client is gone: it has to be asked
                await asyncio.wait([answer], timeout=LOOK_SECONDS)
                if await request.is_disconnected():
                    raise ClientDisconnect
            return _json(answer.result())

    async def _events(self, job: Completion) -> AsyncIterator[bytes]:
        """Those of a stream, as they come: a client that reads slowly holds up nobody else."""
        with self._answers(job) as (answer, events):
            while data := await events.get():
                yield data
            if error := answer.exception():
                yield event(_as_api_error(error).body)

    @contextmanager
    def _answers(
        self, job: Completion
    ) -> Iterator[tuple[asyncio.Future[dict[str, Any]], asyncio.Queue[bytes]]]:
        """The answer, which is on its way in the model's thread, and the events of its stream, with
        an empty one last. It ends at its next token where the server stops, or this is left.
        """
        # The model's thread may not touch a queue of asyncio. It hands its events to the loop,
        # which takes them in their order, and `end` behind them all.
        loop, events = asyncio.get_running_loop(), asyncio.Queue[bytes]()
        is_left = threading.Event()

        def send(event: bytes) -> None:
            loop.call_soon_threadsafe(events.put_nowait, event)

        def end(answer: asyncio.Future[dict[str, Any]]) -> None:
            events.put_nowait(b"")
            if not answer.cancelled():
                answer.exception()  # asyncio reports one that nobody has asked for

        def is_gone() -> bool:
            return is_left.is_set() or self.uvicorn.should_exit

        self.open_requests += 1
        answer = loop.run_in_executor(self.model_thread, job.run, send, is_gone)
        answer.add_done_callback(end)
        try:
            yield answer, events
        finally:
            is_left.set()
            self.open_requests -= 1


def _web_page_error(request: Request) -> Response | None:
    """A web page that is open here may send requests too, that of another program on this machine
    as well: a browser names its origin, or a host that is not this one.
    """
    try:
        host = urlsplit(f"//{request.headers.get('Host') or 'localhost'}").hostname
    except ValueError:
        host = None
    if host in ("localhost", HOST, "::1") and "Origin" not in request.headers:
        return None
    reason = "This server only answers programs on its own machine, and no web page."
    return _json(ApiError(403, reason, code="forbidden").body, 403)


async def _answer_error(_: Request, error: Exception) -> Response:
    api_error = _as_api_error(error)
    return _json(api_error.body, api_error.status, api_error.headers)


def _as_api_error(error: BaseException) -> ApiError:
    """An error as an answer; one that nobody has foreseen goes to the log."""
    match error:
        case ApiError():
            return error
        case RowError():
            # these codes are of tools, all others of messages
            param = "tools" if error.code in ("E124", "E211", "E212") else "messages"
            return ApiError(400, f"{error.reason} ({error.code}).", param=param, code=error.code)
        case UserError():
            return ApiError(500, str(error).replace("\n", " "), kind="server_error")
        case ClientDisconnect() | ClientGone():  # where the client is there all the same
            return ApiError(503, "The server is stopped.", kind="server_error", code="stopped")
        case HTTPException(status_code=404):
            pages = f"{COMPLETIONS}, /v1/models, /v1/models/NAME, /health"
            return ApiError(404, f"There is no such page: {pages}.", kind="not_found_error")
        case HTTPException():
            return ApiError(error.status_code, f"{error.detail}.", headers=error.headers)
    console.notice(f"serve: {type(error).__name__}: {error}")
    return ApiError(500, "The server failed; its log says why.", kind="server_error")


def _json(
    body: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(as_json(body), status, headers, media_type="application/json")
