"""The queue for a model: one request is answered at a time, in the order in which they came."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from agentlite.data.openai_messages import Turn
from agentlite.deploy.openai_api import Refused
from agentlite.deploy.serve_job import ServeJob

LONGEST_WAIT = 60  # seconds that a client is asked to wait: OpenAI's own obeys no longer time


class AnswerQueue:
    """At most `longest` requests wait while one is answered. Where `is_closing`, the answer under
    way ends at its next token.
    """

    def __init__(self, longest: int, is_closing: Callable[[], bool]):
        self.longest, self.is_closing = longest, is_closing
        self.asked = 0  # requests: the one that is answered and those that wait
        self.seconds = 1.0  # that a request takes: a running mean
        # torch and the allocator keep memory for each thread that ever ran the model
        self.thread = ThreadPoolExecutor(1)

    def enter(self, job: ServeJob) -> "Answers":
        """Raises Refused 503."""
        if self.asked > self.longest:
            seconds = min(max(1, math.ceil(self.seconds * self.asked)), LONGEST_WAIT)
            raise Refused(
                503,
                f"{self.longest} requests wait already: ask again in about {seconds} s.",
                code="queue_full",
                kind="server_error",
                headers={"Retry-After": str(seconds)},
            )
        return Answers(self, job)


class Answers:
    """The answers to one request, which are on their way from now on."""

    def __init__(self, queue: AnswerQueue, job: ServeJob):
        self.queue, self.job, self.is_left = queue, job, False
        self.entered = time.monotonic()
        self.figures: dict[str, object] = {}  # for the log
        self.loop, self._events = asyncio.get_running_loop(), asyncio.Queue[bytes]()
        queue.asked += 1
        self.turns = self.loop.run_in_executor(queue.thread, self._run)
        self.turns.add_done_callback(self._end)

    def leave(self) -> None:
        """Nobody waits for them any more."""
        self.is_left = True
        if not self.figures:  # the model has not begun
            self.turns.cancel()

    async def events(self) -> AsyncIterator[bytes]:
        """Of a stream, as they come: a client that reads slowly holds up nobody else."""
        while event := await self._events.get():
            yield event

    def _run(self) -> Sequence[Turn]:
        """In the model's thread."""
        started = time.monotonic()
        self.figures["waited"] = f"{started - self.entered:.2f}"

        def send(event: bytes) -> None:
            self.loop.call_soon_threadsafe(self._events.put_nowait, event)

        turns = self.job.run(send, lambda: self.is_left or self.queue.is_closing())
        self.figures["new"] = sum(turn.new_tokens for turn in turns)
        for event in self.job.completion.end_events(turns):
            send(event)
        self.queue.seconds += (time.monotonic() - started - self.queue.seconds) / 5
        return turns

    def _end(self, turns: "asyncio.Future[Sequence[Turn]]") -> None:
        self.queue.asked -= 1
        self._events.put_nowait(b"")
        if not turns.cancelled():
            turns.exception()  # asyncio reports one that nobody has asked for
