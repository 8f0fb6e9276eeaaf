"""agentlite.data.formats.raw_rows: other kinds of files are refused, and rows are read."""

import gzip
import io
import json
from pathlib import Path

import pytest
from support.malformed_rows import good

from agentlite.core.errors import UserError
from agentlite.data.formats.raw_rows import read_raw

FILES = {
    "'question,answer": b"question,answer\nWhere is it?,Here.\nAnd now?,There.\n",
    "'PK": b"PK\x03\x04\x14\0rows.jsonl",
    "<!doctype HTML>": b"\n<!doctype HTML>\n<title>404</title>",
    "'version https://git-lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d\n",
    "text in UTF-16,": good().decode().encode("utf-16"),
}


@pytest.mark.parametrize("what", FILES)
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_of_another_kind_is_refused_with_how_it_begins(
    what: str, packed: bool, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(gzip.compress(FILES[what]) if packed else FILES[what])
    with pytest.raises(UserError) as caught:
        [*read_raw(str(path), io.BytesIO())]
    assert what in caught.value.problem and "\n" not in caught.value.problem
    assert caught.value.fix and caught.value.location == str(path)


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


def test_an_object_over_lines_that_is_broken_is_one_reject_with_its_line(tmp_path: Path) -> None:
    text = json.dumps(json.loads(good(1)), indent=2)
    broken = text.replace('"content": "4 mm"\n', '"content": "4 mm",\n')
    assert broken != text
    path = tmp_path / "rows.json"
    path.write_text(f"{broken}\n{text}\n", encoding="utf-8")
    (raw,) = read_raw(str(path), io.BytesIO())
    assert raw.error is not None and raw.error.code == "E105"
    line = 1 + broken[: broken.index('"4 mm",')].count("\n")
    assert f": line {line + 1} column" in raw.error.reason
