"""agentlite.data.formats.raw_rows: files, folders and stdin become rows, and a fault says why."""

import gzip
import json
import os
from contextlib import suppress
from pathlib import Path

import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st
from support.read_rows import from_stdin, rows_of

from agentlite.core.errors import REJECTS, UserError
from agentlite.data.formats import raw_rows
from agentlite.data.formats.raw_rows import LONGEST_LINE, PACKED, files_of, refuse_foreign

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
    if lines and raw_rows.begins_document(
        lines[0] + b"\n"
    ):  # an object over lines, whole or broken
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
                refuse_foreign(content[: raw_rows.HEAD_SIZE], "stdin")
        return
    if content.startswith(tuple(PACKED)):  # it says it is packed, and is not
        assert raws[-1].error is not None and raws[-1].error.code == "E104"
        return
    assert [raw.content for raw in raws] == lines
    assert all((raw.error is None) == isinstance(raw.value, dict) for raw in raws)


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
    first, bad, good = from_stdin(b'{"good": 0}\n' + line + b'\n\n{"good": 1}\n')
    assert bad.error is not None and first.value == {"good": 0}
    assert (bad.error.code, bad.content, bad.location) == (BAD_LINES[line], line, "stdin:2")
    assert (good.value, good.location) == ({"good": 1}, "stdin:4")


def test_a_line_that_is_too_long_is_rejected_without_being_kept() -> None:
    long, good = from_stdin(b'{"a": "' + b"x" * LONGEST_LINE + b'"}\n{"good": 1}\n')
    assert long.error is not None
    assert (long.error.code, len(long.content) < 5000, good.value) == ("E120", True, {"good": 1})


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
    values = [{"n": n, "text": ["a", "b"]} for n in range(3)]  # an element is 7 lines
    path.write_text("\n\n" + json.dumps(values, indent=1) + "\n", encoding="utf-8")
    assert [raw.location for raw in rows_of(path)] == [f"{path}:{line}" for line in (4, 11, 18)]
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


def test_an_object_that_does_not_end_is_one_row_with_all_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1,\n{"a": 2}\n{"a": 3}\n')
    (whole,) = rows_of(path)
    assert whole.error is not None and whole.error.code == "E105"
    assert whole.content == path.read_bytes().rstrip()
    path.write_bytes(b'{\n"a": 1\n}\n{\n"a": 2\n')
    whole, cut = rows_of(path)
    assert (whole.value, cut.error and cut.error.code) == ({"a": 1}, "E105")


@pytest.mark.parametrize(
    "content",
    [
        *(b'[{"a": 1}, {"a"', b'[{"a": 1},', b'[{"a": 1}'),
        *(b'[{"a": 1}\n{"a": 2}]', b'[\n{"a": 1}]\n[{"a": 2}]', b'[{"a": 1}] x'),
    ],
)
def test_a_cut_array_keeps_its_whole_rows_and_says_that_it_is_cut(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(content)
    whole, cut = rows_of(path)
    assert whole.value == {"a": 1}
    assert cut.error is not None
    assert cut.error.code == "E105"


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
    (tmp_path / "code.py").write_text("import json\n\ndef rows():\n    return [{}]\n")
    os.mkfifo(tmp_path / "pipe")
    expected = {
        "row.jsonl": ("no such file", "rows.jsonl"),
        "": ("directory", "may read"),
        "rows.jsonl": ("no rows", "one JSON object per line"),
        "wide.jsonl": ("UTF-16", "iconv"),
        "code.py": ("begins with 'import json", "--formats"),
        "pipe": ("prep -", "may read"),
        "a\0b": ("cannot be read", "may read"),
    }
    for name, (problem, fix) in expected.items():
        with pytest.raises(UserError) as caught:
            rows_of(tmp_path / name)
        assert problem in caught.value.problem
        assert fix in caught.value.fix
        assert (caught.value.exit_code == REJECTS) == (name == "rows.jsonl")


def packed(content: bytes, how: str) -> bytes:
    if how == "gzip":
        return gzip.compress(content)
    return zstandard.ZstdCompressor(write_checksum=True).compress(content)


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
    for place in (len(whole) // 3, len(whole) - 2):  # the latter is of the checksum
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        assert [raw.error.code for raw in rows_of(path) if raw.error][-1] == "E104"


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
