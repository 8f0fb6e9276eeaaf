"""The tokens that models behind servers read and wrote for a stage: counted, and limited."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from agentlite.core.errors import UserError
from agentlite.core.openai_client import Reply
from agentlite.core.row_files import Appender, read_rows

USAGE_FILE = "usage.jsonl"  # no part of the result: a run that was killed has asked for more


class ServerUsage:
    """What a stage has used, over all its runs: every reply that came, also where the run was
    killed before it was kept. Tokens are as the servers count them.
    """

    def __init__(self, path: Path, budget: int | None):
        self.path, self.budget, self.tokens = path, budget, 0
        self.by_model: dict[str, dict[str, int]] = {}
        self.file: Appender | None = None  # else opened with the first reply
        if path.exists():
            self.file = Appender(path)  # cuts a torn line
            for row in read_rows(path):
                self._sum(row["model"], row["tokens_read"], row["tokens_written"])

    def add(self, model: str, reply: Reply) -> None:
        read, written = reply.prompt_tokens, reply.completion_tokens
        self.file = self.file or Appender(self.path)
        self.file.append({"model": model, "tokens_read": read, "tokens_written": written})
        self._sum(model, read, written)

    def _sum(self, model: str, read: int, written: int) -> None:
        figures = self.by_model.setdefault(
            model, {"replies": 0, "tokens_read": 0, "tokens_written": 0}
        )
        figures["replies"] += 1
        figures["tokens_read"] += read
        figures["tokens_written"] += written
        self.tokens += read + written

    @property
    def is_used_up(self) -> bool:
        return self.budget is not None and self.tokens >= self.budget

    def refuse_used_up(self) -> None:
        """Raises UserError 2 if the budget is used up."""
        if self.is_used_up:
            raise UserError(
                f"is used up: the servers have read and written {self.tokens:,} tokens.",
                "The same command with a larger one goes on, and asks nothing again.",
                location=f"--token-budget {self.budget}",
            )

    @property
    def note(self) -> str:
        """For a line of progress."""
        return f"{self.tokens:,} tokens" if self.by_model else ""

    def figures(self) -> dict[str, dict[str, int]]:
        return dict(sorted(self.by_model.items()))


_COUNTED: ContextVar[ServerUsage | None] = ContextVar("server_usage", default=None)


def current() -> ServerUsage | None:
    """Where replies are counted; None outside of `counted`."""
    return _COUNTED.get()


@contextmanager
def counted(folder: Path, budget: int | None) -> Iterator[ServerUsage]:
    """Counts every reply of a server inside, and ends the work where the budget is used up."""
    usage = ServerUsage(folder / USAGE_FILE, budget)
    token = _COUNTED.set(usage)
    try:
        yield usage
    finally:
        _COUNTED.reset(token)
        if usage.file:
            usage.file.__exit__()
