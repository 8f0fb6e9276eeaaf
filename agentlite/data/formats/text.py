"""Plain text rows, {"text"} -> Record: one assistant turn without a prompt."""

import re
from collections.abc import Mapping
from typing import Any

from agentlite.core.errors import RowError
from agentlite.core.records import Message, Record
from agentlite.data.formats.extra_fields import meta_of

EXAMPLE = '{"text": "Rain is measured in millimetres: one is a litre on a square metre."}'
FIELDS = {"text": str}
# a key that describes a text: not a part of a dialog, a question or a label; `text` is one
METADATA = re.compile(
    r"text|(?:.*[_-])?(?:added|attributes|audience|authors?|book|bytes|category|chapter|chars|chunk"
    r"|collection|corpus|count|country|crawl|created|at|dataset|date|day|description|domain|dump"
    r"|edition|file|filename|filepath|format|genre|hash|headers|host|id|idx|index|isbn|keywords"
    r"|lang|language|length|license|line|link|meta|metadata|month|name|number|origin|page|path"
    r"|perplexity|probability|publication|published|quality|repo|revision|scores?|section|series"
    r"|sha1|sha256|shard|size|source|split|subject|subset|tags?|time|timestamp|title|tokens|topics?"
    r"|type|uid|uri|urls?|uuid|version|views|volume|warc|weight|words|year)",
    re.IGNORECASE,
)


def fits(row: dict[str, Any]) -> bool:
    return not foreign_keys(row)


def foreign_keys(row: Mapping[str, Any]) -> list[str]:
    """The keys beside `text` that are not metadata: of a dialog, labels, or anything unknown."""
    return [key for key, value in row.items() if value is not None and not METADATA.fullmatch(key)]


def read(row: dict[str, Any]) -> Record:
    text = row["text"]
    if not text.strip():
        raise RowError("E216", "the text is blank")
    return Record(messages=(Message("assistant", text),), meta=meta_of(row, "text", whole=True))
