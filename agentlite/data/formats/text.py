"""Plain text rows, {"text"} -> Record: one assistant turn without a prompt."""

from typing import Any

from agentlite.core.errors import RowError
from agentlite.core.records import Message, Record
from agentlite.data.formats.extra_fields import meta_of

EXAMPLE = '{"text": "Rain is measured in millimetres: one is a litre on a square metre."}'
# a row with one of these is a dialog, and its text the same dialog as someone rendered it
DIALOGS = (
    "messages",
    "conversations",
    "conversation",
    "instruction",
    "prompt",
    "query",
    "question",
    "chat",
    "turns",
)


def fits(row: dict[str, Any]) -> bool:
    return isinstance(row.get("text"), str) and all(row.get(key) is None for key in DIALOGS)


def read(row: dict[str, Any]) -> Record:
    """Raises RowError E201 for a row without text, E216 where it is blank."""
    text = row.get("text")
    if not isinstance(text, str):
        raise RowError("E201", "a row of text has its text under the key text")
    if not text.strip():
        raise RowError("E216", "the text is blank")
    return Record(messages=(Message("assistant", text),), meta=meta_of(row, "text", whole=True))
