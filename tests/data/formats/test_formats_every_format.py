"""agentlite.data.formats: what holds for every format, on its rows of tests/support."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from support.damaged_rows import FILES, READ_AS, Row, damaged, mangled, rows, strangers

from agentlite.core.errors import RowError
from agentlite.core.records import from_row, to_row
from agentlite.data.curation.validate import validate
from agentlite.data.formats import FORMATS, detect_format, find_samples, to_record

# (a format, another one whose rows fit it too): why
ALSO_FITS = {
    ("ms_agent", "agentinstruct"): "ReAct chains among the turns, with a loss of their own",
    ("ms_agent", "toolllama"): "ReAct chains among the turns, with other lists of tools",
    ("sharegpt", "agentinstruct"): "turns of ShareGPT, with a loss of their own",
    ("sharegpt", "hermes_fc"): "turns of ShareGPT, with tools between tags in their texts",
    ("sharegpt", "ms_agent"): "turns of ShareGPT, whose answers are ReAct chains",
    ("sharegpt", "ms_agent_exec"): "turns of ShareGPT, whose answers are chains between marks",
    ("sharegpt", "ms_bench"): "turns of ShareGPT and nothing else",
    ("sharegpt", "toolace"): "turns of ShareGPT, with tools in the system text",
    ("sharegpt", "toolllama"): "turns of ShareGPT, whose answers are ReAct chains",
    ("ms_swift", "self_cognition"): "a query and its response, with a tag",
    ("openai", "agentlite"): "messages of OpenAI, with tools and gold as JSON texts",
    ("openai", "anthropic"): "messages with roles, whose contents are lists of blocks",
    ("openai", "ms_swift"): "messages with roles, some of which OpenAI does not know",
    ("openai", "prompts"): "messages of OpenAI, with a list as gold",
    ("openai", "trajectory"): "messages of OpenAI, with what became of every turn",
}
# a format that only its name chooses: the one that its rows are taken for otherwise
BY_NAME = {"ms_bench": "sharegpt"}


def test_every_format_has_rows_and_every_file_of_rows_a_format() -> None:
    assert {READ_AS.get(file, file) for file in FILES} == {*FORMATS}
    assert {*READ_AS} <= {*FILES} and {*BY_NAME} | {wide for wide, _ in ALSO_FITS} <= {*FORMATS}


@pytest.mark.parametrize("file", FILES)
def test_a_row_is_found_to_be_of_its_format_and_is_valid(file: str) -> None:
    name = READ_AS.get(file, file)
    assert len(rows(file)) >= 5
    for row in [*rows(file), json.loads(FORMATS[name].example)]:
        assert detect_format(row) == BY_NAME.get(name, name)
        _, parts = find_samples(row, name)
        for part in parts:
            validate(to_record(part, name))


@pytest.mark.parametrize("name", FORMATS)
def test_a_row_of_another_format_fits_only_where_that_one_is_tried_first(name: str) -> None:
    fitting = {other for other, row in strangers(name) if FORMATS[name].fits(row)}
    assert fitting == {other for wide, other in ALSO_FITS if wide == name}
    order = [*FORMATS]
    assert all(order.index(other) < order.index(name) for other in fitting)


@pytest.mark.parametrize("file", FILES)
def test_nulls_under_the_keys_of_all_other_formats_change_nothing(file: str) -> None:
    """Parquet fills them in where a file has rows of several formats."""
    name = READ_AS.get(file, file)
    keys = {key for other in FILES for row in rows(other) for key in row}
    for row in rows(file):
        filled = {**dict.fromkeys(sorted(keys - row.keys())), **row}
        assert detect_format(filled) == BY_NAME.get(name, name)
        for key in keys - row.keys():
            assert detect_format({**row, key: None}) == BY_NAME.get(name, name)


@pytest.mark.parametrize("file", FILES)
def test_a_damaged_row_becomes_records_or_row_errors(file: str) -> None:
    @given(damaged(file) | mangled(file))
    def of_the_file(row: Row) -> None:
        check(READ_AS.get(file, file), row)

    of_the_file()


def check(name: str, row: Row) -> None:
    """Nothing but a RowError says that a row cannot be taken, and each record of one that can comes
    back from disk as it went there.
    """
    assert all(known.fits(row) in (True, False) for known in FORMATS.values())
    for part in FORMATS[name].samples(row):
        assert FORMATS[name].samples(part) == [part]
        with suppress(RowError):
            record = to_record(part, name)
            assert from_row(json.loads(json.dumps(to_row(record)))) == record
            validate(record)
    with suppress(RowError):
        find_samples(row)
