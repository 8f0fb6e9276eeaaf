"""OpenAI's API over HTTP: its pages and completions, and the queue for the model."""

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from agentlite.core.errors import RowError, UserError
from agentlite.data.openai_messages import Turn
from agentlite.deploy.answer_queue import AnswerQueue, ClientGone, QueueFull
from agentlite.deploy.chat_model import ChatModel
from agentlite.deploy.completion_jobs import ServeJob, chat_job
from agentlite.deploy.local_server import HOST, LocalHandler, LocalServer, failed
from agentlite.deploy.openai_api import (
    CompletionBody,
    Refused,
    end_chunks,
    event,
    first_chunk,
    last_chunks,
    new_completion,
    response,
    until_stops,
    words_chunk,
)
from agentlite.engine.stream import Listener

COMPLETIONS = "/v1/chat/completions"
LONGEST_QUEUE = 64
OF_TOOLS = ("E124", "E211", "E212")  # the reject codes of tools; others are of messages


class Server(LocalServer):
    """`token`: what clients must send as their key; "" for none.

    Raises what LocalServer raises.
    """

    def __init__(
        self,
        chat_model: ChatModel,
        port: int,
        *,
        host: str = HOST,
        token: str = "",
        longest_queue: int = LONGEST_QUEUE,
    ):
        self.chat_model = chat_model
        self.queue = AnswerQueue(longest_queue)
        self.preparing = threading.Lock()  # a template renders for one request at a time
        # one thread runs the model: torch and the allocator keep memory for each that ever did
        self.model_thread = ThreadPoolExecutor(1)
        super().__init__(Handler, port, host=host, token=token)

    @property
    def url(self) -> str:
        return f"{self.origin}/v1"

    def server_close(self) -> None:
        """The answer under way ends at its next token."""
        super().server_close()
        self.model_thread.shutdown(wait=False)


class Handler(LocalHandler):
    """One connection, in a thread of its own."""

    server: Server

    def do_GET(self) -> None:
        self.answered(self._page)

    def do_POST(self) -> None:
        self.answered(self._complete)

    def do_PUT(self) -> None:
        self.answered(self._path)

    do_DELETE = do_PATCH = do_OPTIONS = do_PUT

    @property
    def _pages(self) -> dict[str, Any]:
        name, queue = self.server.chat_model.name, self.server.queue
        model = {"id": name, "object": "model", "created": 0, "owned_by": "agentlite"}
        health = {
            "status": "ok",
            "working": queue.working,
            "waiting": queue.waiting,
            "longest_queue": queue.longest,
        }
        return {
            "/health": health,
            "/v1/models": {"object": "list", "data": [model]},
            f"/v1/models/{name}": model,
        }

    def _page(self) -> None:
        self.send_object(200, self._pages[self._path()])

    def _path(self) -> str:
        """The path of the request. Raises Refused for one that does not exist or takes another
        method.
        """
        path = self.plain_path
        if path not in (COMPLETIONS, *self._pages):
            known = ", ".join([COMPLETIONS, *self._pages])
            raise Refused(404, f"There is no {path or '/'}: {known}.", kind="not_found_error")
        allowed = ("POST",) if path == COMPLETIONS else ("GET", "HEAD")
        if self.command not in allowed:
            raise Refused(
                405,
                f"{path} takes {allowed[0]}, not {self.command}.",
                headers={"Allow": ", ".join(allowed)},
            )
        return path

    def _complete(self) -> None:
        try:
            self._completion()
        except RowError as error:
            reason = f"{error.reason} ({error.code})."
            param = "tools" if error.code in OF_TOOLS else "messages"
            raise Refused(400, reason, param=param, code=error.code) from error

    def _completion(self) -> None:
        self._path()
        body = self.body()
        chat_model = self.server.chat_model
        self.details["model"] = chat_model.name
        with self.server.preparing:
            job = chat_job(body, chat_model)
            del body
        self.details |= {
            "messages": len(job.request.messages),
            "prompt": len(job.prompt.ids),
        }
        about = new_completion(chat_model.name)
        if job.request.stream:
            self._stream(job, about)
            return
        with self._turn():
            turns = [
                self._answered(job, index, lambda text: not self.is_gone())
                for index in range(job.answers)
            ]
        self.details["new"] = sum(turn.new_tokens for turn in turns)
        if self.is_gone():
            raise ClientGone
        self.send_object(200, response(about, job.request, turns))

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """The model, for one answer."""
        try:
            with self.server.queue.turn(self.is_gone) as waited:
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

    def _stream(self, job: ServeJob, about: CompletionBody) -> None:
        turns, index, written = list[Turn](), 0, ""

        def listener(text: str) -> bool:
            nonlocal written
            if self.is_gone():  # False ends the sampling: the model is free for the next client
                return False
            if job.is_wordwise:
                whole = until_stops(written + text, job.request.stops)
                if new := whole[len(written) :]:
                    self._chunks([words_chunk(about, index, new)])
                written = whole
            return True

        rest: list[bytes] = []
        with self._turn():
            self._begin()
            try:
                for index in range(job.answers):
                    written = ""
                    self._chunks([*rest, first_chunk(about, index)])
                    turns.append(self._answered(job, index, listener))
                    rest = [*last_chunks(about, index, job.request, turns[-1], written)]
                rest += end_chunks(about, job.request, turns)
            except UserError as error:
                rest = [event(failed(error).body)]
            except Refused as refused:
                rest = [event(refused.body)]
            self.details["new"] = sum(turn.new_tokens for turn in turns)
        # after the model is given back: a client that reads slowly does not hold up the others
        self._chunks(rest)
        self.wfile.write(b"0\r\n\r\n")

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
