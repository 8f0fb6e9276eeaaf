"""A growing file is read once, whatever happens to it meanwhile."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentlite.deploy.board import growing_rows
from agentlite.deploy.board.growing_rows import GrowingRows, Look, count_rows, newest_rows


def line(number: int) -> bytes:
    return json.dumps({"step": number}).encode() + b"\n"


@settings(max_examples=50, deadline=None)
@given(cuts=st.lists(st.integers(0, 130), max_size=6))
def test_every_row_is_read_once_wherever_the_writer_was(tmp_path_factory, cuts):
    path = tmp_path_factory.mktemp("log") / "metrics.jsonl"
    content = b"".join(line(number) for number in range(10)) + b'{"step": 10, "lo'
    growing, found = GrowingRows(path), []
    for cut in [*sorted(cuts), len(content)]:
        path.write_bytes(content[:cut])
        look = growing.look()
        assert not look.anew and not look.unread
        found += look.rows
    assert found == [{"step": number} for number in range(10)]


@pytest.mark.parametrize("idle", [0, 2])  # looks at which nothing is new
@pytest.mark.parametrize("change", ["shorter", "same length", "longer", "replaced", "gone"])
def test_a_file_that_is_not_the_same_any_more_is_read_anew(tmp_path, change, idle):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(line(1) + line(2))
    growing = GrowingRows(path)
    assert len(growing.look().rows) == 2
    assert [growing.look() for _ in range(idle)] == [Look([])] * idle
    if change == "gone":
        path.unlink()
        assert growing.look() == Look([], anew=True)
        assert growing.look() == Look([])
    if change == "replaced":  # by the same bytes, as a run that goes back to a checkpoint does
        aside = tmp_path / "aside"
        aside.write_bytes(line(1) + line(2) + line(3))
        aside.replace(path)
    texts = {"shorter": line(5), "same length": line(5) + line(6), "longer": line(5) + b" " * 99}
    if change in texts:
        path.write_bytes(texts[change])
    look = growing.look()
    assert (look.anew, bool(look.rows)) == ((change != "gone"), change != "gone")


def test_what_is_not_a_row_is_counted_and_passed_over(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(line(1) + b"\xff\xfe\n[1]\n\n" + b"[" * 100_000 + b"\n" + line(2))
    look = GrowingRows(path).look()
    assert ([row["step"] for row in look.rows], look.unread) == ([1, 2], 3)


def test_a_line_longer_than_a_look_does_not_stop_the_reader(tmp_path, monkeypatch):
    monkeypatch.setattr(growing_rows, "AT_ONCE", 64)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"text": "' + b"x" * 1000 + b'"}\n' + line(2))
    growing, rows, more = GrowingRows(path), [], True
    while more:
        look = growing.look()
        rows, more = rows + look.rows, look.more
    assert rows == [{"step": 2}]


def test_the_newest_rows_come_first_from_the_end_alone(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(b"".join(line(number) for number in range(1000)) + b'{"step": 1000')
    assert [row["step"] for row in newest_rows(path, 3)] == [999, 998, 997]
    assert [row["step"] for row in newest_rows(path, 9, within=50)] == [999, 998]
    assert newest_rows(tmp_path / "none", 3) == []
    # of a short file every row is there, the first as well, but not one that is being written
    path.write_text('{"step": 0}\n{"step": 1}\n{"st', encoding="utf-8")
    assert [row["step"] for row in newest_rows(path, 9)] == [1, 0]


def test_rows_are_counted_on(tmp_path: Path):
    path = tmp_path / "answers.jsonl"
    assert count_rows(path) == 0
    path.write_bytes(line(1) + b"{")
    assert count_rows(path) == 1
    with open(path, "ab") as file:
        file.write(b"}\n" + line(3))
    assert count_rows(path) == 3
    path.write_bytes(line(1))
    assert count_rows(path) == 1
    aside = tmp_path / "aside"
    aside.write_bytes(b'{"step": "of another file, which is longer"}\n' + b"{")
    aside.replace(path)
    assert count_rows(path) == 1


def test_a_row_without_keys_is_a_row_and_what_is_no_row_is_counted(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{}\n{"a": 1}\n\n[]\n{"a"\n1\n')
    assert GrowingRows(path).look() == Look([{}, {"a": 1}], unread=3)
    assert newest_rows(path, 9) == [{"a": 1}, {}]
