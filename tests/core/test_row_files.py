"""Files appear whole or not at all, and a torn last line costs that line alone."""

import json
import os

import pytest

from agentlite.core.errors import UserError
from agentlite.core.row_files import (
    Appender,
    json_line,
    read_parquet,
    read_rows,
    replacing,
    row_file,
    write_json,
    write_rows,
)


def test_a_torn_last_line_is_cut_wherever_it_was_torn(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"n": 1, "text": "æ中"}, {"n": 2}]
    whole = b"".join(map(json_line, rows))
    first = len(json_line(rows[0]))
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with Appender(path) as file:
            file.append({"n": 3})
        expected = [{"n": 3}] if length < first else [rows[0], {"n": 3}]
        assert list(read_rows(path)) == expected, length


@pytest.mark.parametrize("error", [ValueError("stop"), KeyboardInterrupt("stop")])
def test_a_file_that_fails_half_way_leaves_the_old_one(tmp_path, error):
    path = tmp_path / "plan.json"
    write_json(path, {"old": 1})

    def fail() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error), match="stop"):
        fail()
    assert json.loads(path.read_bytes()) == {"old": 1}
    assert os.listdir(tmp_path) == ["plan.json"]


def test_a_file_is_synced_before_it_is_renamed_and_its_folder_after(tmp_path, disk_calls):
    write_json(tmp_path / "plan.json", {"n": 1})
    aside = ".plan.json.partial"
    assert disk_calls == [f"fsync {aside}", f"rename {aside} plan.json", f"fsync {tmp_path.name}"]


def test_a_row_that_the_disk_took_in_part_is_taken_back(tmp_path):
    path = tmp_path / "rows.jsonl"

    class FillingDisk:
        """Takes 3 bytes of a row, as write(2) may where the disk is full."""

        def write(self, line):
            return file.write(line[:3])

        def __getattr__(self, name):
            return getattr(file, name)

    with Appender(path) as appender:
        appender.append({"n": 1})
        file, appender.file = appender.file, FillingDisk()
        with pytest.raises(UserError, match="No space left") as refusal:
            appender.append({"n": 2})
        assert refusal.value.exit_code == 74
        assert path.read_bytes() == json_line({"n": 1})
        appender.file = file
        appender.append({"n": 3})
    assert list(read_rows(path)) == [{"n": 1}, {"n": 3}]


def test_a_changed_line_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    write_rows(path, [{"n": 1}])
    path.write_bytes(path.read_bytes() + b"{oops\n")
    with pytest.raises(UserError, match=r"rows\.jsonl:2"):
        list(read_rows(path))


def test_rows_are_found_under_either_suffix_and_jsonl_comes_first(tmp_path):
    assert row_file(tmp_path, "train") == tmp_path / "train.jsonl"
    (tmp_path / "train.parquet").touch()
    assert row_file(tmp_path, "train") == tmp_path / "train.parquet"
    (tmp_path / "train.jsonl").touch()
    assert row_file(tmp_path, "train") == tmp_path / "train.jsonl"


@pytest.mark.long
def test_parquet_rows_come_back_in_their_order_and_a_flipped_byte_is_noticed(tmp_path):
    path = tmp_path / "rows.parquet"
    rows = [{"n": n, "text": f"row {n}"} for n in range(600)]  # more than are read at once
    rows[5]["text"] = "unmistakable"
    write_rows(path, rows)
    assert list(read_rows(path)) == list(read_parquet(path)) == rows
    content = bytearray(path.read_bytes())
    content[content.index(b"unmistakable")] ^= 1
    path.write_bytes(content)
    with pytest.raises(OSError, match=r"(?i)checksum|crc"):
        list(read_rows(path))
