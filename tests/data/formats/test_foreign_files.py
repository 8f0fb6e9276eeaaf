"""agentlite.data.formats.foreign_files: other kinds of files are named, and rows are read."""

import contextlib
import gzip
import io
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.malformed_rows import good

from agentlite.core.errors import UserError
from agentlite.core.row_files import write_rows
from agentlite.data.formats import read_raw
from agentlite.data.formats.foreign_files import HEAD, SIGNATURES, refuse_foreign

TABLE = 'question,answer\nWhere is it?,Here.\nAnd now?,"Still, here."\n'
FILES = {
    "comma-separated": TABLE.encode(),
    "comma-separated values": TABLE.replace("\n", "\r\n").encode(),
    "tab-separated": b"a\tb\n1\t2\n",
    "semicolon-separated": b"\xef\xbb\xbfa;b\n1;2\n3;4",
    "a table with |": b"a|b\n1|2\n",
    "an Excel workbook": b"PK\x03\x04\x14\0[Content_Types].xml xl/workbook.xml",
    "a ZIP archive": b"PK\x03\x04\x14\0rows.jsonl",
    "a tar archive": b"rows.jsonl".ljust(257, b"\0") + b"ustar\x0000",
    "a PNG picture": b"\x89PNG\r\n\x1a\n",
    "a JPEG picture": b"\xff\xd8\xff\xe0",
    "a PDF document": b"%PDF-1.7\n",
    "an HTML page": b"\n<!doctype HTML>\n<title>404</title>",
    "an HTML page, as": b'<?xml version="1.0"?>\n<html xmlns="x">',
    "a Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 5\n",
    "text in UTF-16,": good().decode().encode("utf-16"),
    "text in UTF-16LE,": good().decode().encode("utf-16-le"),
    "text in UTF-16BE,": good().decode().encode("utf-16-be"),
    "text in UTF-32,": good().decode().encode("utf-32"),
    "text in UTF-32LE,": good().decode().encode("utf-32-le"),
    "text in UTF-32BE,": good().decode().encode("utf-32-be"),
}


@pytest.mark.parametrize("what", FILES)
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_of_another_kind_is_named_with_what_to_do(
    what: str, packed: bool, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(gzip.compress(FILES[what]) if packed else FILES[what])
    with pytest.raises(UserError) as caught:
        [*read_raw(str(path), io.BytesIO())]
    assert f"this is {what}" in caught.value.problem or what in caught.value.problem
    assert caught.value.fix and caught.value.location == str(path)


def test_each_kind_is_found_by_its_first_bytes() -> None:
    for foreign in SIGNATURES:
        with pytest.raises(UserError, match=f"this is {foreign.what}"):
            refuse_foreign(foreign.begins + foreign.holds, "a file")


@given(st.binary(max_size=400))
def test_any_bytes_are_looked_at_without_a_fault(head: bytes) -> None:
    with contextlib.suppress(UserError):
        refuse_foreign(head, "a")


@pytest.mark.parametrize(
    "content",
    [
        good(),
        b"\xef\xbb\xbf" + good(),
        b"\n\n" + good(),
        b"[" + good(1) + b"]",
        json.dumps(json.loads(good(1)), indent=2).encode(),
        b"user,assistant\n" + good(),
        gzip.compress(good()),
    ],
)
def test_rows_are_taken_for_nothing_else(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    assert any(raw.value for raw in read_raw(str(path), io.BytesIO()))


def test_parquet_is_read_whatever_its_name(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.parquet", [{"a": 1}])
    path = (tmp_path / "rows.parquet").rename(tmp_path / "rows.jsonl")
    assert [raw.value for raw in read_raw(str(path), io.BytesIO())] == [{"a": 1}]


def test_the_command_that_is_given_for_a_table_writes_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "my orders.csv"
    path.write_text(TABLE, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        [*read_raw(str(path), io.BytesIO())]
    command = caught.value.fix.splitlines()[0].removeprefix("Write its rows as JSON: ")
    words = shlex.split(command)
    assert words[0] == "python3" and words[-4:] == ["<", str(path), ">", "my orders.jsonl"]
    with path.open("rb") as stdin:
        done = subprocess.run(
            [sys.executable, *words[1:-4]], stdin=stdin, capture_output=True, check=True
        )
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"question": "Where is it?", "answer": "Here."},
        {"question": "And now?", "answer": "Still, here."},
    ]


def test_an_object_over_lines_that_is_broken_is_one_reject_with_its_line(tmp_path: Path) -> None:
    text = json.dumps(json.loads(good(1)), indent=2)
    broken = text.replace('"content": "4 mm"\n', '"content": "4 mm",\n')
    assert broken != text
    path = tmp_path / "rows.json"
    path.write_text(f"{broken}\n{text}\n", encoding="utf-8")
    (raw,) = read_raw(str(path), io.BytesIO())
    assert raw.error is not None and raw.error.code == "E105"
    line = 1 + broken[: broken.index('"4 mm",')].count("\n")
    assert raw.error.reason.endswith(f"a comma before '}}' in line {line}")


@pytest.mark.parametrize("extra", [0, 3, 200])
def test_a_table_is_known_where_its_first_bytes_end_amid_a_line(extra: int) -> None:
    lines = [f"Where is it?,{'here ' * 90}" for _ in range(11)]
    head = "\n".join([f"question,answer{' ' * extra}", *lines]).encode()[:HEAD]
    amid = head[: head.rindex(b",", 0, HEAD) - 4]  # the last line has no comma yet
    padded = head[:15] + b" " * (HEAD - len(amid)) + amid[15:]
    for content in (head, padded):
        assert len(content) == HEAD
        with pytest.raises(UserError, match="comma-separated"):
            refuse_foreign(content, "rows.csv")


@pytest.mark.parametrize(
    "text",
    [
        "Well, no.\n",
        "a,b\nc,d,e\n",
        "a\nb\n",
        "[1, 2,\n3, 4,\n",
        "\ufeff[1, 2,\n3, 4,\n",
        "1, 2,\n {3, 4,\n",
    ],
)
def test_lines_are_a_table_only_if_all_have_as_many_columns_and_none_begins_as_json(
    text: str,
) -> None:
    refuse_foreign(text.encode(), "rows.jsonl")
    with pytest.raises(UserError, match="CSV"):
        refuse_foreign(b"a,b\n\nc,d\n", "rows.jsonl")
