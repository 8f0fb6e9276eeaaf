"""Fields of rows: texts and exchanges; and keys that a format does not know -> meta."""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from agentlite.core.errors import RowError
from agentlite.core.plain_words import kind
from agentlite.core.records import Message


def source_id(row: dict[str, object]) -> dict[str, object]:
    """The row's own id, as meta."""
    return {"source_id": str(row["id"])} if row.get("id") not in (None, "") else {}


def rest(row: dict[str, object], *known: str) -> dict[str, object]:
    """What stands under any other key. Arrow fills in the keys of other rows as null: they say
    nothing.
    """
    return {key: value for key, value in row.items() if key not in known and value is not None}


def meta_of(row: dict[str, Any], *known: str, **named: object) -> dict[str, Any]:
    """The row's own id; what is named, unless empty; and, under "extra", all that its format does
    not know.
    """
    kept = {**named, "extra": rest(row, "id", *known)}
    return {**source_id(row), **{key: value for key, value in kept.items() if value}}


def extra_by_turn(
    messages: Sequence[dict[str, Any]], known: Set[str]
) -> dict[str, dict[str, object]]:
    """The values of messages under unknown keys, by the number of the message."""
    return {
        str(number): more
        for number, message in enumerate(messages, 1)
        if not message.keys() <= known and (more := rest(message, *known))
    }


def stated_in(meta: Mapping[str, Any], key: str) -> object:
    """What a row states under a key of its own, or of its `metadata` or `meta`; None if nothing."""
    own = meta.get("extra")
    extra: Mapping[str, Any] = own if isinstance(own, dict) else {}
    inner = [extra.get(name) for name in ("metadata", "meta")]
    for fields in (meta, extra, *(value for value in inner if isinstance(value, dict))):
        if fields.get(key) is not None:
            return fields[key]
    return None


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
