"""Hashes of a record's questions, tools and calls, by which records are compared."""

import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from agentlite.core.records import Call, Message, Record, digest, plain


class Keys(NamedTuple):
    """64 bits each. `shape`: the names of the tools on offer, and of those called, in order.
    `calls`: that with the arguments; 0 where no call has any. `context`: the tools on offer with
    their schemas and all that is said before the first turn to learn. `first`: the calls of that
    turn; 0 where the data does not say the arguments of one. `first_names`: the tools they call.

    `value_bytes`: of the values in the arguments; many make it unlikely that two records share them
    by chance.
    """

    shape: int
    calls: int
    context: int
    first: int
    first_names: int
    value_bytes: int

    def contradicts(self, other: "Keys") -> bool:
        """Whether the two share a context and expect different calls in it. Arguments that are not
        known contradict none.
        """
        return self.context == other.context and (
            self.first_names != other.first_names
            or (self.first != other.first and bool(self.first and other.first))
        )


def keys(record: Record) -> Keys:
    turns = [_comparable(record.messages[turn].calls) for turn in record.turns]
    names = [sorted(name for name, _ in calls) for calls in turns if calls]
    offer = sorted(tool.name for tool in record.tools)
    has_arguments = any(arguments for calls in turns for _, arguments in calls)
    learned = next(
        (turn for turn in record.turns if record.messages[turn].loss), len(record.messages)
    )
    schemas = sorted((tool.name, encoded(tool.parameters)) for tool in record.tools)
    before = [_message_key(message) for message in record.messages[:learned]]
    first = [_comparable(message.calls) for message in record.messages[learned : learned + 1]]
    is_known = not first or not record.unknown_arguments(learned)
    return Keys(
        shape=_hash((offer, names)),
        calls=_hash((offer, [calls for calls in turns if calls])) if has_arguments else 0,
        context=_hash((schemas, before)),
        first=_hash(first) if is_known else 0,
        first_names=_hash([sorted(name for name, _ in calls) for calls in first]),
        value_bytes=sum(_size(arguments) for calls in turns for _, arguments in calls),
    )


def dialog_text(record: Record) -> str:
    """What is said and called in a dialog, as one text.

    Without the system turn and the tools: they are the same in thousands of records that have
    nothing else in common.
    """
    messages = [message for message in record.messages if message.role != "system"]
    return "\n".join(
        part
        for message in messages
        for part in (
            message.content,
            *(f"{call.name} {plain(call.arguments)}" for call in message.calls),
        )
        if part
    )


def comparable(value: object) -> Any:
    """A value so that values meant to be the same are equal: texts but for case and blanks, 3.0 and
    3.
    """
    if isinstance(value, dict):
        return {key: comparable(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [comparable(inner) for inner in value]
    if isinstance(value, str):
        return " ".join(unicodedata.normalize("NFKC", value).casefold().split())
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _comparable(calls: Sequence[Call]) -> list[tuple[str, dict[str, Any]]]:
    """Without ids, and sorted: the calls of one turn have no order."""
    return sorted(((call.name, comparable(call.arguments)) for call in calls), key=encoded)


def _message_key(message: Message) -> tuple[str, str, Any]:
    return message.role, comparable(message.content).rstrip(".?!。"), _comparable(message.calls)


def _size(value: object) -> int:
    if isinstance(value, dict | list):
        return sum(map(_size, value.values() if isinstance(value, dict) else value))
    if value is None or isinstance(value, bool):
        return 0
    return len(str(value).encode("utf-8", "surrogatepass"))


def encoded(value: object) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _hash(value: object) -> int:
    return int(digest(encoded(value).decode()), 16)
