"""Progress and notices on stderr, results on stdout: bars on a terminal, plain lines elsewhere."""

import contextlib
import io
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from agentlite.core import distributed

SECRET_ENDINGS = ("TOKEN", "KEY", "SECRET", "PASSWORD")  # how the names of such variables end
# passwords in addresses; what looks like a key of the hub, of OpenAI's kind, or in a request
SECRET_TEXT = re.compile(
    r"(?<=://)[^\s/@]+(?=@)|\bhf_[A-Za-z0-9]{20,}|\bsk-[A-Za-z0-9_-]{16,}|(?<=Bearer )[^\s'\"]{8,}"
)
EVERY_SECONDS = 30.0
FIRST_SECONDS = 2.0  # a longer wait is reported
# characters of a line that are shown, and how many of them stand before the carets
CARET_WIDTH, CARET_LEAD = 84, 40
# of a line about a row, by what is matched: location, code, what is wrong in it, what helps
ROW_COLOURS = {
    r"^\S.*?:\d+(?=: )": "bold",
    r"(?<=\d: )[A-Z]\d{3}\b|\^+$": "bold red",
    r"^  = help:": "bold cyan",
}
COLOURS = {
    "ok": "green",
    "done": "green",
    "half": "yellow",
    "warning": "yellow",
    "running": "cyan",
    "problem": "red",
    "failed": "red",
    "broken": "red",
}


class Advance(Protocol):
    """Tells how far a task is."""

    def __call__(self, done: int, note: str = "") -> None: ...


def notice(text: str) -> None:
    if distributed.is_first():
        print(printable(text), file=sys.stderr, flush=True)


def row_notice(line: str) -> None:
    """A line about a row, coloured where stderr is a terminal that shows colours."""
    from rich.console import Console
    from rich.text import Text

    text = Text(printable(line))
    for pattern, style in ROW_COLOURS.items():
        text.highlight_regex(pattern, style)
    Console(stderr=True).print(text, soft_wrap=True)


def redact(text: str) -> str:
    """The text without the keys of the environment, what looks like one, and passwords of URLs."""
    secrets = {value.strip() for key, value in os.environ.items() if key.endswith(SECRET_ENDINGS)}
    for secret in sorted(secrets, key=len, reverse=True):  # one may hold another
        text = text.replace(secret, "(hidden)") if len(secret) >= 8 else text
    return SECRET_TEXT.sub("(hidden)", text)


class SafeStderr:
    """stderr, which may be closed while a run goes on: what is said then, by us or a library, is
    said to nobody. No secret is ever said."""

    def __init__(self, stream: Any):
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(redact(text))
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Advance]:
    """A bar when stderr is a terminal, else a line after two seconds, every 30 seconds, and at the
    end. `total`: None where it is not known."""
    if not (distributed.is_first() and sys.stderr.isatty()) or os.environ.get("TERM") == "dumb":
        yield _line_reporter(title, total)
        return
    from rich import progress as bars
    from rich.console import Console

    with bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeRemainingColumn(),
        bars.TextColumn("{task.fields[note]}"),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(title, total=total, note="")
        yield lambda done, note="": bar.update(task, completed=done, note=note)


def _line_reporter(title: str, total: int | None) -> Advance:
    # as if a line had been told 28 s ago: the first one is due FIRST_SECONDS from now
    last_time = time.monotonic() + FIRST_SECONDS - EVERY_SECONDS
    # done, and when, as first told: what was before (loading, an earlier run) does not count
    first_done = first_time = 0.0

    def advance(done: int, note: str = "") -> None:
        nonlocal last_time, first_done, first_time
        now = time.monotonic()
        if not first_time:
            first_done, first_time = done, now
        if now - last_time < EVERY_SECONDS and done != total:
            return
        last_time, left = now, ""
        if total and first_done < done < total:
            left = f", {(now - first_time) / (done - first_done) * (total - done):.0f} s left"
        notice(f"{title} {done}{f'/{total}' if total else ''}{left}{'  ' + note if note else ''}")

    return advance


@contextmanager
def waiting(title: str) -> Iterator[None]:
    """Says what is waited for, where that takes more than two seconds."""
    timer = threading.Timer(FIRST_SECONDS, notice, [title])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def print_table(rows: Sequence[Sequence[str]], text_columns: int = 1) -> None:
    """The first row is the heading. The first columns, as many as `text_columns`, stand left;
    those of numbers right. A cell that begins with the name of a state has its colour.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    heading, *body = rows
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(heading))
    for index, name in enumerate(heading):
        table.add_column(name, justify="left" if index < text_columns else "right", overflow="fold")
    for row in body:
        styles = [COLOURS.get(cell.partition(" ")[0].rstrip(","), "") for cell in row]
        table.add_row(*map(Text, map(printable, row), styles))
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    with console.capture() as captured:
        console.print(table)
    # words in the last column are padded with blanks
    print(*map(str.rstrip, captured.get().splitlines()), sep="\n")


@contextmanager
def hide_stdout() -> Iterator[None]:
    """Hides what a library prints while it loads, unless that fails: it may say why."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield
    except BaseException:
        sys.stderr.write(printed.getvalue())
        raise


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Whatever a library prints on stdout, from Python or below, ends on stderr."""
    sys.stdout.flush()
    try:
        stdout_copy = os.dup(1)
    except OSError:  # stdout was closed
        yield
        return
    python_stdout, sys.stdout = sys.stdout, sys.stderr
    os.dup2(2, 1)  # the descriptor itself: C code writes past sys.stdout
    try:
        yield
    finally:
        sys.stdout = python_stdout
        os.dup2(stdout_copy, 1)
        os.close(stdout_copy)


def caret_lines(text: str, start: int, end: int) -> list[str]:
    """Two lines for a screen: what stands around text[start:end], and carets under that."""
    line_start = text.rfind("\n", 0, start) + 1
    line_end = len(text) if (newline := text.find("\n", start)) < 0 else newline
    shown_start = max(line_start, start - CARET_LEAD)
    shown_end = min(line_end, shown_start + CARET_WIDTH)
    from rich.cells import cell_len  # a Chinese character takes two columns of a terminal

    before = ("…" if shown_start > line_start else "") + printable(text[shown_start:start])
    marked = printable(text[start : min(end, shown_end)])
    after = printable(text[min(end, shown_end) : shown_end]) + ("…" if shown_end < line_end else "")
    return [f"{before}{marked}{after}", " " * cell_len(before) + "^" * max(1, cell_len(marked))]


def printable(text: str) -> str:
    """Text that a terminal shows and does not obey: each character that is not printable becomes a
    dot, apart from the ends of lines.
    """
    return "".join(char if char.isprintable() or char == "\n" else "·" for char in text)
