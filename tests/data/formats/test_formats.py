"""agentlite.data.formats: bytes become rows, rows become records, and what cannot says why."""

import gzip
import hashlib
import importlib.util
import io
import itertools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.samples import DATA

from agentlite.core.errors import REJECTS, RowError, UserError
from agentlite.core.records import (
    ANY_TOOL,
    Call,
    Gold,
    GoldCall,
    Message,
    Parsed,
    Record,
    from_row,
    to_row,
)
from agentlite.data.curation.split import TIES
from agentlite.data.curation.traits import traits
from agentlite.data.curation.validate import validate
from agentlite.data.formats import FORMATS, Raw, detected, files_of, read_raw, readers, to_record
from agentlite.data.formats.bfcl import ANY_CALL, CATEGORIES, NO_CALL, NO_CALL_ANSWER, TUPLE
from agentlite.data.formats.foreign_files import HEAD, refuse_foreign
from agentlite.data.formats.openai import THOUGHTS
from agentlite.data.formats.readers import LONGEST_LINE, PACKED
from agentlite.scoring.metrics.tool_calls import calls_problem, score_step

GOOD = Record(messages=(Message("user", "q"), Message("assistant", "a")))
EMPTY = io.BytesIO()
needs_bfcl = pytest.mark.skipif(
    not importlib.util.find_spec("bfcl_eval"), reason="bfcl-eval is not installed"
)
# rows of bfcl-eval 2026.3.23 whose gold no call can satisfy
IMPOSSIBLE = {
    "simple_java_36",  # a number in a list that BFCL reads as texts
    "simple_java_64",
    "simple_java_65",
    "live_simple_106-63-0",
    "live_simple_112-68-0",
    "live_multiple_862-181-3",
    "live_multiple_964-207-0",
}


def from_stdin(content: bytes) -> list[Raw]:
    return list(read_raw("-", io.BytesIO(content)))


def rows_of(path: Path) -> list[Raw]:
    return list(read_raw(str(path), EMPTY))


def record_of(name: str, row: int = 0) -> Record:
    return to_record(rows_of(DATA / "formats" / f"{name}.jsonl")[row].value)


def rejected(act: Callable[[], Any]) -> str:
    with pytest.raises(RowError) as caught:
        act()
    return caught.value.code


# --- bytes -> raw rows ---


BOM = b"\xef\xbb\xbf"
lines_of_any_kind = st.one_of(
    st.binary(), st.sampled_from([b'{"a": 1}', b"\xef\xbb\xbf", b"[", b"\r"])
)


@given(st.one_of(st.binary(), st.lists(lines_of_any_kind).map(b"\n".join)))
@example(b"\x1f\x8b")
@example(b"{\n\x00")
@example(b"\x28\xb5\x2f\xfd\n{}")
def test_any_bytes_end_as_rows_and_each_line_that_is_not_blank_is_one_of_them(
    content: bytes,
) -> None:
    lines = [line for line in content.split(b"\n") if line.removeprefix(b"\xef\xbb\xbf").strip()]
    if lines and lines[0].removeprefix(BOM).lstrip().startswith(b"["):  # perhaps an array of rows
        with suppress(UserError):
            from_stdin(content)
        return
    if lines and readers._is_opening(lines[0] + b"\n"):  # an object over lines, whole or broken
        with suppress(UserError):
            assert all(
                (raw.error is None) == isinstance(raw.value, dict) for raw in from_stdin(content)
            )
        return
    try:
        raws = from_stdin(content)
    except UserError:
        if lines:  # only for what is not JSON by its first bytes
            with pytest.raises(UserError):
                refuse_foreign(content[:HEAD], "stdin")
        return
    if content.startswith(tuple(PACKED)):  # it says it is packed, and is not
        assert raws[-1].error is not None and raws[-1].error.code == "E104"
        return
    assert [raw.content for raw in raws] == lines
    assert all((raw.error is None) == isinstance(raw.value, dict) for raw in raws)


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=6
)


BLANK_STARTS = (
    b"",
    BOM,
    BOM + b"\n",
    b"\n",
    b" \t\r\n",
    b"\n" + BOM,
    BOM + b"\r\n\n" + BOM + b"\n",
)


@pytest.mark.parametrize("start", BLANK_STARTS)
@pytest.mark.parametrize(
    "body", [b'[{"a": 1}, {"a": 2}]', b'[\n  {"a": 1},\n  {"a": 2}\n]\n', b'{"a": 1}\n{"a": 2}']
)
def test_blank_lines_and_marks_of_the_byte_order_before_the_first_row_change_nothing(
    start: bytes, body: bytes, tmp_path: Path
) -> None:
    (tmp_path / "rows.json").write_bytes(start + body)
    assert [raw.value for raw in rows_of(tmp_path / "rows.json")] == [{"a": 1}, {"a": 2}]


@pytest.mark.long
@given(st.dictionaries(st.text(), json_values), st.booleans())
def test_what_was_written_as_json_is_read_as_it_was(
    value: dict[str, Any], ascii_only: bool
) -> None:
    line = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8")
    (raw,) = from_stdin(line + b"\r\n")
    assert (raw.location, raw.value, raw.error) == ("stdin:1", value, None)


BAD_LINES = {
    b'{"a": 1} {"b": 2}': "E121",
    b"{'a': 1}": "E121",
    b"{": "E121",
    b'{"a": "\xff"}': "E109",
    b'{"a": "\xed\xa0\x80"}': "E109",
    b'{"a": "\0"}': "E111",
    b'{"a": NaN}': "E116",
    b'{"a": -Infinity}': "E116",
    b'{"a": 1e999}': "E116",
    b'{"a": ' + b"9" * 5000 + b"}": "E117",
    b'{"a": "\\ud800"}': "E113",
    b'{"a": {"b": 1}, "a": 2}': "E118",
    b'{"a": ' + b"[" * 65 + b"]" * 65 + b"}": "E119",
    b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}": "E119",
    b"[1]": "E201",
    b"null": "E201",
}


@pytest.mark.parametrize("line", BAD_LINES, ids=lambda line: line[:24])
def test_a_bad_line_is_rejected_with_its_code_and_the_rest_goes_on(line: bytes) -> None:
    bad, good = from_stdin(line + b'\n\n{"good": 1}\n')
    assert bad.error is not None
    assert (bad.error.code, bad.content, bad.location) == (BAD_LINES[line], line, "stdin:1")
    assert (good.value, good.location) == ({"good": 1}, "stdin:3")


def test_a_row_may_nest_as_deep_as_64() -> None:
    for deep, wrong in ((64, None), (65, "E119")):  # the row itself is none
        for text in (b'{"a":%b%b}', b'{"a": %b%b}'):  # as msgspec writes it, and otherwise
            (raw,) = from_stdin(text % (b"[" * deep, b"]" * deep))
            assert (raw.error and raw.error.code) == wrong
    brackets = "[" * 100 + "{" * 100
    assert from_stdin(json.dumps({"a": brackets}).encode())[0].error is None


def test_keys_may_repeat_in_different_objects() -> None:
    (raw,) = from_stdin(b'{"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}], "\\u00e9": "\\ud83d\\ude00"}')
    assert raw.value == {"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}], "é": "😀"}


def test_a_torn_last_line_looks_cut_and_the_rows_before_it_are_kept() -> None:
    whole, torn = from_stdin(b'{"a": 1}\n{"a": "some te')
    assert whole.value == {"a": 1}
    assert torn.error is not None
    assert (torn.error.code, "looks cut" in torn.error.reason) == ("E122", True)


def test_line_separators_of_unicode_and_carriage_returns_do_not_end_a_line() -> None:
    (raw,) = from_stdin('\ufeff{"a": "x\u2028y\u0085z"}\r\n'.encode())
    assert raw.value == {"a": "x\u2028y\u0085z"}


def test_a_line_that_is_too_long_is_rejected_without_being_kept() -> None:
    long, good = from_stdin(b'{"a": "' + b"x" * LONGEST_LINE + b'"}\n{"good": 1}\n')
    assert long.error is not None
    assert (long.error.code, len(long.content) < 5000, good.value) == ("E120", True, {"good": 1})


def test_a_line_may_have_as_many_bytes_as_the_limit_its_break_included(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert LONGEST_LINE == 16 * 1024 * 1024
    monkeypatch.setattr(readers, "LONGEST_LINE", 3000)
    for length in (2999, 3000, 3001, 9001):
        line = b'{"a": "%b"}' % (b"x" * (length - 9))
        for content, size in ((line[:-3] + b'"}\n', length), (line, length)):
            (first, *more) = from_stdin(content + (b'{"b": 1}\n' if content != line else b""))
            if size <= 3000:
                assert first.error is None
                assert first.content == content.removesuffix(b"\n")
            else:
                assert first.error is not None
                assert first.error.code == "E120"
                assert f"{size} bytes" in first.error.reason
                assert hashlib.sha256(content).hexdigest() in first.error.reason
                assert first.content == content[:1024]
            assert [(raw.location, raw.value) for raw in more] == (
                [("stdin:2", {"b": 1})] if content != line else []
            )


def test_several_packed_members_one_after_another_are_read_as_one(tmp_path: Path) -> None:
    for how in ("gzip", "zstd"):
        path = tmp_path / how
        path.write_bytes(packed(b'{"a": 1}\n{"a"', how) + packed(b": 2}\n", how))
        assert [raw.value for raw in rows_of(path)] == [{"a": 1}, {"a": 2}]


def test_a_json_file_is_an_array_or_lines_as_its_first_byte_says(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(b' [\n {"a": 1},\n\n {"a": 2}, 3\n]\n')
    assert [(raw.location, raw.value) for raw in rows_of(path)] == [
        (f"{path}:2", {"a": 1}),
        (f"{path}:4", {"a": 2}),
        (f"{path}:4", None),
    ]
    path.write_bytes(b'{"a": 1}\n{"a": 2}\n')
    assert [raw.value for raw in rows_of(path)] == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("indent", [0, 2, "\t"])
@pytest.mark.parametrize("values", [1, 3])
def test_objects_spread_over_lines_are_rows_as_a_json_file_prints_them(
    tmp_path: Path, indent: int | str, values: int
) -> None:
    """One as seed 004 prints it; several as jq writes them."""
    path = tmp_path / "rows.json"
    objects = [{"n": n, "said": ["a {", {"b": "}\n"}]} for n in range(values)]
    written = [json.dumps(value, indent=indent) for value in objects]
    path.write_text("\n\n" + "\n".join(written) + "\n", encoding="utf-8")
    lines = written[0].count("\n") + 1
    assert [(raw.location, raw.value) for raw in rows_of(path)] == [
        (f"{path}:{3 + n * lines}", value) for n, value in enumerate(objects)
    ]
    for content in (path.read_bytes(), gzip.compress(path.read_bytes())):
        assert [(raw.location, raw.value) for raw in from_stdin(content)] == [
            (f"stdin:{3 + n * lines}", value) for n, value in enumerate(objects)
        ]
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("\n".join(written))
    assert [raw.value for raw in rows_of(path)] == objects


def test_an_array_of_rows_is_read_from_stdin_as_from_a_file() -> None:
    for content in (b'[{"a": 1}, {"a": 2}]', b'\n[\n  {\n "a": 1\n},\n  {"a": 2}\n]\n'):
        assert [raw.value for raw in from_stdin(content)] == [{"a": 1}, {"a": 2}]


def test_an_object_that_does_not_end_leaves_its_file_to_be_read_as_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1,\n{"a": 2}\n{"a": 3}\n')
    assert [raw.value for raw in rows_of(path)] == [None, {"a": 2}, {"a": 3}]
    path.write_bytes(b'{\n"a": 1\n}\n{\n"a": 2\n')
    whole, cut = rows_of(path)
    assert (whole.value, cut.error and cut.error.code) == ({"a": 1}, "E105")


@pytest.mark.parametrize("content", [b'[{"a": 1}, {"a"', b'[{"a": 1},', b'[{"a": 1}'])
def test_a_cut_array_keeps_its_whole_rows_and_says_that_it_is_cut(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(content)
    whole, cut = rows_of(path)
    assert whole.value == {"a": 1}
    assert cut.error is not None
    assert cut.error.code == "E105"


@pytest.mark.parametrize(
    ("between", "rest"),
    [
        ('{"b": 1},\n[]\n] ', None),
        ('{"b": 1}]\n[{"c": 1}]\n', '[{"c": 1}]'),
        ('{"b": 1}\n{"c": 1}]', '{"c": 1}]'),
        ('{"b": 1} x', "x"),
    ],
)
def test_what_stands_behind_an_array_or_where_a_comma_is_missing_is_a_row_that_cannot_be_read(
    tmp_path: Path, between: str, rest: str | None
) -> None:
    path = tmp_path / "rows.json"
    path.write_text('[\n{"a": 1}, ' + between, encoding="utf-8")
    *good, last = rows_of(path)
    assert [raw.value for raw in good] == [{"a": 1}, {"b": 1}]
    assert last.error is not None
    assert (last.error.code, last.content) == (("E105", rest.encode()) if rest else ("E201", b"[]"))


def test_parquet_rows_are_read_with_their_number(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")

    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"a": "x"}, {"a": "é"}]), path)
    assert [(raw.location, raw.value, json.loads(raw.content)) for raw in rows_of(path)] == [
        (f"{path}:1", {"a": "x"}, {"a": "x"}),
        (f"{path}:2", {"a": "é"}, {"a": "é"}),
    ]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match="Parquet"):
        rows_of(path)


def test_a_file_that_cannot_be_read_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b"\n \r\n\xef\xbb\xbf\n")
    (tmp_path / "wide.jsonl").write_bytes('{"a": 1}'.encode("utf-16"))
    os.mkfifo(tmp_path / "pipe")
    expected = {
        "row.jsonl": ("no such file", "rows.jsonl"),
        "": ("directory", "*.jsonl"),
        "rows.jsonl": ("no rows", "one JSON object per line"),
        "wide.jsonl": ("UTF-16", "iconv"),
        "pipe": ("not a regular file", "prep -"),
        "a\0b": ("cannot be read", "may read"),
    }
    for name, (problem, fix) in expected.items():
        with pytest.raises(UserError) as caught:
            rows_of(tmp_path / name)
        assert problem in caught.value.problem
        assert fix in caught.value.fix
        assert (caught.value.exit_code == REJECTS) == (name == "rows.jsonl")


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_stdin_without_rows_is_an_error_that_names_it(content: bytes) -> None:
    with pytest.raises(UserError) as caught:
        from_stdin(content)
    assert (caught.value.location, caught.value.exit_code) == ("stdin", REJECTS)


def packed(content: bytes, how: str) -> bytes:
    if how == "gzip":
        return gzip.compress(content)
    return zstandard.ZstdCompressor().compress(content)


@pytest.mark.parametrize("how", ["gzip", "zstd"])
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz", "rows"])
def test_packed_rows_are_read_as_they_were_packed_whatever_the_name(
    tmp_path: Path, how: str, name: str
) -> None:
    content = b'{"a": 1}\n\n{"a": "\xc3\xa9"}\n{"a": '
    (tmp_path / name).write_bytes(packed(content, how))
    found = [
        (raw.content, raw.value, raw.error and raw.error.code) for raw in rows_of(tmp_path / name)
    ]
    assert found == [
        (b'{"a": 1}', {"a": 1}, None),
        (b'{"a": "\xc3\xa9"}', {"a": "é"}, None),
        (b'{"a": ', None, "E122"),
    ]
    assert [raw.content for raw in from_stdin(packed(content, how))] == [raw for raw, _, _ in found]


@pytest.mark.parametrize("how", ["gzip", "zstd"])
def test_of_a_packed_file_that_is_cut_the_rows_before_the_cut_are_read_and_the_cut_is_a_reject(
    tmp_path: Path, how: str
) -> None:
    rows = [json.dumps({"n": n, "text": os.urandom(200).hex()}).encode() for n in range(2000)]
    whole = packed(b"\n".join(rows), how)
    path = tmp_path / "rows.gz"
    path.write_bytes(whole[: len(whole) // 2])
    *read, last = rows_of(path)
    assert len(read) > 500
    assert [raw.content for raw in read] == rows[: len(read)]
    assert last.error is not None
    assert last.error.code == "E104"


def test_an_array_is_read_as_rows_whatever_the_name_and_whether_packed(tmp_path: Path) -> None:
    for name, content in {
        "a.jsonl": b'[{"a": 1}, {"a": 2}]',
        "b.json": b'\n[\n{"a": 1},\n {"a": 2}\n]\n',
        "c.json.gz": gzip.compress(b'[{"a": 1},{"a": 2}]'),
    }.items():
        (tmp_path / name).write_bytes(content)
        assert [raw.value for raw in rows_of(tmp_path / name)] == [{"a": 1}, {"a": 2}]
    (tmp_path / "lists.jsonl").write_bytes(b"[1]\n[2]\n")
    assert [raw.error and raw.error.code for raw in rows_of(tmp_path / "lists.jsonl")] == [
        "E201",
        "E201",
    ]


def test_a_folder_is_its_files_of_rows_by_name(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.json", "inner/c.jsonl.gz", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"{}")
    assert files_of(str(tmp_path)) == [
        str(tmp_path / name) for name in ("a.json", "b.jsonl", "inner/c.jsonl.gz")
    ]
    suffixes = ("jsonl", "json", "parquet", "jsonl.gz", "json.gz", "jsonl.zst", "json.zst")
    (tmp_path / "all").mkdir()
    for suffix in (*suffixes, "csv", "jsonl.bz2"):
        (tmp_path / f"all/rows.{suffix}").write_bytes(b"{}")
    (tmp_path / "all/folder.jsonl").mkdir()
    found = sorted(str(tmp_path / f"all/rows.{suffix}") for suffix in suffixes)
    assert files_of(str(tmp_path / "all")) == found
    assert files_of("-") == ["-"]
    assert files_of("bfcl:multiple") == ["bfcl:multiple"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no file of rows"):
        files_of(str(tmp_path / "empty"))


PLANNED = b'{"command": "prep", "settings": {}, "inputs": {}}'


@pytest.mark.parametrize(
    ("name", "content", "is_left_out"),
    [
        ("plan.json", PLANNED, True),
        ("failed.json", PLANNED, True),
        ("plan.json", PLANNED[:-1] + b', "of": "another version"}', True),
        ("plan.json", b'{"messages": []}', False),
        ("plan.json", b"not JSON", False),
        ("plan.json", b"[]", False),
    ],
)
@pytest.mark.parametrize("inner", ["", "checkpoints/one"])
def test_folders_of_stages_are_left_out_of_a_folder(
    tmp_path: Path,
    name: str,
    content: bytes,
    is_left_out: bool,
    inner: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stage, file = tmp_path / "runs/default/prep", tmp_path / "data.jsonl"
    row = stage / inner / "train.jsonl"
    row.parent.mkdir(parents=True)
    (stage / name).write_bytes(content)
    row.write_bytes(b"{}\n")
    file.write_bytes(b"{}\n")
    found = files_of(str(tmp_path))
    assert (str(file) in found) and (str(row) in found) != is_left_out
    notices = capsys.readouterr().err
    assert ("folders of stages are left out (1)" in notices) == is_left_out
    # a folder that is a stage, or lies in one, is read
    for folder in (stage, row.parent):
        assert str(row) in files_of(str(folder))
    assert "folders of stages" not in capsys.readouterr().err
    file.unlink()
    if is_left_out:
        with pytest.raises(UserError, match="holds no file of rows") as error:
            files_of(str(tmp_path))
        assert "name such a folder" in error.value.fix


@pytest.mark.parametrize(
    "content", [b"", b"\n \n", b"[]", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)]
)
def test_a_file_without_a_row_is_left_out_of_a_folder(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    empty, file = tmp_path / "a.json", tmp_path / "b.jsonl"
    empty.write_bytes(content)
    with pytest.raises(UserError, match="all its files are empty"):
        files_of(str(tmp_path))
    file.write_bytes(b"{}\n")
    assert files_of(str(tmp_path)) == [str(file)]
    assert "files without a row are left out (1)" in capsys.readouterr().err
    # named by itself, it is an error
    with pytest.raises(UserError, match="no rows in it"):
        list(read_raw(str(empty), io.BytesIO()))


@pytest.mark.parametrize("content", [b"{", b"x", b'[{}, {"a"', b"PAR1", b"\x1f\x8b"])
def test_a_broken_file_of_a_folder_is_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    assert files_of(str(tmp_path)) == [str(tmp_path / "a.jsonl")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"{}")
    path.chmod(0)
    with pytest.raises(UserError, match="cannot be read"):
        rows_of(path)


def test_an_unknown_category_names_the_nearest_first() -> None:
    with pytest.raises(UserError) as caught:
        list(read_raw("bfcl:multipel", EMPTY))
    assert caught.value.fix.startswith("Did you mean 'multiple'? Known: ")
    assert all(category in caught.value.fix for category in CATEGORIES)


# --- raw rows -> records ---


@pytest.mark.parametrize("name", ["openai", "sharegpt", "ms_agent"])
def test_a_record_fed_back_as_agentlite_wrote_it_is_the_same(name: str) -> None:
    for raw in rows_of(DATA / "formats" / f"{name}.jsonl"):
        record = to_record(raw.value)
        validate(record)
        assert to_record(to_row(record)) == record == from_row(to_row(record))


KEYS = [
    "messages",
    "tools",
    "gold",
    "conversations",
    "question",
    "function",
    "id",
    "system",
    "ground_truth",
    "meta",
]
ANY_MESSAGE = {
    "role": st.sampled_from(["user", "assistant", "tool"]) | json_values,
    "from": st.sampled_from(["human", "gpt", "function_call", "observation"]) | json_values,
    **dict.fromkeys(
        ["content", "value", "tool_calls", "function_call", "tool_call_id"], json_values
    ),
}


@pytest.mark.long
@given(st.dictionaries(st.sampled_from(KEYS), json_values), st.sampled_from([None, *FORMATS]))
def test_a_row_of_any_shape_is_a_record_or_a_reject(row: dict[str, Any], name: str | None) -> None:
    with suppress(RowError):
        assert isinstance(to_record(row, name), Record)


@settings(max_examples=examples(60))
@given(
    st.lists(st.fixed_dictionaries({}, optional=ANY_MESSAGE), max_size=3),
    json_values,
    st.sampled_from([*FORMATS]),
)
def test_messages_of_any_shape_are_a_record_or_a_reject(
    messages: list[Any], tools: Any, name: str
) -> None:
    with suppress(RowError):
        row = {"messages": messages, "conversations": messages, "tools": tools, "id": "x"}
        assert isinstance(to_record(row, name), Record)


def written_rows() -> list[Any]:
    """A row of every format, and of every written form of a row of agentlite's own."""
    rows = [json.loads(known.example) for known in FORMATS.values()]
    rows += [
        raw.value
        for name in ("openai", "sharegpt", "ms_agent")
        for raw in rows_of(DATA / "formats" / f"{name}.jsonl")
    ]
    return [*rows, *(json.loads(json.dumps(to_row(to_record(row)))) for row in rows)]


def parts_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values inside a value, those in JSON texts too: after the key of a text
    comes None.
    """
    if isinstance(value, str) and value[:1] in ("{", "["):
        with suppress(ValueError):
            yield from parts_of(json.loads(value), (*path, None))
    for key, inner in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        yield (*path, key)
        yield from ((*path, key, extra) for extra in EXTRA if isinstance(inner, dict))
        yield from parts_of(inner, (*path, key))


def with_junk(value: Any, path: tuple[Any, ...], junk: Any) -> Any:
    if not path:
        return junk
    if path[0] is None:
        return json.dumps(with_junk(json.loads(value), path[1:], junk))
    changed: Any = value.copy()
    changed[path[0]] = with_junk(value[path[0]], path[1:], junk) if len(path) > 1 else junk
    return changed


JUNK = (
    st.sampled_from(
        [
            None,
            5,
            3.0,
            True,
            "",
            "True",
            "\ud800",
            "\0",
            "[]",
            "{",
            [],
            {},
            ["city"],
            [[]],
            {"a": 1},
            [{"a": {}}],
            float("nan"),
        ]
    )
    | json_values
)
EXTRA = (
    "properties",
    "$defs",
    "required",
    "type",
    "items",
    "joined",
    "content",
    "description",
    "tool_calls",
    "loss",
)


@pytest.mark.long
@settings(max_examples=examples(400), deadline=None)
@given(st.data(), st.sampled_from(written_rows()), st.integers(1, 3))
def test_a_row_with_junk_in_it_is_a_reject_or_a_record_that_comes_back_as_written(
    data: st.DataObject, row: Any, changes: int
) -> None:
    for _ in range(changes):
        path = data.draw(st.sampled_from(list(parts_of(row))))
        row = with_junk(row, path, data.draw(JUNK))
    (raw,) = from_stdin(json.dumps(row).encode())
    with suppress(RowError):
        if raw.error:
            raise raw.error
        record = to_record(raw.value)
        validate(record)
        assert from_row(json.loads(json.dumps(to_row(record)))) == record
        assert all(
            list(tie([traits(record)] * 2))
            for name, tie in TIES.items()
            if name not in ("tools", "calls")
        )
        assert score_step(
            Parsed("", record.messages[-1].calls), record.expected(record.turns[-1]), record.tools
        )


@pytest.mark.parametrize("number", range(len(written_rows())))
def test_half_a_character_anywhere_in_a_row_never_reaches_the_disk(number: int) -> None:
    row, refused = written_rows()[number], 0
    for path in parts_of(row):
        (raw,) = from_stdin(json.dumps(with_junk(row, path, "Oslo \ud800")).encode())
        try:
            if raw.error:
                raise raw.error
            record = to_record(raw.value)
            validate(record)
        except RowError as error:
            refused += error.code == "E113"
        else:
            msgspec.json.encode(to_row(record))  # raises UnicodeEncodeError
    assert refused


def test_a_row_whose_messages_are_a_text_is_not_told_the_name_that_it_has() -> None:
    with pytest.raises(RowError) as caught:
        to_record({"messages": "Is it wet?"})
    assert caught.value.code == "E202" and "Did you mean" not in caught.value.hint


TURNS = json.loads(FORMATS["openai"].example)["messages"]


@pytest.mark.parametrize(
    ("row", "right"),
    [
        ({"message": TURNS}, "messages"),
        ({"mesages": TURNS, "id": "1"}, "messages"),
        ({"dialog": TURNS}, "messages"),
        ({"conversatons": [{"from": "human", "value": "q"}]}, "conversations"),
        ({"instructions": "q", "input": "", "output": "a"}, "instruction"),
        ({"Instruction": "q", "output": "a"}, "instruction"),
        ({"querry": "q", "response": "a"}, "query"),
        ({"promt": "q", "gold": []}, "prompt"),
        ({"txt": "a"}, "text"),
    ],
)
def test_a_key_that_is_misspelt_gets_the_name_by_which_the_row_fits(row: Any, right: str) -> None:
    with pytest.raises(RowError) as caught:
        to_record(row)
    (wrong,) = row.keys() & {caught.value.at}
    assert caught.value.hint == f"Did you mean '{right}' in place of '{wrong}'?"
    to_record({right if key == wrong else key: value for key, value in row.items()})


@pytest.mark.parametrize(
    "row",
    [
        {"request": {"messages": TURNS}, "response": {"content": "a"}},
        {"request": "q", "response": "a"},
        {"systemInstruction": {"parts": []}, "contents": [{"role": "user", "parts": []}]},
        {"instructions": "Be brief.", "input": [{"role": "user"}], "output": [{"type": "message"}]},
        {"message": "q"},
        {"prompt": "q", "prompts": "q", "answer": "a"},
    ],
    ids=str,
)
def test_a_key_of_another_shape_gets_no_name_by_which_no_format_fits(row: Any) -> None:
    with pytest.raises(RowError) as caught:
        to_record(row)
    assert (caught.value.code, caught.value.hint) == ("E202", "")


def test_a_row_of_no_format_is_rejected_with_its_keys() -> None:
    with pytest.raises(RowError) as caught:
        to_record({"prompt": "a", "answer": "b"})
    assert (caught.value.code, "prompt, answer" in caught.value.reason) == ("E202", True)


def test_an_unknown_format_is_a_usage_error_with_the_nearest() -> None:
    with pytest.raises(UserError) as caught:
        to_record({}, "open_ai")
    assert "openai" in caught.value.fix


def test_openai_messages_are_read_as_said() -> None:
    record = record_of("openai")
    assert [message.role for message in record.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert record.messages[1].content == "Ferries from Bergen?"
    assert record.messages[2].calls == (Call("ferries", {"port": "Bergen"}, "x1"),)
    assert record.messages[3].call_id == "x1"
    assert record.meta == {"source_id": "o1"}


def openai_row(*messages: dict[str, Any], **row: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "q"}, *messages], **row}


def called(arguments: Any) -> dict[str, Any]:
    call = {"function": {"name": "f", "arguments": arguments}}
    return openai_row(
        {"role": "assistant", "content": None, "tool_calls": [call]}, tools=[{"name": "f"}]
    )


@pytest.mark.parametrize(
    "written", ['{"a": 1}', {"a": 1}, '"{\\"a\\": 1}"', {"a": 1, "foreign": None}]
)
def test_arguments_are_one_object_however_they_are_written(written: Any) -> None:
    assert to_record(called(written)).messages[1].calls[0].arguments == {"a": 1}


def test_a_null_is_kept_that_its_schema_names_or_that_the_text_of_the_arguments_says() -> None:
    named = {"a": {"type": ["string", "null"]}}
    tools = [{"name": "f", "parameters": {"type": "object", "properties": named}}]
    for written, kept in (
        ({"a": None, "foreign": None}, {"a": None}),
        ('{"a": 1, "foreign": null}', {"a": 1, "foreign": None}),
        ({"a": 1, "b": {"c": None}}, {"a": 1, "b": {"c": None}}),
    ):
        row = called(written) | {"tools": tools}
        assert to_record(row, "openai").messages[1].calls[0].arguments == kept
    use = {"type": "tool_use", "id": "x", "name": "f", "input": {"a": None, "foreign": None}}
    schema = {"name": "f", "input_schema": tools[0]["parameters"]}
    claude = openai_row({"role": "assistant", "content": [use]}, tools=[schema])
    assert to_record(claude, "anthropic").messages[1].calls[0].arguments == {"a": None}


@pytest.mark.parametrize("written", ["", None, {}, "{}", " ", "null"])
def test_no_arguments_are_an_empty_object(written: Any) -> None:
    assert to_record(called(written)).messages[1].calls[0].arguments == {}


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("[1]", "E208"),
        ([1], "E208"),
        (3, "E208"),
        ("{'a': 1}", "E206"),
        ("Oslo", "E206"),
        ('{"a": NaN}', "E116"),
        ('{"a": 1, "a": 2}', "E118"),
    ],
)
def test_arguments_that_are_no_object_are_rejected(written: Any, code: str) -> None:
    assert rejected(lambda: to_record(called(written))) == code


def test_openai_roles_and_content_that_cannot_be_learned_are_rejected() -> None:
    image = {"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    assert rejected(lambda: to_record(openai_row(image))) == "E216"
    assert rejected(lambda: to_record(openai_row({"role": "critic", "content": "no"}))) == "E202"


@pytest.mark.parametrize("name", ["name", "tool_name"])
def test_missing_ids_are_filled_in_where_only_one_call_can_be_meant(name: str) -> None:
    calls: list[Any] = [{"function": {"name": one, "arguments": {}}} for one in ("f", "g", "g")]
    f, g = (
        {"role": "tool", name: "f", "content": "1"},
        {"role": "tool", name: "g", "content": "2"},
    )
    tools = [{"name": "f"}, {"name": "g"}]
    asked = {"role": "assistant", "tool_calls": calls[:2]}
    unnamed = {"role": "tool", "content": "1"}  # one result is g's, so the other is f's
    record = to_record(openai_row(asked, g, unnamed, tools=tools))
    assert "turns" not in record.meta
    messages = record.messages
    ids = {call.name: call.id for call in messages[1].calls}
    assert [(message.call_id, message.content) for message in messages[2:]] == [
        (ids["f"], "1"),
        (ids["g"], "2"),
    ]
    unclear = to_record(
        openai_row(
            {"role": "assistant", "tool_calls": calls},
            g,
            g,
            f,
            {"role": "assistant", "content": "3"},
            tools=tools,
        )
    )
    assert rejected(lambda: validate(unclear)) == "E205"


def test_the_results_of_a_turn_are_put_in_the_order_of_its_calls() -> None:
    calls = [{"id": n, "function": {"name": "f", "arguments": {}}} for n in "abc"]
    asked = {"role": "assistant", "tool_calls": calls}
    results = [{"role": "tool", "tool_call_id": n, "content": n.upper()} for n in "cab"]
    said = {"role": "assistant", "content": "Done."}
    rows = (asked, *results, said), (asked, *results[:2], {**results[2], "tool_call_id": "x"}, said)
    for messages, order in zip(rows, ("ABC", "CAB"), strict=True):
        record = to_record(openai_row(*messages, tools=[{"name": "f"}]))
        assert "".join(m.content for m in record.messages if m.role == "tool") == order


def test_a_legacy_function_call_and_its_result_are_a_call_and_a_tool_turn() -> None:
    asked = {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "f", "arguments": "{}"},
    }
    answered = {"role": "function", "name": "f", "content": {"km": 4}}
    record = to_record(
        openai_row(
            asked, answered, {"role": "assistant", "content": "4"}, functions=[{"name": "f"}]
        )
    )
    validate(record)
    assert (record.messages[2].role, record.messages[2].content) == ("tool", '{"km": 4}')


def test_turns_can_be_taken_out_of_the_loss() -> None:
    said = [
        {"role": "assistant", "content": "a", **extra}
        for extra in ({"loss": False}, {"weight": 0}, {"weight": 1}, {})
    ]
    assert [m.loss for m in to_record(openai_row(*said)).messages[1:]] == [False, False, True, True]


def test_nulls_that_arrow_filled_in_are_not_parameters() -> None:
    city = {"type": "string", "enum": None, "default": None}
    schema = {
        "type": "object",
        "properties": {"city": city, "other": None},
        "required": ["city"],
        "items": None,
    }
    (tool,) = to_record(
        openai_row(tools=[{"type": "function", "function": {"name": "f", "parameters": schema}}])
    ).tools
    assert tool.parameters == {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    }


def test_a_default_of_null_that_stands_alone_is_meant() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string", "default": None}}}
    (tool,) = to_record(openai_row(tools=json.dumps([{"name": "f", "parameters": schema}]))).tools
    assert tool.parameters == schema


@pytest.mark.parametrize(
    ("tools", "code"),
    [
        ([{"description": "x"}], "E212"),
        ("[{'name'", "E124"),
        ("3", "E211"),
        ([{"name": "f", "parameters": {"properties": {"a": 3}}}], "E211"),
        ([{"name": "f", "parameters": {"required": "True"}}], "E211"),
        ([{"name": "f", "parameters": {"required": True}}], "E211"),
        ([{"name": "f", "parameters": {"required": [1]}}], "E211"),
        ([{"name": "f", "parameters": {"properties": ["city"]}}], "E211"),
        ([{"name": "f", "parameters": {"items": {"$defs": 5}}}], "E211"),
    ],
)
def test_broken_tools_are_rejected(tools: Any, code: str) -> None:
    assert rejected(lambda: to_record(openai_row(tools=tools))) == code
    if isinstance(tools, list) and code == "E211":  # agentlite's own rows may be written by others
        stored = to_row(GOOD) | {"tools": json.dumps([{"type": "function", "function": tools[0]}])}
        assert rejected(lambda: to_record(stored)) == code


@pytest.mark.parametrize("place", ["content", "description"])
def test_a_number_where_a_bfcl_row_has_text_is_rejected(place: str) -> None:
    row = json.loads(FORMATS["bfcl"].example)
    {"content": row["question"][0][0], "description": row["function"][0]}[place][place] = 5
    assert rejected(lambda: to_record(row)) == "E201"


def test_what_is_said_before_a_call_and_the_call_written_as_two_turns_are_one() -> None:
    said = {"role": "assistant", "content": "I look."}
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}],
    }
    turns = [
        {"from": "human", "value": "q"},
        {"from": "gpt", "value": "I look."},
        {"from": "gpt", "value": '<tool_call>{"name": "f", "arguments": {}}</tool_call>'},
    ]
    for row in (
        openai_row(said, call, tools=[{"name": "f"}]),
        {"conversations": turns, "tools": [{"name": "f"}]},
    ):
        record = to_record(row)
        validate(record)
        assert record.messages[1:] == (Message("assistant", "I look.", (Call("f", {}, "call_0"),)),)


@pytest.mark.parametrize(
    ("first", "second"),
    [({}, {"tool_calls": None}), ({"loss": False}, {}), ({"tool_calls": [{"name": "f"}]}, {})],
)
def test_two_turns_of_the_assistant_that_are_not_one_are_rejected(first: Any, second: Any) -> None:
    said = {"role": "assistant", "content": "I look.", **first}
    call = {"role": "assistant", "content": "x", "tool_calls": [{"name": "f"}], **second}
    record = to_record(openai_row(said, call, tools=[{"name": "f"}]))
    assert rejected(lambda: validate(record)) in ("E203", "E204")
    golden = openai_row(
        {**said, "tool_calls": None}, {**call, "tool_calls": [{"name": "f"}]}, gold={"2": {}}
    )
    assert rejected(lambda: validate(to_record(golden))) == "E203"


def test_sharegpt_text_with_call_blocks_is_calls_and_results_in_their_order() -> None:
    record = record_of("sharegpt")
    _, _, asked, first, second, _ = record.messages
    assert asked.content == "I look both up."
    assert [(c.name, c.arguments) for c in asked.calls] == [
        ("tide", {"port": "Brest", "metric": True}),
        ("tide", {"port": "Dover"}),
    ]
    assert (first.content, first.call_id) == ('{"high": "04:12"}', asked.calls[0].id)
    assert (second.content, second.call_id) == ('{"high": "11:40"}', asked.calls[1].id)
    properties = {"port": {"type": "string"}, "metric": {"type": "boolean"}}
    assert record.tools[0].parameters == {
        "type": "object",
        "properties": properties,
        "required": ["port"],
    }
    assert [message.loss for message in record_of("sharegpt", 1).messages] == [
        True,
        False,
        True,
        True,
    ]


def test_function_call_turns_in_a_row_are_one_turn_with_several_calls() -> None:
    call = {"from": "function_call", "value": '{"name": "f", "arguments": {}}'}
    turns = [
        {"from": "human", "value": "q"},
        call,
        call,
        *[{"from": "observation", "value": v} for v in "12"],
        {"from": "gpt", "value": "a"},
    ]
    record = to_record({"conversations": turns, "tools": '[{"name": "f"}]'})
    validate(record)
    assert [len(message.calls) for message in record.messages] == [0, 2, 0, 0, 0]


def test_a_call_block_that_is_not_closed_is_rejected() -> None:
    turns = [{"from": "human", "value": "q"}, {"from": "gpt", "value": '<tool_call>{"name": "f"'}]
    assert rejected(lambda: to_record({"conversations": turns})) == "E206"


@pytest.mark.parametrize(
    "text",
    [
        '{call} and <tool_call>{{"name": "f"',
        "<tool_call>",
        '{call}</tool_call><tool_call>{{"name": "f"}}',
        "</tool_call><tool_call>",
    ],
)
def test_a_call_block_that_is_not_closed_is_rejected_also_after_one_that_is(text: str) -> None:
    call = '<tool_call>{"name": "f"}</tool_call>'
    turns = [{"from": "human", "value": "q"}, {"from": "gpt", "value": text.format(call=call)}]
    assert rejected(lambda: to_record({"conversations": turns})) == "E206"


def test_the_thought_before_a_sharegpt_call_is_what_the_turn_says() -> None:
    call = '{"name": "f", "arguments": {}}'
    for turns, content in (
        ([("function_call", f"<think>I look.</think>\n{call}")], "I look."),
        ([("function_call", f" <think>I\nlook.</think> [{call}]")], "I\nlook."),
        ([("gpt", "So."), ("function_call", f"<think>I look.</think>{call}")], "So.\n\nI look."),
        ([("gpt", "So."), ("function_call", call)], "So."),
        ([("function_call", call)], ""),
    ):
        said = [{"from": by, "value": value} for by, value in (("human", "q"), *turns)]
        record = to_record({"conversations": said, "tools": [{"name": "f"}]})
        expected = Message("assistant", content, (Call("f", {}, "call_0"),))
        assert record.messages == (Message("user", "q"), expected)
    one, other = {"from": "gpt", "value": "So."}, {"from": "function_call", "value": call}
    for turns in ([{**one, "loss": False}, other], [one, {**other, "loss": False}]):
        row = {"conversations": [{"from": "human", "value": "q"}, *turns]}
        assert rejected(lambda row=row: to_record(row)) == "E201"


def test_what_a_model_thought_stands_before_what_it_said() -> None:
    said = {"role": "assistant", "content": "Wet."}
    for thoughts, content in (
        ({"reasoning_content": "It rains."}, "It rains.\n\nWet."),
        ({"reasoning": "It rains."}, "It rains.\n\nWet."),
        ({"reasoning": "2", "reasoning_content": "1"}, "1\n\n2\n\nWet."),
        ({"thinking": "It rains."}, "It rains.\n\nWet."),
        ({"thinking": "3", "reasoning": "2", "reasoning_content": "1"}, "1\n\n2\n\n3\n\nWet."),
        ({"reasoning_content": None, "reasoning": ""}, "Wet."),
        ({"reasoning": "It rains.", "content": None}, "It rains."),
    ):
        record = to_record(openai_row({**said, **thoughts}), "openai")
        assert record.messages[1] == Message("assistant", content)
        assert "turns" not in record.meta


@pytest.mark.parametrize("keys", [*itertools.combinations(THOUGHTS, 2), THOUGHTS], ids=str)
@pytest.mark.parametrize("end", ["", "\n"])
def test_one_thought_under_several_keys_counts_once(keys: tuple[str, ...], end: str) -> None:
    thoughts = dict.fromkeys(keys, "It rains.") | {keys[0]: f"It rains.{end}"}
    said = {"role": "assistant", "content": "Wet.", **thoughts}
    assert to_record(openai_row(said)).messages[1].content == "It rains.\n\nWet."


def test_openai_content_is_text_or_parts_of_text_and_a_result_may_be_any_json() -> None:
    parts = [{"type": "text", "text": "wet "}, {"type": "text", "text": "and cold"}]
    call = {"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": "f"}}]}
    for content, text in (
        (parts, "wet and cold"),
        ("wet", "wet"),
        (None, ""),
        ({"mm": [4]}, '{"mm": [4]}'),
        ([1, 2], "[1, 2]"),
        (4, "4"),
    ):
        row = openai_row(call, {"role": "tool", "tool_call_id": "x", "content": content})
        assert to_record(row, "openai").messages[2].content == text
        if isinstance(content, str) or content is parts:
            said = openai_row({"role": "assistant", "content": content})
            assert to_record(said, "openai").messages[1].content == text
    picture = [parts[0], {"type": "image_url", "image_url": {"url": "x"}}]
    for role, content in (
        ("tool", picture),
        ("user", {"mm": 4}),
        ("assistant", 4),
        ("user", ["wet"]),
        ("user", [{"type": "text", "text": 4}]),
    ):
        row = openai_row({"role": role, "content": content})
        assert rejected(lambda row=row: to_record(row, "openai")) == "E216"


def test_the_task_and_the_gold_of_a_row_are_kept_where_they_are_known() -> None:
    said = {"role": "assistant", "content": "a"}
    assert to_record(openai_row(said, task="timing_decision"), "openai").task == "timing_decision"
    assert to_record(openai_row(said, task="cooking"), "openai").task == "general"
    gold = {"1": {"calls": [{"name": "f", "arguments": {"a": [1, ""]}}], "optimal_steps": 2}}
    expected = {1: Gold((GoldCall("f", {"a": [1, ""]}),), 2)}
    for written in (gold, json.dumps(gold)):
        assert to_record(openai_row(said, gold=written), "openai").gold == expected
    assert to_record(openai_row(said, gold=""), "openai").gold == {}
    for bad in ({"1": 3}, {"one": {}}, {"1": {"call": []}}, [1]):
        row = openai_row(said, gold=bad)
        assert rejected(lambda row=row: to_record(row, "openai")) == "E201"


def test_an_id_that_is_made_is_not_one_that_a_later_call_has() -> None:
    def asked(*ids: str | None) -> dict[str, Any]:
        calls = [{"id": n, "function": {"name": "f", "arguments": {}}} for n in ids]
        return {"role": "assistant", "tool_calls": calls}

    row = openai_row(asked(None), asked("call_0", None), asked("call_2", None))
    calls = [call.id for message in to_record(row, "openai").messages for call in message.calls]
    assert calls == ["call_1", "call_0", "call_3", "call_2", "call_4"]


def test_what_a_format_does_not_know_is_kept_beside_the_id_of_the_row() -> None:
    said = {"role": "assistant", "content": "a", "mood": "glad", "empty": None}
    record = to_record(openai_row(said, id=0, lang="en", none=None, task="general"))
    assert record.meta == {
        "source_id": "0",
        "extra": {"lang": "en"},
        "turns": {"2": {"mood": "glad"}},
    }
    assert to_record(openai_row({"role": "assistant", "content": "a"}, id="")).meta == {}


def answering(*results: str, calls: int = 2) -> list[tuple[str, str]]:
    """The result turns of a ShareGPT row that makes as many calls."""
    call = '<tool_call>{"name": "f"}</tool_call>'
    turns = [{"from": "human", "value": "q"}, {"from": "gpt", "value": call * calls}]
    turns += [{"from": "observation", "value": result} for result in results]
    messages = to_record({"conversations": turns, "tools": [{"name": "f"}]}).messages
    return [(message.call_id, message.content) for message in messages if message.role == "tool"]


def test_one_turn_answers_several_sharegpt_calls_and_what_only_looks_so_is_one_result() -> None:
    a, b = "<tool_response> 1 </tool_response>", "<tool_response>2</tool_response>"
    assert answering(f"{a}\n{b}") == [("call_0", "1"), ("call_1", "2")]
    assert answering('["1", {"km": 2}]') == [("call_0", "1"), ("call_1", '{"km": 2}')]
    assert answering(f"{a} and {b}") == [("call_0", f"{a} and {b}")]
    assert answering(f"{a}<tool_response>") == [("call_0", f"{a}<tool_response>")]
    for other in ("[]", "[1]", "[1, 2, 3]"):  # as many as the calls, or one result
        assert answering(other) == [("call_0", other)]
    assert answering("[1]", calls=1) == [("call_0", "[1]")]
    assert answering("[1, 2]", "3") == [("call_0", "[1, 2]"), ("call_1", "3")]
    assert answering("[wet, dry]") == [("call_0", "[wet, dry]")]
    assert answering("1", "2", "3") == [("call_0", "1"), ("call_1", "2"), ("", "3")]


def marked_rows() -> list[tuple[str, dict[str, Any]]]:
    """The sample rows of the formats whose turns may say that they are not learned."""
    names = (
        *("anthropic", "apigen_mt", "hermes_fc", "ms_agent", "ms_agent_exec", "ms_bench"),
        *("ms_swift", "openai", "sharegpt", "toolace", "toolllama"),
    )
    return [
        (name, json.loads(line))
        for name in names
        for line in (DATA / f"formats/{name}.jsonl").read_text(encoding="utf-8").splitlines()
    ]


@pytest.mark.parametrize("mark", [{"loss": False}, {"weight": 0}], ids=str)
def test_a_turn_that_says_so_is_not_learned_in_any_format_of_turns(mark: dict[str, Any]) -> None:
    formats = set()
    for name, row in marked_rows():
        turns = row.get("messages") or row.get("conversations") or row.get("conversation") or []
        speakers = ("assistant", "gpt", "function_call", "tool_call")
        learned = [t for t in turns if t.get("from", t.get("role")) in speakers]
        for turn in learned:
            turn.update(mark)
        if learned:
            formats.add(name)
            messages = to_record(row, "ms_bench" if name == "ms_bench" else None).messages
            assert not [m for m in messages if m.role == "assistant" and m.loss], (name, row)
            assert all(m.loss for m in messages if m.role != "assistant") or name == "openai"
    assert len(formats) == 11


def sample_rows(*names: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in names:
        for line in (DATA / f"formats/{name}.jsonl").read_text(encoding="utf-8").splitlines():
            yield name, json.loads(line)


def test_a_system_text_beside_the_turns_comes_first_in_every_format_that_has_one() -> None:
    tested = set()
    for name, row in sample_rows(
        *("agentinstruct", "alpaca", "anthropic", "apigen_mt", "hermes_fc", "ms_agent"),
        *("ms_agent_exec", "ms_bench", "ms_swift", "sharegpt", "toolace"),
    ):
        record = to_record(row)
        if row.get("system") or record.messages[0].role == "system":
            continue
        with_system = to_record({**row, "system": "Be kind."}, detected(row))
        expected = (Message("system", "Be kind."), *record.messages)
        assert with_system.messages == expected, (name, row)
        tested.add(name)
    assert len(tested) == 11


@pytest.mark.parametrize(
    "name", ["sharegpt", "toolace", "hermes_fc", "ms_agent", "ms_agent_exec", "toolllama"]
)
@pytest.mark.parametrize("beside", [{}, {"system": "Be kind."}], ids=str)
def test_a_turn_is_named_by_its_number_among_the_turns_of_the_row(
    name: str, beside: dict[str, str]
) -> None:
    turns = [{"from": "human", "value": "q"}, {"from": "critic", "value": "no"}]
    with pytest.raises(RowError, match=r"turn 2\)") as caught:
        to_record({**beside, "conversations": turns}, name)
    assert caught.value.code == "E202"


def test_turns_under_the_keys_of_openai_are_read_like_those_of_sharegpt() -> None:
    for name, row in sample_rows("apigen_mt", "ms_agent", "ms_agent_exec", "ms_bench", "sharegpt"):
        key = "conversations" if "conversations" in row else "conversation"
        keys = {"from": "role", "value": "content"}
        turns = [{keys.get(k, k): value for k, value in turn.items()} for turn in row[key]]
        assert to_record({**row, key: turns}) == to_record(row), name


def test_the_categories_of_bfcl_are_those_of_a_single_turn() -> None:
    called = {"simple_python", "simple_java", "simple_javascript", "multiple", "parallel"}
    called |= {"parallel_multiple", *(f"live_{one}" for one in ("simple", "multiple", "parallel"))}
    called.add("live_parallel_multiple")
    assert {*CATEGORIES} == called | {"irrelevance", "live_irrelevance", "live_relevance"}
    for category in CATEGORIES:
        row = json.loads(FORMATS["bfcl"].example) | {"id": f"{category}_0"}
        if category not in called:
            del row["ground_truth"]
        record = to_record(row, "bfcl")
        expected = "tool_selection" if category in called else "timing_decision"
        assert (record.task, record.meta["category"]) == (expected, category)
        assert record.split == ("test" if category == "live_relevance" else "")
        anything = GoldCall(ANY_TOOL)
        assert (record.gold[1].calls == (anything,)) == (category == "live_relevance")
        assert (record.gold[1].calls == ()) == category.endswith("irrelevance")
    for other in ("multi_turn_base_0", "simple_0", "irrelevanc_0"):
        row = json.loads(FORMATS["bfcl"].example) | {"id": other}
        assert rejected(lambda row=row: to_record(row, "bfcl")) == "E201"


def test_an_ms_agent_chain_is_split_at_its_observations() -> None:
    record = record_of("ms_agent")
    validate(record)
    assert [m.role for m in record.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    search, found, ring, rung, answer = record.messages[1:6]
    assert (search.content, search.calls[0].arguments) == (
        "先搜索绿茶。",
        {"keywords": {"种类": "绿茶"}, "limit": 2},
    )
    assert found.content == "[{'name': '龙井', 'price': '88'},\n {'name': '碧螺春', 'price': '90'}]"
    assert (ring.content, ring.calls[0].name, ring.calls[0].arguments) == (
        "现在打电话。",
        "call_shop",
        {},
    )
    assert (found.call_id, rung.call_id) == (search.calls[0].id, ring.calls[0].id)
    assert answer.content == "推荐两款：\n1. 龙井\n2. 碧螺春"
    assert not any("Observation" in m.content for m in record.messages if m.role == "assistant")


def test_the_apis_of_a_react_prompt_are_tools_and_its_frame_is_gone() -> None:
    record = record_of("ms_agent")
    assert not any(message.role == "system" for message in record.messages)
    search, ring = record.tools
    assert (search.name, search.description, ring.description) == (
        "tea_search",
        "Call this tool to interact with the tea search API. What is the tea search API useful "
        "for? .",
        "Call this tool to interact with the shop calling API. This API rings the shop.",
    )
    assert search.parameters == {
        "type": "object",
        "required": ["keywords"],
        "properties": {
            "keywords": {"description": "茶叶关键词"},
            "limit": {"description": "how many"},
        },
    }
    row = rows_of(DATA / "formats" / "ms_agent.jsonl")[0].value
    row["conversations"][0]["value"] = f"You sell tea.\n\n{row['conversations'][0]['value']}"
    assert to_record(row).messages[0].content == "You sell tea."


@pytest.mark.parametrize("system", ["You sell tea.", "", None])
def test_a_chain_needs_no_react_prompt_before_it(system: str | None) -> None:
    row = chain("Action: f\nAction Input: {}\nObservation: 1\nFinal Answer: a")
    row["conversations"].insert(0, {"from": "system", "value": system})
    record = to_record(row)
    assert record.tools == ()
    assert [message.role for message in record.messages if message.role != "system"][1:] == [
        "assistant",
        "tool",
        "assistant",
    ]


def test_a_very_long_number_in_a_react_prompt_is_text() -> None:
    row = rows_of(DATA / "formats" / "ms_agent.jsonl")[0].value
    before = to_record(row).tools
    row["conversations"][0]["value"] = row["conversations"][0]["value"].replace(
        "\n1. ", f"\n{'9' * 5000}. x: y\n1. "
    )
    assert to_record(row).tools == before


def chain(text: str) -> dict[str, Any]:
    return {"conversations": [{"from": "user", "value": "q"}, {"from": "assistant", "value": text}]}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Action: f\nAction Input: Oslo\nObservation: 1\nFinal Answer: a", "E206"),
        ("Action: f\nAction Input: ['Oslo']\nObservation: 1\nFinal Answer: a", "E208"),
        ("Action: f\nAction Input: {'a': " + "[" * 70_000 + "\nObservation: 1", "E206"),
        ("Action: f\nAction Input: {'a': open('x')}\nObservation: 1", "E206"),
        ("Observation: 1\nFinal Answer: a", "E214"),
        ("Action: f\nObservation: 1\nFinal Answer: a", "E214"),
        ("Action: f\nFinal Answer: a", "E214"),
    ],
)
def test_a_chain_that_cannot_be_taken_apart_is_rejected(text: str, code: str) -> None:
    assert rejected(lambda: to_record(chain(text), "ms_agent")) == code


def test_an_answer_without_its_label_is_kept() -> None:
    text = (
        "Action: f\nAction Input: {}\nObservation: 1\nThought: I now know the final answer\nIt "
        "is one."
    )
    assert to_record(chain(text)).messages[-1].content == "It is one."


@pytest.mark.long
@needs_bfcl
@pytest.mark.parametrize("category", CATEGORIES)
@pytest.mark.parametrize("form", ["least", "full"])
def test_every_bfcl_row_is_valid_and_its_own_answer_satisfies_its_gold(
    category: str, form: str
) -> None:
    impossible = set()
    for raw in read_raw(f"bfcl:{category}", EMPTY):
        try:
            record = to_record(raw.value, options={"bfcl": {"accepted_answer": form}})
        except RowError:
            impossible.add(raw.value["id"])
            continue
        validate(record)
        turn = record.turns[-1]
        assert from_row(to_row(record)) == record
        assert category in ANY_CALL or not calls_problem(
            record.messages[turn].calls, record.expected(turn), record.tools
        ), raw.location
        assert turn in record.gold
        assert record.meta == {"bfcl_id": raw.value["id"], "category": category}
        answer = record.messages[turn]
        assert bool(answer.calls) == (category not in (*NO_CALL, *ANY_CALL))
        assert bool(answer.content) == (not answer.calls)  # nothing is learned beside calls
    assert impossible == {row for row in IMPOSSIBLE if row.startswith(f"{category}_")}


def test_the_full_answer_has_every_parameter_of_which_a_value_is_accepted_and_fits() -> None:
    """In rows of prompts as in those of BFCL; a value that breaks the schema is never added."""
    schema = {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("city", "unit", "day", "lang")},
        "required": ["city"],
    }
    row = {
        "prompt": "Is it wet in Oslo?",
        "tools": [{"name": "weather", "parameters": schema}],
        "gold": [
            {
                "name": "weather",
                "arguments": {"city": ["Oslo"], "unit": ["", "mm"], "day": ["", 7], "lang": [""]},
            }
        ],
    }
    for form, added in (("least", {}), ("full", {"unit": "mm"})):
        record = to_record(row, options={"prompts": {"accepted_answer": form}})
        [call] = record.messages[-1].calls
        assert call.arguments == {"city": "Oslo", **added}
        assert not calls_problem((call,), record.expected(1), record.tools)


def test_a_bfcl_answer_leaves_out_what_may_be_left_out_at_every_depth() -> None:
    row = json.loads(FORMATS["bfcl"].example)
    user = {"type": "dict", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
    row["function"][0]["parameters"]["properties"] |= {
        "by": user,
        "all": {"type": "tuple", "items": user},
    }
    row["ground_truth"][0]["geo.area"] |= {
        "by": [{"name": ["Ada", "A."], "age": [36, ""]}],
        "h": ["", 4],
        "all": [[{"name": ["Bo"]}, {"name": [""]}]],
    }
    record = to_record(row)
    arguments = {"w": 3, "h": 4, "by": {"name": "Ada"}, "all": [{"name": "Bo"}, {}]}
    assert record.messages[-1].calls[0].arguments == arguments
    full = to_record(row, options={"bfcl": {"accepted_answer": "full"}})
    arguments |= {"unit": "cm", "by": {"name": "Ada", "age": 36}}
    assert full.messages[-1].calls[0].arguments == arguments and full.gold == record.gold
    assert record.expected(1).calls == (GoldCall("geo.area", row["ground_truth"][0]["geo.area"]),)
    assert record.tools[0].parameters["properties"]["all"] == {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        },
        "format": TUPLE,
    }


def test_where_bfcl_wants_no_call_the_sentence_said_can_be_chosen() -> None:
    row = {**json.loads(FORMATS["bfcl"].example), "id": "irrelevance_3"}
    del row["ground_truth"]
    for given_answer, said in (
        ({}, NO_CALL_ANSWER),
        ({"bfcl": {"no_call_answer": "Not with these."}}, "Not with these."),
    ):
        record = to_record(row, options=given_answer)
        assert (record.messages[-1].content, record.expected(1), record.task) == (
            said,
            Gold(()),
            "timing_decision",
        )


def test_where_bfcl_wants_any_call_there_is_none_to_learn() -> None:
    row = {**json.loads(FORMATS["bfcl"].example), "id": "live_relevance_3"}
    del row["ground_truth"]
    record = to_record(row)
    assert (record.split, record.prompted_turns, record.expected(1)) == (
        "test",
        [1],
        Gold((GoldCall(ANY_TOOL),)),
    )
    for calls in ((), (Call("geo.area"),)):
        scores = score_step(Parsed("", calls), record.expected(1), record.tools)
        assert scores.keys() == {"call_decision", "format_compliance"} and scores[
            "call_decision"
        ] == bool(calls)


def test_a_java_function_is_told_as_one_of_texts_and_its_answer_is_written_in_java() -> None:
    row = {**json.loads(FORMATS["bfcl"].example), "id": "simple_java_9"}
    row["function"][0]["parameters"]["properties"] |= {
        "w": {"type": "long", "description": "width"},
        "tags": {"type": "ArrayList", "items": {"type": "String"}},
    }
    row["ground_truth"][0]["geo.area"] |= {"tags": [["a", "b"]]}
    record = to_record(row)
    properties = record.tools[0].parameters["properties"]
    assert properties["w"] == {
        "type": "string",
        "format": "Java long",
        "description": "width (text: Java long)",
    }
    assert (
        properties["tags"]["format"] == "Java ArrayList<String>"
        and properties["tags"]["type"] == "string"
    )
    arguments = {"w": "3L", "h": "4", "tags": 'new ArrayList<>(Arrays.asList("a", "b"))'}
    assert record.messages[-1].calls[0].arguments == arguments
    for name, value in (("w", "3"), ("w", 3), ("tags", ["a", "b"])):
        assert calls_problem(
            [Call("geo.area", arguments | {name: value})], record.expected(1), record.tools
        )


def test_a_bfcl_row_without_its_accepted_answers_is_rejected() -> None:
    row = json.loads(FORMATS["bfcl"].example)
    assert rejected(lambda: to_record({**row, "id": "multi_turn_base_3"})) == "E201"
    del row["ground_truth"]
    assert rejected(lambda: to_record(row)) == "E201"


def test_several_messages_of_a_bfcl_user_are_one_in_their_order() -> None:
    row = json.loads(FORMATS["bfcl"].example)
    turns = [("user", "One."), ("user", "Two."), ("assistant", "Three."), ("user", "Four.")]
    row["question"] = [[{"role": role, "content": text} for role, text in turns]]
    *before, _ = to_record(row).messages
    assert [(message.role, message.content, message.loss) for message in before] == [
        ("user", "One.\n\nTwo.", True),
        ("assistant", "Three.", False),
        ("user", "Four.", True),
    ]


def test_an_element_of_a_json_array_is_named_by_the_line_where_it_begins(tmp_path: Path) -> None:
    path, values = tmp_path / "rows.json", [{"n": n, "text": ["a", "b"]} for n in range(4)]
    for indent, lines in ((None, [3, 3, 3, 3]), (1, [4, 11, 18, 25])):  # an element is 7 lines
        path.write_text("\n\n" + json.dumps(values, indent=indent) + "\n", encoding="utf-8")
        raws = read_raw(str(path), io.BytesIO())
        assert [raw.location for raw in raws] == [f"{path}:{line}" for line in lines]


def test_null_arguments_in_the_gold_of_a_prompt_are_not_known() -> None:
    row = {"prompt": "q", "tools": [{"name": "f", "parameters": {}}]}
    record = to_record({**row, "gold": [{"name": "f", "arguments": None}]}, "prompts")
    assert record.gold == {1: Gold((GoldCall("f", None),))} and record.unknown_arguments(1) == [0]
    known = to_record({**row, "gold": [{"name": "f"}]}, "prompts")
    assert known.gold == {1: Gold((GoldCall("f", {}),))}


@pytest.mark.parametrize(
    ("accepted", "split"), [([3], ""), ([3, "3"], ""), (["3"], "test"), ([[3]], "test")]
)
def test_a_bfcl_row_whose_answer_breaks_the_schema_is_for_tests_alone(
    accepted: list[Any], split: str
) -> None:
    """It is judged by BFCL's own gold, and never learned."""
    row = json.loads(FORMATS["bfcl"].example)
    row["ground_truth"][0]["geo.area"]["w"] = accepted
    assert to_record(row).split == split
