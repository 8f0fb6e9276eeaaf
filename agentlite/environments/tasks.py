"""Tasks of an environment: what the user asks first, and the row that its world is reset with."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Message, canonical, digest
from agentlite.core.row_files import read_rows
from agentlite.data.formats.openai import ROLES


class EnvironmentTask(NamedTuple):
    """`id`: the task's own, or a digest of its row. `messages`: the first; none where the world's
    reset says what the user asks.
    """

    id: str
    messages: tuple[Message, ...]
    row: dict[str, Any]


def read_tasks(path: Path) -> Iterator[EnvironmentTask]:
    """JSON lines as TRL has them: `prompt`, a text or messages; and columns of the environment's.

    Raises UserError 2 with the line of one that cannot be read.
    """
    for number, row in enumerate(read_rows(path), 1):
        try:
            yield task_of(row)
        except RowError as error:
            raise UserError(
                f"{error}.",
                'A task is {"prompt": "..."}, or a list of messages there, with the columns that '
                "the environment's reset takes.",
                location=f"{path}:{number}",
            ) from error


def task_of(row: dict[str, Any]) -> EnvironmentTask:
    """Raises RowError E201."""
    given = row.get("prompt", [])
    messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(messages, list):
        raise RowError("E201", "prompt is neither a text nor a list of messages")
    name = row.get("id")
    return EnvironmentTask(
        name if isinstance(name, str) and name else digest(canonical(row)),
        tuple(map(_message, messages)),
        row,
    )


def _message(message: Any) -> Message:
    if not isinstance(message, dict) or not isinstance(message.get("content"), str):
        raise RowError("E201", "a message of prompt has no role and text")
    role = ROLES.get(message.get("role", ""))
    if role not in ("system", "user"):
        raise RowError("E201", "a message of prompt is neither the system's nor the user's")
    return Message(role, message["content"])
