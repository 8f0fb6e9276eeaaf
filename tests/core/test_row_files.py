"""Files appear whole or not at all, and a torn last line costs that line alone."""

import errno
import json
import os

import pytest

from agentlite.core.errors import UserError
from agentlite.core.row_files import (
    Appender,
    disk_errors,
    encode,
    find_rows,
    fix_for,
    read_parquet,
    read_rows,
    refuse_unwritable,
    replacing,
    sync_all,
    whole_lines_end,
    write_json,
    write_rows,
)


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


def test_all_that_was_written_is_there_when_a_file_is_synced(tmp_path, monkeypatch):
    sizes = []
    monkeypatch.setattr(os, "fsync", lambda handle: sizes.append(os.fstat(handle).st_size))
    write_json(tmp_path / "plan.json", {"n": 1})
    assert sizes[0] == (tmp_path / "plan.json").stat().st_size > 0


def test_appended_rows_are_synced_when_the_file_is_closed(tmp_path, disk_calls):
    with Appender(tmp_path / "rows.jsonl") as file:
        file.append({"n": 1})
        assert disk_calls == []
    assert disk_calls == ["fsync rows.jsonl"]


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
        assert path.read_bytes() == encode({"n": 1})
        appender.file = file
        appender.append({"n": 3})
    assert list(read_rows(path)) == [{"n": 1}, {"n": 3}]


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


@pytest.mark.parametrize(
    ("refused", "way_out"),
    [
        (errno.ENOSPC, "Free some space"),
        (errno.EDQUOT, "Free some space"),
        (errno.EROFS, "--run FOLDER"),
        (errno.EACCES, "that you may write to"),
        (errno.EPERM, "that you may write to"),
        (errno.ENOENT, "is the disk still there?"),
        (errno.EISDIR, "Name a file, not a folder."),
        (errno.EBUSY, "Repair what the system names"),
        (errno.ENODEV, "Is the disk still there?"),
        (errno.EIO, "Is the disk still there?"),
        (errno.ESTALE, "Is the disk still there?"),
        (errno.ENAMETOOLONG, "a shorter name"),
    ],
)
def test_what_the_system_refuses_is_an_error_with_its_path_and_a_way_out(
    refused, way_out, tmp_path
):
    with pytest.raises(UserError) as caught, disk_errors(tmp_path / "rows.jsonl"):
        raise OSError(refused, os.strerror(refused))
    assert (caught.value.location, caught.value.exit_code) == (str(tmp_path / "rows.jsonl"), 74)
    assert os.strerror(refused) in caught.value.problem
    assert way_out in caught.value.fix


@pytest.mark.parametrize("number", sorted(errno.errorcode))
def test_advice_fits_what_the_system_refuses(number):
    for by in (": --run FOLDER", ""):
        fix = fix_for(OSError(number, os.strerror(number)), by=by)
        assert ("space" in fix) == (number in (errno.ENOSPC, errno.EDQUOT))
        assert ("may write" in fix) == (number in (errno.EACCES, errno.EPERM, errno.EROFS))
        assert "{" not in fix and ("--run" in fix) <= bool(by) and fix.endswith(".")


def test_a_folder_that_will_be_written_to_is_made_and_a_file_in_its_stead_is_refused(tmp_path):
    refuse_unwritable(tmp_path / "a" / "b")
    assert os.listdir(tmp_path / "a") == ["b"]
    assert os.listdir(tmp_path / "a" / "b") == []
    refuse_unwritable(tmp_path / "a" / "b")
    (tmp_path / "file").touch()
    with pytest.raises(UserError) as caught:
        refuse_unwritable(tmp_path / "file")
    assert caught.value.exit_code == 74


def test_files_are_synced_and_then_each_of_their_folders_once(tmp_path, disk_calls):
    paths = [tmp_path / name for name in ("b/1", "a/2", "b/3")]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    sync_all(iter(paths))
    assert disk_calls == ["fsync 1", "fsync 2", "fsync 3", "fsync a", "fsync b"]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_what_was_written_and_synced_leaves_no_file_open(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for n in range(5):
        write_json(tmp_path / "plan.json", {"n": n})
        with Appender(tmp_path / "rows.jsonl") as file:
            file.append({"n": n})
        sync_all([tmp_path / "plan.json"])
        refuse_unwritable(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_json_is_indented_and_ends_with_a_line_break(tmp_path):
    write_json(tmp_path / "plan.json", {"a": [1], "b": "æ"})
    text = '{\n  "a": [\n    1\n  ],\n  "b": "æ"\n}\n'
    assert (tmp_path / "plan.json").read_text(encoding="utf-8") == text


def test_rows_are_found_under_either_suffix_and_jsonl_comes_first(tmp_path):
    assert find_rows(tmp_path, "train") == tmp_path / "train.jsonl"
    (tmp_path / "train.parquet").touch()
    assert find_rows(tmp_path, "train") == tmp_path / "train.parquet"
    (tmp_path / "train.jsonl").touch()
    assert find_rows(tmp_path, "train") == tmp_path / "train.jsonl"


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


def test_a_half_of_a_surrogate_pair_is_written_and_read_back_as_bytes():
    assert encode({"a": "\ud800"}) == b'{"a": "\xed\xa0\x80"}\n'


def test_the_last_complete_line_ends_behind_its_line_break(tmp_path):
    path = tmp_path / "rows.jsonl"
    for content, end in ((b"", 0), (b"ab", 0), (b"ab\n", 3), (b"ab\ncd", 3), (b"\n\nx", 2)):
        path.write_bytes(content)
        assert whole_lines_end(path) == end
