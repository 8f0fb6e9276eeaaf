"""Alpaca rows, {"instruction", "input", "output", "system", "history"} -> Record."""

from typing import Any

from agentlite.core.records import Record
from agentlite.data.formats.extra_fields import dialog, history, meta_of, text_at

EXAMPLE = '{"instruction": "Say it in French.", "input": "Good morning", "output": "Bonjour"}'
FIELDS = {"instruction": str, "output": str}


def read(row: dict[str, Any]) -> Record:
    question = "\n".join(filter(None, (row["instruction"], text_at(row, "input"))))
    return Record(
        messages=dialog(text_at(row, "system"), [*history(row), (question, row["output"])]),
        meta=meta_of(row, "instruction", "input", "output", "system", "history"),
    )
