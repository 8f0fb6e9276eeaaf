"""Signals that end a process are noted, and the step under way is finished first."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from agentlite.core import console


class Stopped(Exception):
    """A signal came: the step was finished and saved."""

    def __init__(self, number: int):
        self.exit_code = 128 + number


@contextmanager
def noted_signals() -> Iterator[list[int]]:
    """The first signal that ends a process is noted, and the step finished; the second one acts as
    it always did. A closed terminal sends SIGHUP, more than once: by the shell, and by the system.
    nohup has it ignored."""
    caught: list[int] = []
    ending = [
        number
        for name in ("SIGINT", "SIGTERM", "SIGHUP")
        if (number := getattr(signal, name, None))
    ]
    before: dict[int, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        name = signal.Signals(number).name
        if name == "SIGHUP":
            signal.signal(number, signal.SIG_IGN)
            console.notice(f"{name}: finishing the step and saving")
            return
        console.notice(f"{name}: finishing the step and saving; once more stops at once")
        for one in before.keys() & {signal.SIGINT, signal.SIGTERM}:
            signal.signal(one, before[one])

    try:
        heeded = [number for number in ending if signal.getsignal(number) != signal.SIG_IGN]
        before |= {number: signal.signal(number, note) for number in heeded}
    except ValueError:  # not the main thread: signals are its caller's business
        yield caught
        return
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
