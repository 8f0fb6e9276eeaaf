"""Finds the records whose steps are asked: of a finished prep, a file or stdin."""

import hashlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Gold, Message, Record, from_row
from agentlite.core.row_files import Row, read_rows, row_file
from agentlite.data.curation.validate import validate
from agentlite.data.formats import FORMATS, find_samples, reshape, to_record
from agentlite.data.formats.format import omit
from agentlite.data.formats.raw_rows import raw_files, read_raw, source_name
from agentlite.rendering import choose
from agentlite.workspace import lookup
from agentlite.workspace.input_files import file_digest, load_template
from agentlite.workspace.lookup import Source

# keys of an answer to `prompt`: such a row is more than a prompt
ANSWERS = frozenset({"gold", "completion", "chosen", "rejected", "response", "output"})
STAND_IN = "x"  # the answer of a prompt that nobody has answered: no prompt shows it


class Prompts(NamedTuple):
    """Where the records are, their digest, the model's protocol, and whether prep wrote them."""

    location: str
    digest: str
    protocol: str
    prepared: bool
    content: bytes = b""  # of stdin, which can be read once

    def records(self) -> Iterator[Record]:
        """Every record, once. Raises UserError with file and line for a row that is none."""
        rows = (
            map(from_row, read_rows(Path(self.location)))
            if self.prepared
            else _read_prompts(self.location, self.content)
        )
        return iter({record.id: record for record in rows}.values())


def prompts_of_prep(data: str, split: str, run: Path) -> Prompts:
    prep = lookup.find_finished_stage(data, run, "prep")
    path = row_file(prep.folder, split)
    return Prompts(str(path), prep.outputs[path.name], prep.settings["protocol"], True)


def find_prompts(data: str, split: str, source: Source, run: Path) -> Prompts:
    """The `split` of a finished prep; or rows of any format that prep reads."""
    if data != "-" and not Path(data).is_file():
        return prompts_of_prep(data, split, run)
    protocol = source.settings.get("protocol") or choose("auto", load_template(source.base)).setting
    content, digest = b"", ",".join(map(file_digest, raw_files(data)))
    if data == "-":
        content = sys.stdin.buffer.read()
        digest = hashlib.sha256(content).hexdigest()
    return Prompts(data, digest, protocol, False, content)


def _read_prompts(source: str, content: bytes) -> Iterator[Record]:
    for raw in read_raw(source, io.BytesIO(content)):
        try:
            # nulls go first: Arrow fills them into absent keys, and they would look like answers
            name, row_samples = find_samples(_as_messages(reshape(omit(raw.row))))
            records = [_add_stand_in(to_record(sample, name)) for sample in row_samples]
            for record in records:
                validate(record, answered=False)
        except RowError as error:
            fix = (
                'A prompt is a question, {"prompt": ..., "tools": [...]}, with its gold: `gold`, '
                "or the right answer as last turn. Correct it; prep sets bad rows aside."
            )
            raise UserError(f"{error.code} {error.reason}.", fix, location=raw.location) from error
        name = source_name(source)
        yield from (replace(record, source=record.source or name) for record in records)


def _as_messages(row: Row) -> Row:
    """A prompt alone, a text or messages, as messages: no format of training rows has it."""
    prompt = row.get("prompt")
    if (
        not isinstance(prompt, str | list)
        or not row.keys().isdisjoint(ANSWERS)
        or any(row_format.fits(row) for row_format in FORMATS.values())
    ):
        return row
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    return {**omit(row, "prompt"), "messages": messages}


def _add_stand_in(record: Record) -> Record:
    """A dialog that waits for the assistant, with a stand-in for its answer, which is not trained
    and no gold; any other as it is.
    """
    if not record.messages or record.messages[-1].role not in ("user", "tool"):
        return record
    stand_in, turn = Message("assistant", STAND_IN, loss=False), len(record.messages)
    messages, gold = (*record.messages, stand_in), {**record.gold, turn: Gold(known=False)}
    return replace(record, messages=messages, gold=gold)
