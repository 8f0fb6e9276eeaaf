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


def history(row: dict[str, object]) -> list[tuple[str, str]]:
    """The exchanges before the last: [[question, answer], ...]. Raises RowError E201."""
    given = row.get("history") or []
    if not isinstance(given, list):
        raise RowError("E201", "history is not a list of questions and answers")
    for exchange in given:
        if not (
            isinstance(exchange, list)
            and len(exchange) == 2
            and all(isinstance(text, str) for text in exchange)
        ):
            raise RowError(
                "E201", "history: an exchange is a list of two texts, a question and its answer"
            )
    return [(question, answered) for question, answered in given]


def dialog(system: str, exchanges: Iterable[tuple[str, str]]) -> tuple[Message, ...]:
    messages = [Message("system", system)] if system else []
    for question, answered in exchanges:
        messages += [Message("user", question), Message("assistant", answered)]
    return tuple(messages)
