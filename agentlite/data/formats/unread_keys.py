"""Words, calls and results under keys of a message that are not read -> RowError: none is lost."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from agentlite.core.errors import RowError

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
