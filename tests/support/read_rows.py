"""Rows of files and of texts, read as `prep` reads them."""

import io
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.samples import DATA

from agentlite.core.errors import RowError
from agentlite.core.records import to_row
from agentlite.data.formats import to_record
from agentlite.data.formats.raw_rows import Raw, read_raw

EMPTY = io.BytesIO()


def from_stdin(content: bytes) -> list[Raw]:
    return list(read_raw("-", io.BytesIO(content)))


def rows_of(path: Path) -> list[Raw]:
    return list(read_raw(str(path), EMPTY))


def openai_dialogs() -> list[dict[str, Any]]:
    """Dialogs of several formats as OpenAI's messages with their tools."""
    found = []
    for name in ("openai", "anthropic", "sharegpt", "hermes_fc", "toolace"):
        for raw in rows_of(DATA / "formats" / f"{name}.jsonl"):
            with suppress(RowError):
                written = json.loads(json.dumps(to_row(to_record(raw.value))))
                for message in written["messages"]:
                    message.pop("loss", None)
                tools = json.loads(written["tools"])
                found.append({"messages": written["messages"], "tools": tools})
    return found


def rejected(act: Callable[[], Any]) -> str:
    with pytest.raises(RowError) as caught:
        act()
    return caught.value.code
