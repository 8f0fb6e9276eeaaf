"""The queue for a model: one answer at a time, in the order of the requests, and a limit."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOOK = 0.2  # seconds between two looks at whether a waiting client is still there
LONGEST_WAIT = 60  # seconds that a client is asked to wait: OpenAI's own obeys no longer time


class QueueFull(Exception):
    """`seconds`: when to ask again."""

    def __init__(self, seconds: int):
        super().__init__(f"full for about {seconds} s")
        self.seconds = seconds


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


class AnswerQueue:
    """At most `longest` requests wait while one is answered."""

    def __init__(self, longest: int):
        self.longest = longest
        self._line: deque[object] = deque()  # the first one is being answered
        self._moved = threading.Condition()
        self._seconds = 1.0  # that an answer takes: a running mean

    @property
    def waiting(self) -> int:
        return max(0, len(self._line) - 1)

    @property
    def working(self) -> bool:
        return bool(self._line)

    @contextmanager
    def turn(self, is_gone: Callable[[], bool]) -> Iterator[float]:
        """Holds the model; yields the seconds that were waited for it. Raises QueueFull at once, or
        ClientGone while waiting.
        """
        place, entered = object(), time.monotonic()
        with self._moved:
            if len(self._line) > self.longest:
                seconds = math.ceil(self._seconds * len(self._line))
                raise QueueFull(min(max(1, seconds), LONGEST_WAIT))
            self._line.append(place)
        try:
            with self._moved:
                while self._line[0] is not place:
                    self._moved.wait(LOOK)
                    if is_gone():
                        raise ClientGone
            started = time.monotonic()
            yield started - entered
            self._seconds += (time.monotonic() - started - self._seconds) / 5
        finally:
            with self._moved:
                self._line.remove(place)
                self._moved.notify_all()
