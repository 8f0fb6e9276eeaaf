"""Reads rows in several processes, in the order of the rows."""

import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Literal

from agentlite.config.settings import PrepSettings
from agentlite.core import console
from agentlite.core.records import Tool
from agentlite.core.user_code import end_with_parent
from agentlite.data.formats import RawLine
from agentlite.data.ingest_row import IngestContext, IngestedRow, take
from agentlite.rendering import mixture_of
from agentlite.workspace.model_source import load_template

RAY = "ray"  # in place of a number of workers
AT_ONCE = 1 << 20  # bytes of rows that a process is handed
AHEAD = 3  # chunks a process that are read before the first of them is taken
LOCATION = 200  # bytes that a row takes in a chunk, whatever its content
Chunk = list[tuple[str, RawLine]]  # rows in their order, each with its source


def take_all(
    lines: Iterable[tuple[str, RawLine]], context: IngestContext, workers: int | Literal["ray"]
) -> Iterator[IngestedRow]:
    """In the order of the lines, whatever the number of workers. Once one of them has died none
    works any more: what they have not given back, and all that follows, is taken here.
    """
    # a model that ranks tools is there once
    if context.add_tools or (isinstance(workers, int) and workers <= 1):
        for source, line in lines:
            yield take(source, line, context)
        return
    pool, count = _executor(context, workers)
    handed: deque[tuple[Chunk, Future[list[IngestedRow]] | None]] = deque()
    alive = True

    def mourn() -> None:
        nonlocal alive
        if alive:
            console.notice(
                "prep: a worker process died (out of memory?): going on without workers, no row is "
                "lost"
            )
        alive = False

    def oldest() -> Iterable[IngestedRow]:
        chunk, future = handed.popleft()
        try:
            if future:
                return future.result()
        except BrokenProcessPool:
            mourn()
        return (take(*one, context) for one in chunk)

    try:
        for chunk in _chunks(lines):
            future = None
            try:
                future = pool.submit(take_chunk, chunk) if alive else None
            except BrokenProcessPool:
                mourn()
            handed.append((chunk, future))
            if len(handed) > AHEAD * count:
                yield from oldest()
        while handed:
            yield from oldest()
    finally:
        pool.shutdown(cancel_futures=True)


def _executor(context: IngestContext, workers: int | Literal["ray"]) -> tuple[Executor, int]:
    """The processes, and how many they are."""
    job = (context.settings, context.template.name, dict(context.catalogue))
    if isinstance(workers, int):
        return ProcessPoolExecutor(workers, get_context("spawn"), _start, job), workers
    from agentlite.data.ray_pool import RayPool

    pool = RayPool(begin, *job)
    return pool, pool.workers


def _chunks(lines: Iterable[tuple[str, RawLine]]) -> Iterator[Chunk]:
    """Rows of about a mebibyte, with what they take in memory."""
    chunk: Chunk = []
    size = 0
    for source, line in lines:
        chunk.append((source, line))
        size += len(line.content) + LOCATION
        if size >= AT_ONCE:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


_CONTEXT: list[IngestContext] = []  # of a worker process


def _start(settings: PrepSettings, model: str, catalogue: dict[str, Tool]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # one to the whole group is the parent's to answer
    threading.Thread(target=end_with_parent, daemon=True).start()
    begin(settings, model, catalogue)


def begin(settings: PrepSettings, model: str, catalogue: dict[str, Tool]) -> None:
    """What this worker process takes rows with."""
    template = load_template(model)
    mixture = mixture_of(settings.protocol, template, settings.seed)
    _CONTEXT[:] = [IngestContext(settings, template, mixture, catalogue=catalogue)]


def take_chunk(lines: Chunk) -> list[IngestedRow]:
    return [take(source, line, _CONTEXT[0]) for source, line in lines]
