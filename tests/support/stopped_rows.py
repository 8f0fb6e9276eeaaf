"""A run that is stopped once it has appended so many rows; not a test itself."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agentlite.core.endpoint_pool import USAGE_FILE
from agentlite.core.row_files import Appender


@contextmanager
def stops_at(*counts: int) -> Iterator[None]:
    """KeyboardInterrupt behind each of these rows; those of what servers used do not count."""
    append, done = Appender.append, 0

    def stops(self: Appender, row: object) -> None:
        nonlocal done
        append(self, row)
        done += self.path.name != USAGE_FILE
        if self.path.name != USAGE_FILE and done in counts:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Appender, "append", stops)
        yield
