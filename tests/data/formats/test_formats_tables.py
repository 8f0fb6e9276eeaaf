"""agentlite.data.formats: rows of every format, and the records or the reject that each becomes.

tests/support/records holds a table for each format, a case on a line: a `row`, or its number
in tests/support/rows/formats, and its `records`, or the `code` of its reject with the place `at`
that is pointed to. `as`: the format, where the row itself does not show it; `invalid`: what
validate() finds in the records; `why`: what the case is about.
"""

import json
from typing import Any

import pytest
from support.damaged_rows import READ_AS, Row, rows, rows_in
from support.samples import ROOT

from agentlite.core.errors import RowError
from agentlite.core.records import Record, to_row
from agentlite.data.curation.validate import validate
from agentlite.data.formats import FORMATS, detect_format, to_record

FOLDER = ROOT / "tests/support/records"
TABLES = sorted(path.stem for path in FOLDER.glob("*.jsonl"))
RESULT = ("records", "invalid", "code", "at")
NAMES = {"names": {"name": ("agentlite",), "author": ("its developers",)}}
TEXTS = ("tools", "gold", "meta")  # are JSON in a file


def shown(record: Record) -> Row:
    """A record as the tables write it: without its id, and what is empty."""
    row = {
        key: json.loads(value) if key in TEXTS else value for key, value in to_row(record).items()
    }
    return {key: value for key, value in row.items() if value and key != "id"}


def outcome(row: Row, name: str) -> dict[str, Any]:
    try:
        records = [to_record(part, name, NAMES) for part in FORMATS[name].samples(row)]
    except RowError as error:
        return {"code": error.code, **({"at": error.at} if error.at != "" else {})}
    found: dict[str, Any] = {"records": [shown(record) for record in records]}
    for record in records:
        try:
            validate(record)
        except RowError as error:
            found["invalid"] = error.code
    return found


@pytest.mark.parametrize("file", TABLES)
def test_each_row_becomes_its_records_or_its_reject(file: str) -> None:
    for case in rows_in(FOLDER / f"{file}.jsonl"):
        row = rows(file)[case["row"]] if isinstance(case["row"], int) else case["row"]
        name = case.get("as", READ_AS.get(file, file))
        if "as" not in case:
            assert detect_format(row) == name, case["why"]
        expected = {key: case[key] for key in RESULT if key in case}
        assert outcome(row, name) == expected, case["why"]
