"""A run that is stopped once it has appended so many rows; not a test itself."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agentlite.core.row_files import Appender


@contextmanager
def stops_at(*counts: int) -> Iterator[None]:
    """KeyboardInterrupt behind each of these rows."""
    append, done = Appender.append, 0

    def stops(self: Appender, row: object) -> None:
        nonlocal done
        append(self, row)
        done += 1
        if done in counts:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Appender, "append", stops)
        yield
