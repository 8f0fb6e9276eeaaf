"""Self-cognition rows -> Record, with {{NAME}} and {{AUTHOR}} filled in."""

from collections.abc import Sequence
from typing import Any

from agentlite.core.records import Record
from agentlite.data.formats.extra_fields import dialog, meta_of

EXAMPLE = (
    '{"query": "Who are you?", "response": "I am {{NAME}}, and {{AUTHOR}} made me.", "tag": "en"}'
)
FIELDS = {"query": str, "response": str, "tag": str}
LANGUAGES = ("zh", "en")


def fits(row: dict[str, Any]) -> bool:
    return row["tag"] in LANGUAGES


def read(
    row: dict[str, Any],
    name: Sequence[str] = ("agentlite",),
    author: Sequence[str] = ("its developers",),
) -> Record:
    """Of two names the first is said in Chinese, the second in English."""
    question, answered = row["query"], row["response"]
    for placeholder, value in (("{{NAME}}", name), ("{{AUTHOR}}", author)):
        filled = value[min(LANGUAGES.index(row["tag"]), len(value) - 1)]
        question, answered = (
            question.replace(placeholder, filled),
            answered.replace(placeholder, filled),
        )
    return Record(
        messages=dialog("", [(question, answered)]),
        task="self_cognition",
        meta=meta_of(row, "query", "response", "tag", tag=row["tag"]),
    )
