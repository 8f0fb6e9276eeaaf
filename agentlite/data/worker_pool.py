"""Takes rows in their order: here, or in several processes."""

import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from agentlite.config.settings import PrepSettings
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.records import Tool
from agentlite.core.user_code import end_with_parent
from agentlite.data.formats import RawLine
from agentlite.data.ingest import IngestContext, IngestedRow, take
from agentlite.rendering import mixture_of
from agentlite.workspace.model_source import load_template

AT_ONCE = 1 << 20  # bytes of rows that a process is handed
AHEAD = 3  # chunks a process that are read before the first of them is taken
LOCATION = 200  # bytes that a row takes in a chunk, whatever its content
LOOK_EVERY = 50  # rows: a bar costs more than a row
Chunk = list[tuple[str, RawLine]]  # rows in their order, each with its source


def read_all(lines: Iterable[tuple[str, RawLine]], context: IngestContext) -> Iterator[IngestedRow]:
    """Takes every row, each with the source it is from, in their order whatever the number of
    workers; and shows how many were read.
    """
    workers = context.settings.workers or os.cpu_count() or 1
    taken: Iterator[IngestedRow]
    if context.add_tools or workers == 1:  # a model that ranks tools is there once
        taken = (take(source, line, context) for source, line in lines)
    else:
        taken = _taken_by_workers(lines, context, workers)
    with console.progress("prep: rows read:", None) as advance:
        for count, row in enumerate(taken, 1):
            yield row
            if count % LOOK_EVERY == 0:
                advance(count)


def _taken_by_workers(
    lines: Iterable[tuple[str, RawLine]], context: IngestContext, workers: int
) -> Iterator[IngestedRow]:
    job = (context.settings, context.template.name, dict(context.catalogue))
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _start, job)
    handed: deque[Future[list[IngestedRow]]] = deque()
    try:
        for chunk in _chunks(lines):
            handed.append(pool.submit(take_chunk, chunk))
            if len(handed) > AHEAD * workers:
                yield from handed.popleft().result()
        while handed:
            yield from handed.popleft().result()
    except BrokenProcessPool as error:
        problem = "a worker process died, perhaps for lack of memory."
        raise UserError(problem, "Take fewer --workers.") from error
    finally:
        pool.shutdown(cancel_futures=True)


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


# --- in a worker process ---

_CONTEXT: list[IngestContext] = []


def _start(settings: PrepSettings, model: str, catalogue: dict[str, Tool]) -> None:
    """What this worker process takes rows with."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # one to the whole group is the parent's to answer
    threading.Thread(target=end_with_parent, daemon=True).start()
    template = load_template(model)
    mixture = mixture_of(settings.protocol, template, settings.seed)
    _CONTEXT[:] = [IngestContext(settings, template, mixture, catalogue=catalogue)]


def take_chunk(lines: Chunk) -> list[IngestedRow]:
    return [take(source, line, _CONTEXT[0]) for source, line in lines]
