"""Rows whose fields are plain texts, of Alpaca, self-cognition and raw text -> Record."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.records import Message, Record
from agentlite.data.formats.format import Format, Row, dialog, meta_of, text_at

LANGUAGES = ("zh", "en")
HAN = re.compile(r"[\u4e00-\u9fff]")
PLACEHOLDER = re.compile(r"\{\{(NAME|AUTHOR|name|author)\}\}")
# how somebody says who they are, where the names of a letter, or of code, are others
OWN = re.compile(
    r"(?:\b(?:I am|I['’]m|name is|call(?:ed)? me|\w+ed by|built by|made by)"
    r"|我是|我叫|名字?[是叫]|由)"
    r"\s*\{\{(?:name|author)\}\}",
    re.IGNORECASE,
)
NAMES_HINT = "Set who the model is: --set prep.model_name=[Dove] --set prep.model_author=[Ada]."
# a key that describes a text: not a part of a dialog, a question or a label; `text` is one
METADATA = re.compile(
    r"text|(?:.*_)?(?:added|category|count|created|dataset|date|domain|dump|file|hash|id|index"
    r"|lang|language|licen[cs]e|meta|metadata|name|number|path|quality|scores?|source|split|subset"
    r"|tags?|time|timestamp|title|tokens|topics?|type|uri|url|uuid|version|views|words|year)",
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


def read_self_cognition(row: Row) -> Record:
    return Record(
        messages=dialog("", [(row["query"], row["response"])]),
        task="self_cognition",
        meta=meta_of(row, "query", "response", "tag", tag=row["tag"]),
    )


def with_names(record: Record, name: Sequence[str] = (), author: Sequence[str] = ()) -> Record:
    """The record with its placeholders filled in: of two names with the first in Chinese, and with
    the second in any other language. Raises RowError E216 for one that would be trained.
    """
    if not any("{{" in message.content for message in record.messages):
        return record
    names = {"NAME": name, "AUTHOR": author}
    messages = tuple(_with_names(message, names, record) for message in record.messages)
    is_own = messages != record.messages and record.task == "general"
    return replace(record, messages=messages, task="self_cognition" if is_own else record.task)


def _with_names(message: Message, names: Mapping[str, Sequence[str]], record: Record) -> Message:
    text, tag = message.content, record.meta.get("tag")
    is_learned = message.role == "assistant" and message.loss
    is_chinese = tag == "zh" if tag in LANGUAGES else bool(HAN.search(text))
    places = {place[0]: place[1] for place in PLACEHOLDER.finditer(text)}
    says_who = OWN.search(text)
    for place, key in places.items():
        if key.islower() and not says_who:
            continue
        if given := names[key.upper()]:
            text = text.replace(place, given[0 if is_chinese else -1])
        elif is_learned or record.task == "self_cognition":
            reason = f"{place} would be learned as it stands: nothing is set for it"
            raise RowError("E216", reason, NAMES_HINT, place)
    return replace(message, content=text)


def read_text(row: Row) -> Record:
    """One assistant turn without a prompt."""
    text = row["text"]
    if not text.strip():
        raise RowError("E216", "the text is blank")
    return Record(messages=(Message("assistant", text),), meta=meta_of(row, "text", whole=True))


def foreign_keys(row: Mapping[str, Any]) -> list[str]:
    """The keys beside `text` that are not metadata: of a dialog, labels, or anything unknown."""
    return [key for key, value in row.items() if value is not None and not METADATA.fullmatch(key)]


ALPACA = Format("alpaca", read_alpaca, {"instruction": str, "output": str})
SELF_COGNITION = Format(
    "self_cognition",
    read_self_cognition,
    {"query": str, "response": str, "tag": str},
    lambda row: row["tag"] in LANGUAGES,
)
TEXT = Format("text", read_text, {"text": str}, lambda row: not foreign_keys(row))
