"""Progress and notices to stderr, the result to stdout: bars on a terminal, plain lines elsewhere."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from agentlite import processes

EVERY_SECONDS = 20.0


class Advance(Protocol):
    """Tells how far a task is."""

    def __call__(self, done: int, note: str = "") -> None: ...


def notice(text: str) -> None:
    if processes.first():
        print(text, file=sys.stderr, flush=True)


@contextmanager
def progress(title: str, total: int) -> Iterator[Advance]:
    """A bar when stderr is a terminal, else a line at the start and every 20 seconds."""
    if processes.first() and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        with _bar(title, total) as advance:
            yield advance
    else:
        yield _lines(title, total)


def _lines(title: str, total: int) -> Advance:
    started = last = time.monotonic()

    def advance(done: int, note: str = "") -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= EVERY_SECONDS or done == total:
            last = now
            left = f", {(now - started) / done * (total - done):.0f} s left" if 0 < done < total else ""
            notice(f"{title} {done}/{total}{left}{'  ' + note if note else ''}")

    return advance


@contextmanager
def _bar(title: str, total: int) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
               TextColumn("{task.fields[note]}")]  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(title, total=total, note="")
        yield lambda done, note="": bars.update(task, completed=done, note=note)


def print_table(rows: Sequence[Sequence[str]], stream: Any = None) -> None:
    """The first row is the heading; numbers stand right."""
    from rich.console import Console
    from rich.table import Table

    heading, *body = rows
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(heading))
    for index, name in enumerate(heading):
        table.add_column(name, justify="left" if index == 0 else "right", overflow="fold")
    for row in body:
        table.add_row(*row)
    stream = stream or sys.stdout
    width = None if stream.isatty() else 120
    Console(file=stream, width=width, highlight=False).print(table)


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Whatever a library prints on stdout, from Python or below, ends on stderr."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # stdout was closed
        yield
        return
    python_stdout, sys.stdout = sys.stdout, sys.stderr
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout = python_stdout
        os.dup2(kept, 1)
        os.close(kept)
