"""Questions and answers that are plain texts -> messages."""

from collections.abc import Iterable
from typing import Any

from agentlite.core.errors import RowError
from agentlite.core.plain_words import kind
from agentlite.core.records import Message


def text_at(row: dict[str, Any], key: str) -> str:
    """The text under a key, "" without it. Raises RowError E216 for a value that is not text."""
    value = row.get(key)
    if value is not None and not isinstance(value, str):
        raise RowError("E216", f"{key} is {kind(value)}, not text")
    return value or ""


def history(row: dict[str, Any]) -> list[tuple[str, str]]:
    """The exchanges before the last: [[question, answer], ...]."""
    return [(question, answered) for question, answered in row.get("history") or []]


def dialog(system: str, exchanges: Iterable[tuple[str, str]]) -> tuple[Message, ...]:
    messages = [Message("system", system)] if system else []
    for question, answered in exchanges:
        messages += [Message("user", question), Message("assistant", answered)]
    return tuple(messages)
