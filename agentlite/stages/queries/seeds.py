"""The queries to begin with: of the training records of a prep, or of a file of texts."""

import io
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.config.settings import QueriesSettings
from agentlite.core.errors import UserError
from agentlite.core.records import Tool, from_row
from agentlite.core.row_files import find_rows, read_rows
from agentlite.data.curation.traits import normal
from agentlite.data.formats import read_raw
from agentlite.data.formats.json_decode import json_value
from agentlite.workspace import run_folder
from agentlite.workspace.digests import file_digest

KEYS = ("text", "query", "prompt", "question", "instruction")  # of a text in a row


class SeedQuery(NamedTuple):
    """`tools`: those on offer where it was asked."""

    text: str
    tools: tuple[Tool, ...] = ()


class Seeds(NamedTuple):
    """`name`: of the input in a plan."""

    name: str
    digest: str
    queries: list[SeedQuery]


def find_seeds(settings: QueriesSettings, run: Path) -> Seeds:
    """Each query once."""
    if settings.queries:
        path = Path(settings.queries)
        every, name, digest = [*_of_file(path)], str(path), file_digest(path)
    else:
        folder = run_folder.find_stage(settings.data, run)
        rows = find_rows(folder, "train")
        digest = run_folder.finished(folder, "prep").outputs[rows.name]
        every, name = [*_of_records(rows)], "data"
    unique = {normal(query.text): query for query in reversed(every)}
    queries = [query for query in every if unique[normal(query.text)] is query]
    if not queries:
        raise UserError(
            "holds no query.",
            "Name a prep whose training records begin with a user, or a file: --queries FILE.",
            location=settings.queries or f"--data {shlex.quote(settings.data)}",
        )
    return Seeds(name, digest, queries)


def _of_records(rows: Path) -> Iterator[SeedQuery]:
    for record in map(from_row, read_rows(rows)):
        first = next((message.content for message in record.messages if message.role == "user"), "")
        if first.strip():
            yield SeedQuery(first, record.tools)


def _of_file(path: Path) -> Iterator[SeedQuery]:
    """A text, or an object with one under a usual key, in each line."""
    if not path.is_file():
        raise UserError("no such file.", "Name a JSONL file of texts.", location=str(path))
    for raw in read_raw(str(path), io.BytesIO()):
        value: Any = None
        if not raw.error:
            texts = (raw.value[key] for key in KEYS if isinstance(raw.value.get(key), str))
            value = next(texts, "")
        elif raw.error.code == "E201":  # JSON, but no object: a text stands alone
            value = json_value(raw.content.decode("utf-8-sig"))
        text = value.strip() if isinstance(value, str) else ""
        if not text:
            raise UserError(
                "not a query.",
                'Write "a text" or {"text": "..."} in each line.',
                location=raw.location,
            )
        yield SeedQuery(text)
