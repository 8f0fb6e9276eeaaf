"""agentlite's own rows, as prep writes them -> Record."""

from typing import Any

import msgspec

from agentlite.errors import RowError
from agentlite.records import Record, from_row

EXAMPLE = (
    '{"id": "", "parent": "", "source": "mine.jsonl", "task": "general", "split": "train", "messages": [{"role": '
    '"user", "content": "Good morning"}, {"role": "assistant", "content": "Good morning!"}], "tools": "[]", '
    '"gold": "{}", "meta": "{}"}'
)
TEXTS = ("parent", "source", "task", "split", "tools", "gold", "meta")


def fits(row: dict[str, Any]) -> bool:
    return isinstance(row.get("messages"), list) and all(isinstance(row.get(key), str) for key in TEXTS)


def read(row: dict[str, Any]) -> Record:
    """Raises RowError E201 with what does not fit."""
    try:
        return msgspec.convert(msgspec.to_builtins(from_row(row)), Record)
    except msgspec.ValidationError as error:
        raise RowError("E201", str(error)) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RowError("E201", f"not as prep writes it: {type(error).__name__} {error}") from error
