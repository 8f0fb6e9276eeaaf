"""Files appear whole or not at all, and a torn last line costs that line alone."""

import json
import os

import pytest

from agentlite.core.errors import UserError
from agentlite.core.row_files import Appender, encode, read_rows, replacing, write_json, write_rows


def test_a_torn_last_line_is_cut_wherever_it_was_torn(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"n": 1, "text": "æ中"}, {"n": 2}]
    whole = b"".join(map(encode, rows))
    first = len(encode(rows[0]))
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with Appender(path) as file:
            file.append({"n": 3})
        expected = [{"n": 3}] if length < first else [rows[0], {"n": 3}]
        assert list(read_rows(path)) == expected, length


def test_a_file_that_fails_half_way_leaves_the_old_one(tmp_path):
    path = tmp_path / "plan.json"
    write_json(path, {"old": 1})

    def fail() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        fail()
    assert json.loads(path.read_bytes()) == {"old": 1}
    assert os.listdir(tmp_path) == ["plan.json"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_told_as_one(tmp_path):
    appender = Appender.__new__(Appender)
    appender.path = tmp_path / "rows.jsonl"
    with open("/dev/full", "wb", buffering=0) as appender.file, pytest.raises(UserError) as told:
        appender.append({"n": 1})
    assert told.value.exit_code == 74


def test_a_changed_line_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    write_rows(path, [{"n": 1}])
    path.write_bytes(path.read_bytes() + b"{oops\n")
    with pytest.raises(UserError, match=r"rows\.jsonl:2"):
        list(read_rows(path))
