"""What each record is compared, tied and split by: its queries, calls, tools, parent and source."""

import re
import struct
import sys
import unicodedata
from typing import NamedTuple

from agentlite.core.records import ANY_TOOL, Record, digest
from agentlite.data.curation.fingerprints import Keys, keys

SHORTEST_QUERY = 16
KEYS = "<6Q"  # 48 bytes; six numbers in a tuple take six times as much


class Traits(NamedTuple):
    """What ties a record to others, and where it counts; of every record in memory, and therefore
    small.

    `query`: the first user turn that is long enough to ask something, normal; the first one, if
    none is. `packed_queries`: 8 bytes for that and for each later such turn. `parents`: its own id,
    that of the record it was made from, and those it was joined from.
    """

    id: str
    split: str
    source: str
    task: str
    query: str
    packed_queries: bytes
    tools: tuple[str, ...]
    parents: tuple[str, ...]
    packed_keys: bytes

    @property
    def queries(self) -> list[bytes]:
        return [
            self.packed_queries[start : start + 8]
            for start in range(0, len(self.packed_queries), 8)
        ]

    @property
    def keys(self) -> Keys:
        return Keys(*struct.unpack(KEYS, self.packed_keys))


def traits(record: Record) -> Traits:
    questions = queries(record)
    query_hashes = b"".join(bytes.fromhex(digest(query)) for query in questions if query)
    tools = tuple(sorted(map(sys.intern, expected_tools(record))))
    return Traits(
        record.id,
        record.split,
        sys.intern(record.source),
        record.task,
        questions[0],
        query_hashes,
        tools,
        parents(record),
        struct.pack(KEYS, *keys(record)),
    )


def parents(record: Record) -> tuple[str, ...]:
    """Its own id, that of the record it was made from, and those it was joined from."""
    return tuple(filter(None, (record.id, record.parent, *record.meta.get("joined", []))))


def queries(record: Record) -> list[str]:
    """The user turns that are long enough to ask something, normal; the first one, if none is."""
    return [text for text in _user_texts(record) if _asks(text)] or [first_query(record)]


def normal(text: str) -> str:
    """Text without case, blanks and punctuation; of other scripts too."""
    kept = re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", text).casefold())
    return kept or text


def first_query(record: Record) -> str:
    """What the user says first, or what a plain text says."""
    return next(iter(_user_texts(record)), "")


def expected_tools(record: Record) -> set[str]:
    """Names of the tools that are expected at any turn."""
    return {call.name for turn in record.turns for call in record.expected(turn).calls} - {ANY_TOOL}


def always_expects_calls(record: Record) -> bool:
    """Whether the record expects some call, and no turn expects that there is none."""
    return bool(expected_tools(record)) and all(gold.calls for gold in record.gold.values())


def _user_texts(record: Record) -> list[str]:
    turns = record.messages if record.is_text else [m for m in record.messages if m.role == "user"]
    return [normal(message.content) for message in turns]


def _asks(text: str) -> bool:
    """In bytes: few Chinese characters say much."""
    return len(text.encode("utf-8", "surrogatepass")) >= SHORTEST_QUERY
