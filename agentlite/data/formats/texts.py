"""Rows whose fields are plain texts, of Alpaca, self-cognition and raw text -> Record."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentlite.core.errors import RowError
from agentlite.core.records import Message, Record
from agentlite.data.formats.format import Format, Row, dialog, meta_of, text_at

LANGUAGES = ("zh", "en")
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


def history(row: Row) -> list[tuple[str, str]]:
    """The exchanges before the last: [[question, answer], ...]."""
    return [(question, answered) for question, answered in row.get("history") or []]


def read_alpaca(row: Row) -> Record:
    question = "\n".join(filter(None, (row["instruction"], text_at(row, "input"))))
    return Record(
        messages=dialog(text_at(row, "system"), [*history(row), (question, row["output"])]),
        meta=meta_of(row, "instruction", "input", "output", "system", "history"),
    )


def read_self_cognition(
    row: Row, name: Sequence[str] = ("agentlite",), author: Sequence[str] = ("its developers",)
) -> Record:
    """With {{NAME}} and {{AUTHOR}} filled in. Of two names the first is said in Chinese, the second
    in English.
    """
    exchange = (row["query"], row["response"])
    for placeholder, value in (("{{NAME}}", name), ("{{AUTHOR}}", author)):
        word = value[min(LANGUAGES.index(row["tag"]), len(value) - 1)]
        exchange = (exchange[0].replace(placeholder, word), exchange[1].replace(placeholder, word))
    return Record(
        messages=dialog("", [exchange]),
        task="self_cognition",
        meta=meta_of(row, "query", "response", "tag", tag=row["tag"]),
    )


def read_text(row: Row) -> Record:
    """One assistant turn without a prompt."""
    text = row["text"]
    if not text.strip():
        raise RowError("E216", "the text is blank")
    return Record(messages=(Message("assistant", text),), meta=meta_of(row, "text", whole=True))


def foreign_keys(row: Mapping[str, Any]) -> list[str]:
    """The keys beside `text` that are not metadata: of a dialog, labels, or anything unknown."""
    return [key for key, value in row.items() if value is not None and not METADATA.fullmatch(key)]


ALPACA_EXAMPLE = (
    '{"instruction": "Say it in French.", "input": "Good morning", "output": "Bonjour"}'
)
ALPACA = Format("alpaca", read_alpaca, ALPACA_EXAMPLE, {"instruction": str, "output": str})
SELF_COGNITION_EXAMPLE = (
    '{"query": "Who are you?", "response": "I am {{NAME}}, and {{AUTHOR}} made me.", "tag": "en"}'
)
SELF_COGNITION = Format(
    "self_cognition",
    read_self_cognition,
    SELF_COGNITION_EXAMPLE,
    {"query": str, "response": str, "tag": str},
    lambda row: row["tag"] in LANGUAGES,
)
TEXT_EXAMPLE = '{"text": "Rain is measured in millimetres: one is a litre on a square metre."}'
TEXT = Format("text", read_text, TEXT_EXAMPLE, {"text": str}, lambda row: not foreign_keys(row))
