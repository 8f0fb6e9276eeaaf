"""What each record is compared, tied and split by: its questions, tools and calls, in few bytes."""

import re
import sys
import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from agentlite.core.records import ANY_TOOL, Call, Record, digest, to_json

SHORTEST_QUERY = 16  # bytes: few Chinese characters say much
TELLING = 16  # bytes of values in arguments from which equal ones are hardly chance
# the first that a text holds: Japanese has Han characters too, and every script has Latin names
SCRIPTS = {
    "Kana": re.compile("[\u3040-\u30ff]"),
    "Hangul": re.compile("[\uac00-\ud7af]"),
    "Han": re.compile("[\u3400-\u9fff]"),
    "Cyrillic": re.compile("[\u0400-\u04ff]"),
    "Arabic": re.compile("[\u0600-\u06ff]"),
    "Devanagari": re.compile("[\u0900-\u097f]"),
    "Latin": re.compile("[A-Za-z\u00c0-\u024f]"),
}


class Traits(NamedTuple):
    """What ties a record to others, and where it counts.

    `query`: the first user turn that is long enough to ask something, normalized; the first one,
    if none is. `queries`: 8 bytes for that and for each later such turn. `parents`: its own id,
    that of the record it was made from, and those it was joined from.

    Of 64 bits each are: `shape`, the names of the tools on offer, and of those called, in order.
    `calls`: that with the arguments; 0 where no call has any. `context`: the tools on offer with
    their schemas and all that is said before the first turn to learn. `first_calls`: those of that
    turn; 0 where the data does not say the arguments of one. `first_names`: the tools they call.

    `value_bytes`: of the values in the arguments; many make it unlikely that two records share them
    by chance.
    """

    id: str
    split: str
    source: str
    task: str
    query: str
    queries: tuple[bytes, ...]
    tools: tuple[str, ...]
    parents: tuple[str, ...]
    shape: int
    calls: int
    context: int
    first_calls: int
    first_names: int
    value_bytes: int


def traits(record: Record) -> Traits:
    questions = queries(record)
    message_calls = [_comparable_calls(message.calls) for message in record.messages]
    turns = [message_calls[turn] for turn in record.turns]
    names = [sorted(name for name, _ in calls) for calls in turns if calls]
    offer = sorted(tool.name for tool in record.tools)
    has_arguments = any(arguments for calls in turns for _, arguments in calls)
    first_turn = next(
        (turn for turn in record.turns if record.messages[turn].loss), len(record.messages)
    )
    schemas = sorted((tool.name, _encode(tool.parameters)) for tool in record.tools)
    before = [
        (message.role, comparable_value(message.content).rstrip(".?!。"), calls)
        for message, calls in zip(record.messages[:first_turn], message_calls, strict=False)
    ]
    # of one turn; empty where none is learned
    first = message_calls[first_turn : first_turn + 1]
    return Traits(
        record.id,
        record.split,
        sys.intern(record.source),
        record.task,
        questions[0],
        tuple(bytes.fromhex(digest(query)) for query in questions if query),
        tuple(sorted(map(sys.intern, expected_tools(record)))),
        parents(record),
        shape=_hash((offer, names)),
        calls=_hash((offer, [calls for calls in turns if calls])) if has_arguments else 0,
        context=_hash((schemas, before)),
        first_calls=0 if first and record.unknown_arguments(first_turn) else _hash(first),
        first_names=_hash([sorted(name for name, _ in calls) for calls in first]),
        value_bytes=sum(_count_bytes(arguments) for calls in turns for _, arguments in calls),
    )


def parents(record: Record) -> tuple[str, ...]:
    """Its own id, that of the record it was made from, and those it was joined from."""
    return tuple(filter(None, (record.id, record.parent, *record.meta.get("joined", []))))


def queries(record: Record) -> list[str]:
    """The user turns that are long enough to ask something, normal; the first one, if none is."""
    texts = _user_texts(record)
    return [text for text in texts if len(_bytes(text)) >= SHORTEST_QUERY] or texts[:1] or [""]


def first_query(record: Record) -> str:
    """What the user says first, or what a plain text says."""
    return next(iter(_user_texts(record)), "")


def _user_texts(record: Record) -> list[str]:
    turns = record.messages if record.is_text else [m for m in record.messages if m.role == "user"]
    return [normalize(message.content) for message in turns]


def script_of(text: str) -> str:
    """What may be told of a language without guessing."""
    return next((name for name, letters in SCRIPTS.items() if letters.search(text)), "other")


def normalize(text: str) -> str:
    """Text without case, blanks and punctuation; of other scripts too."""
    # "?!" stays as it is
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", text).casefold()) or text


def dialog_text(record: Record) -> str:
    """What is said and called in a dialog, as one text.

    Without the system turn and the tools: they are the same in thousands of records that have
    nothing else in common.
    """
    texts: list[str] = []
    for message in record.messages:
        if message.role != "system":
            texts.append(message.content)
            texts += (f"{call.name} {to_json(call.arguments)}" for call in message.calls)
    return "\n".join(filter(None, texts))


def expected_tools(record: Record) -> set[str]:
    """Names of the tools that are expected at any turn."""
    return {call.name for turn in record.turns for call in record.gold_at(turn).calls} - {ANY_TOOL}


def always_expects_calls(record: Record) -> bool:
    """Whether the record expects some call, and no turn expects that there is none."""
    return bool(expected_tools(record)) and all(gold.calls for gold in record.gold.values())


def comparable_value(value: object) -> Any:
    """A value to compare by: texts but for case and blanks, and 3.0 as 3."""
    if isinstance(value, dict):
        return {key: comparable_value(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [comparable_value(inner) for inner in value]
    if isinstance(value, str):
        return " ".join(unicodedata.normalize("NFKC", value).casefold().split())
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _comparable_calls(calls: Sequence[Call]) -> list[tuple[str, dict[str, Any]]]:
    """Without ids, and sorted: the calls of one turn have no order."""
    return sorted(((call.name, comparable_value(call.arguments)) for call in calls), key=_encode)


def _count_bytes(value: object) -> int:
    if isinstance(value, dict | list):
        return sum(map(_count_bytes, value.values() if isinstance(value, dict) else value))
    return 0 if value is None or isinstance(value, bool) else len(_bytes(str(value)))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _encode(value: object) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _hash(value: object) -> int:
    return int(digest(_encode(value).decode()), 16)
