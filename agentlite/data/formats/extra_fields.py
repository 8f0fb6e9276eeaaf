"""Fields of rows: texts and exchanges; and what no format reads -> meta, or a RowError.

Calls, results and words are refused under keys that are not read, so that none is lost.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from agentlite.core.errors import RowError
from agentlite.core.plain_words import kind
from agentlite.core.records import Message

# calls and results as LangChain, LlamaIndex, the AI SDK, Gemini, AG2 and others name them
CALLS_KEY = re.compile(
    r"(?:invalid_)?(?:tool|function)_?(?:call|use|invocation|response|result)s?"
    r"|(?:tool|function)_?call_?id",
    re.IGNORECASE,
)
# where others keep what a message says
WORDS = ("text", "parts", "blocks", "items", "value", "refusal", "thought", "thoughts")
RESULTS = ("output", "result", "results", "response", "observation", "data", "value", "return")
DEEPEST = 4


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
    own_id = {"source_id": str(row["id"])} if row.get("id") not in (None, "") else {}
    return {**own_id, **{key: value for key, value in kept.items() if value}}


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


def refuse_unread(
    message: Mapping[str, Any], read: Collection[str], place: str, *, has_calls: bool = False
) -> None:
    """Raises RowError E206 for calls under a key that is not in `read`, E216 for a message without
    content whose words or result stand under another. `has_calls`: the calls of the message were
    read, and others may repeat them.
    """
    is_result = message.get("role", message.get("from")) in ("tool", "function", "observation")
    for key, value in message.items():
        if key in read or not value:
            continue
        found = key if isinstance(value, list | dict) and CALLS_KEY.fullmatch(key) else ""
        if not found and not is_result:
            found = next(_call_keys(value, DEEPEST), "")
        if found and (not has_calls or found.startswith("invalid")):
            under = repr(key) if found == key else f"{key!r}, as {found!r},"
            reason = f"calls or results under {under} are not read ({place})"
            hint = (
                "Write calls as `tool_calls` of the assistant and each result as a message of the "
                "role `tool`; take the key out if it only repeats them."
            )
            raise RowError("E206", reason, hint, key)
    if message.get("content") or message.get("value"):
        return
    for key in (*WORDS, *(RESULTS if is_result else ())):
        if message.get(key) and key not in read:
            reason = f"no content, and something under {key!r}, which is not read ({place})"
            raise RowError("E216", reason, "Write what is said as `content`.", key)


def _call_keys(value: object, depth: int) -> Iterator[str]:
    """The keys of calls in a value, at any depth that messages have."""
    if isinstance(value, Mapping) and depth:
        for key, inner in value.items():
            if CALLS_KEY.fullmatch(str(key)) and inner and isinstance(inner, str | list | dict):
                yield str(key)
            yield from _call_keys(inner, depth - 1)
    elif isinstance(value, list) and depth:
        for inner in value:
            yield from _call_keys(inner, depth - 1)
