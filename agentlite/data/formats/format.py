"""What a format is, and what the readers of all formats share: fields, and what none of them reads.

Calls, results and words are refused under keys that are not read, so that none is lost.
"""

import functools
import json
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.core.errors import RowError, UserError, suggest
from agentlite.core.plain_words import kind_of
from agentlite.core.records import Message, Record, to_json

Row = dict[str, Any]
# calls and results as LangChain, LlamaIndex, the AI SDK, Gemini, AG2 and others name them
CALLS_KEY = re.compile(
    r"(?:invalid_)?(?:tool|function)_?(?:call|use|invocation|response|result)s?"
    r"|(?:tool|function)_?call_?id",
    re.IGNORECASE,
)
# where others keep what a message says
TEXT_KEYS = ("text", "parts", "blocks", "items", "value", "refusal", "thought", "thoughts")
RESULT_KEYS = ("output", "result", "results", "response", "observation", "data", "value", "return")
CALLS_DEPTH = 4
PREFERENCE = (
    "A preference, as of When2Call: `agentlite pairs --preferences FILE` and `agentlite dpo` learn "
    "it. To imitate the better answer alone, write rows with {0} as the last turn."
)


class Format(NamedTuple):
    """How rows of a format are known, and how they are read.

    `keys`: what each row of it has, and of which type; `shape`: whether a row with these keys is
    one of it; `samples`: the rows that one row stands for, where it holds several samples.
    """

    name: str
    read: Callable[..., Record]
    keys: Mapping[str, Any] = {}
    shape: Callable[[Row], bool] = lambda row: True
    samples: Callable[[Row], list[Row]] = lambda row: [row]

    @property
    def example(self) -> str:
        """A row of it, which `examples.jsonl` has beside the readers."""
        lines = Path(__file__).with_name("examples.jsonl").read_text("utf-8").splitlines()
        return next(to_json(e["row"]) for e in map(json.loads, lines) if e["format"] == self.name)

    def fits(self, row: Row) -> bool:
        for key, types in self.keys.items():
            value = row.get(key)
            if value is None or not isinstance(value, types):
                return False
        return self.shape(row)


def omit(row: Row, *keys: str) -> Row:
    """The fields of a row but these. Nulls, as Arrow fills them in, say nothing and go as well."""
    return {key: value for key, value in row.items() if key not in keys and value is not None}


def as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def meta_of(row: Row, *known_keys: str, **fields: object) -> dict[str, Any]:
    """The row's own id; what is named, unless empty; what its format does not know, as "extra"."""
    meta = {**fields, "extra": omit(row, "id", *known_keys)}
    # an id of 0 is one
    source_id = {"source_id": str(row["id"])} if row.get("id") not in (None, "") else {}
    return {**source_id, **{key: value for key, value in meta.items() if value}}


def extra_by_turn(messages: Iterable[Row], known_keys: Set[str]) -> dict[str, Row]:
    """The values of messages under unknown keys, by the number of the message."""
    return {
        str(number): extra
        for number, message in enumerate(messages, 1)
        if not message.keys() <= known_keys and (extra := omit(message, *known_keys))
    }


def stated_value(meta: Mapping[str, Any], key: str) -> object:
    """What a row states under a key of its own, or of its `metadata` or `meta`; None if nothing."""
    value = meta.get("extra")
    extra: Mapping[str, Any] = value if isinstance(value, dict) else {}
    for fields in (meta, extra, extra.get("metadata"), extra.get("meta")):
        if isinstance(fields, Mapping) and fields.get(key) is not None:
            return fields[key]
    return None


def text_at(row: Row, key: str) -> str:
    """The text under a key, "" without it. Raises RowError E216 for a value that is not text."""
    value = row.get(key)
    if value is not None and not isinstance(value, str):
        raise RowError("E216", f"{key} is {kind_of(value)}, not text")
    return value or ""


def dialog(system: str, exchanges: Iterable[tuple[str, str]]) -> tuple[Message, ...]:
    """Questions and their answers as turns."""
    messages = [Message("system", system)] if system else []
    for question, answer in exchanges:
        messages += [Message("user", question), Message("assistant", answer)]
    return tuple(messages)


def refuse_unread(message: Row, keys: Set[str], position: str, *, has_calls: bool = False) -> None:
    """Raises RowError E206 for calls under a key that is not in `keys`, E216 for a message without
    content whose words or result stand under another. `has_calls`: the calls of the message were
    read, and others may repeat them.
    """
    if message.keys() <= keys:
        return
    is_result = message.get("role", message.get("from")) in ("tool", "function", "observation")
    for key, value in message.items():
        if key in keys or not value:
            continue
        calls_key = key if isinstance(value, list | dict) and CALLS_KEY.fullmatch(key) else ""
        if not calls_key and not is_result:
            calls_key = next(_call_keys(value, CALLS_DEPTH), "")
        # invalid_tool_calls, as LangChain has them, repeat none of those that were read
        if calls_key and (not has_calls or calls_key.startswith("invalid")):
            key_path = repr(key) if calls_key == key else f"{key!r}, as {calls_key!r},"
            hint = "Write them as OpenAI's rows do; take the key out if it only repeats them."
            raise RowError(
                "E206", f"calls or results under {key_path} are not read ({position})", hint, key
            )
    if message.get("content") or message.get("value"):
        return
    for key in (*TEXT_KEYS, *(RESULT_KEYS if is_result else ())):
        if message.get(key) and key not in keys:
            reason = f"no content, and something under {key!r}, which is not read ({position})"
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


# --- the setting `format`, of NAME and SOURCE=NAME ---

AUTO = "auto"


def unread_source_fix(name: str, sources: Sequence[str]) -> str:
    """The fix for a name that none of the sources has: what is there is only not named."""
    if name.startswith("bfcl:") or Path(name).exists():
        return f"Name {name} as a source too: agentlite prep ... {shlex.quote(name)}"
    return suggest(name, sources)


@functools.cache
def format_of(formats: tuple[str, ...], source: str) -> str | None:
    """The format given for a source, or else for all; None where each row shows its own."""
    # "old.jsonl=alpaca" -> ("old.jsonl", "=", "alpaca"); "alpaca" -> ("", "", "alpaca")
    parts = [text.rpartition("=") for text in formats]
    names = [name for path, equals, name in parts if equals and Path(source).is_relative_to(path)]
    name = [*names, *(name for _, equals, name in parts if not equals), AUTO][0]
    return None if name == AUTO else name


def check_formats(formats: Sequence[str], sources: Sequence[str], names: Collection[str]) -> None:
    """Raises UserError 2 for a name that no format has, and a source that is not read."""
    for text in formats:
        path, _, name = text.rpartition("=")
        if name not in (*names, AUTO):
            raise UserError(
                f"unknown format {name!r}.", suggest(name, [*names, AUTO]), location="--format"
            )
        if path and not any(Path(source).is_relative_to(path) for source in sources):
            problem = f"{text!r} names {path}, which is not read."
            raise UserError(problem, unread_source_fix(path, sources), location="--format")
