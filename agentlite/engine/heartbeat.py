"""Heartbeats of the processes of one run: if one is lost, the others end and say what to do.

A collective operation does not notice that another machine is gone: it waits for half an hour, or
for ever. So each process counts up a key of the launcher's key-value store every two seconds. The
first process watches all the others, and they watch the first one. Beats are counted, not seconds:
if all processes were suspended together, none is lost when they go on.
"""

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from agentlite.core import console, distributed
from agentlite.core.errors import NETWORK, UserError

SECONDS = 2.0  # between two beats
LOST = 60  # beats of silence: two minutes
ABSENT = 300  # beats before a process that has not begun is missed: ten minutes
GRACE = 3  # beats in which a process may end by itself, with an error of its own
STOPS = 5.0  # seconds that a thread may need to leave the store
BRIEF = 3  # beats of silence that tell who is gone once a connection has broken
BEAT, HOST, FAILED, END, SEEN = "beat", "host", "failed", "end", "seen"
AGAIN = (
    "End what is left of this run and start the same command again on every machine: it carries "
    "on from the last whole checkpoint."
)


class Failure(msgspec.Struct):
    """The error that ended a process, as it tells the others."""

    rank: int
    host: str
    problem: str
    fix: str
    location: str
    exit_code: int


class Heartbeat:
    """Two threads: one talks to the store and may be stuck there, the other one judges.

    `store`: a connection that nothing else uses. `say` prints the error before the process ends.
    """

    def __init__(self, store: Any, say: Callable[[UserError], None]):
        self._store, self._say, self._rank = store, say, distributed.rank()
        self._over = threading.Event()
        self._stdout = os.dup(1)  # a stage sends it to stderr
        others = [0] if self._rank else range(1, distributed.count())
        self._counts = dict.fromkeys(others, 0)  # by rank
        self._silent = dict.fromkeys(others, 0)  # beats without a word, by rank
        self._hosts: dict[int, str] = {}
        self._unanswered = 0  # beats that the store has left without an answer
        self._ended: UserError | None = None  # another process has said so
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._beat, self._judge)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """This process ends, whichever others are still there. It waits for its threads: one that
        is inside the store while Python ends would abort the process.
        """
        self._over.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(STOPS)

    def missing(self) -> int:
        """The number of processes that have fallen silent."""
        return sum(silent >= BRIEF for silent in self._silent.values())

    def cause(self, error: Exception) -> UserError:
        """The error of a broken connection, which seldom says who is gone: a few beats do."""
        for _ in range(2 * BRIEF):
            if found := self._verdict(BRIEF):
                return found
            time.sleep(SECONDS)
        words = str(error).partition("\n")[0]
        return _lost(f"the connection to another process is broken ({words}).")

    def _beat(self) -> None:
        try:
            self._store.set(f"{HOST}-{self._rank}", socket.gethostname())
            while not self._over.is_set():
                self._exchange()
                self._unanswered = 0
                self._over.wait(SECONDS)
        except RuntimeError:  # as torch reports that the other side has closed the connection
            self._unanswered = LOST

    def _exchange(self) -> None:
        self._store.add(f"{BEAT}-{self._rank}", 1)
        for rank, before in self._counts.items():
            self._counts[rank] = self._store.add(f"{BEAT}-{rank}", 0)
            self._silent[rank] = self._silent[rank] + 1 if self._counts[rank] == before else 0
            if self._counts[rank] and rank not in self._hosts:
                self._hosts[rank] = self._store.get(f"{HOST}-{rank}").decode()
        if not self._rank and self._store.check([FAILED]):
            failure = msgspec.json.decode(self._store.get(FAILED), type=Failure)
            self._ended = _of_other(failure)
        elif self._rank and self._store.check([END]):
            self._ended = UserError("", exit_code=int(self._store.get(END)))

    def _judge(self) -> None:
        grace = 0
        while not self._over.wait(SECONDS):
            self._unanswered += 1
            if found := self._verdict(LOST):
                grace += 1
                if grace > GRACE:
                    self._end(found)

    def _verdict(self, patience: int) -> UserError | None:
        """What has ended this run, if anything has. `patience`: beats of silence."""
        if self._ended:
            return self._ended
        if self._unanswered >= patience:
            name = "the launcher" if not self._rank else self._name(0)
            return _lost(
                f"{name} cannot be reached: it has ended, or its machine or the network has failed."
            )
        for rank, silent in self._silent.items():
            if silent >= (patience if self._counts[rank] else ABSENT):
                return _lost(
                    f"{self._name(rank)} has been silent for {silent * SECONDS:.0f} s: it has "
                    "ended or is stopped, or its machine or the network has failed."
                )
        return None

    def _name(self, rank: int) -> str:
        host = self._hosts.get(rank)
        return f"process {rank} on {host}" if host else f"process {rank}"

    def _end(self, error: UserError) -> None:
        """Ends this process, whose main thread may be stuck in a library for ever."""
        if self._unanswered < LOST:
            with contextlib.suppress(RuntimeError):
                self._tell(error.exit_code)
        os.dup2(self._stdout, 1)
        sys.stdout = sys.__stdout__
        if error.problem:
            self._say(error)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()  # type: ignore[union-attr]  # None where it was closed
        os._exit(error.exit_code)

    def _tell(self, exit_code: int) -> None:
        if not self._rank:
            self._store.set(END, str(exit_code))
            time.sleep(2 * SECONDS)  # the store may live in this process: the others read it first
        else:
            self._store.add(SEEN, 1)


def is_connection(error: BaseException) -> bool:
    """Whether it comes from the libraries that connect the processes."""
    from torch.distributed import DistError

    if isinstance(error, DistError):
        return True
    return isinstance(error, RuntimeError) and "gloo" in str(error)


def failure(error: Exception) -> Failure:
    known = isinstance(error, UserError)
    return Failure(
        distributed.rank(),
        socket.gethostname(),
        error.problem if isinstance(error, UserError) else f"{type(error).__name__}: {error}",
        error.fix if isinstance(error, UserError) else "Its own output says more.",
        error.location if isinstance(error, UserError) else "",
        getattr(error, "exit_code", 1) if known else 1,
    )


def say_plainly(error: UserError) -> None:
    print(console.hidden(str(error)), file=sys.stderr, flush=True)


def _of_other(failure: Failure) -> UserError:
    at = f"process {failure.rank} on {failure.host}"
    location = f"{at}: {failure.location}" if failure.location else at
    return UserError(failure.problem, failure.fix, location=location, exit_code=failure.exit_code)


def _lost(problem: str) -> UserError:
    return UserError(problem, AGAIN, exit_code=NETWORK)
