"""What a seed and the losses of rows decide of a buffer; the rest is in test_coreset.py."""

import json
from pathlib import Path

from agentlite.core.records import Message, Record, to_row
from agentlite.core.row_files import Row
from agentlite.data.curation.replay_buffer import (
    BufferCounts,
    add_to_buffer,
    buffer_rows,
    find_buffer,
    replayed,
)

ROWS = [
    to_row(
        Record(
            messages=(
                Message("user", f"Question {number}?"),
                Message("assistant", f"It is {number}."),
            ),
            split="train",
        )
    )
    for number in range(30)
]
IDS = [row["id"] for row in ROWS]


def kept(folder: Path, rows: list[Row], seed: int) -> set[str]:
    add_to_buffer(
        find_buffer(folder, "one"),
        [row["id"] for row in rows],
        rows.__getitem__,
        capacity=10,
        seed=seed,
    )
    return {row["id"] for row in buffer_rows(find_buffer(folder, "two"))}


def test_another_seed_draws_other_rows_of_one_buffer() -> None:
    draws = [
        frozenset(row["id"] for row in replayed(ROWS, (), 10, ratio=0.5, seed=seed, buffer="b"))
        for seed in range(5)
    ]
    assert {len(draw) for draw in draws} == {5} and len({*draws}) == 5


def test_a_row_is_not_drawn_where_its_id_is_among_the_new_ones() -> None:
    new = {*IDS[:25]}
    drawn = replayed(ROWS, new, 100, ratio=1.0, seed=0)
    assert {row["id"] for row in drawn} == {*IDS[25:]}
    assert len(replayed(ROWS, (), 19, ratio=0.1, seed=0)) == 1


def test_a_full_buffer_keeps_the_hardest_by_the_losses_of_the_rows(tmp_path: Path) -> None:
    hard = {*IDS[3:9]}  # six tenths of it
    rows = [{**row, "meta": json.dumps({"loss": 1.0 + (row["id"] in hard)})} for row in ROWS]
    found = [kept(tmp_path / str(seed), rows, seed) for seed in range(4)]
    assert all(hard <= one and len(one) == 10 for one in found)
    level = [{**row, "meta": json.dumps({"loss": 1.0})} for row in ROWS]
    others = {frozenset(kept(tmp_path / f"level {n}", level, n)) for n in range(4)}
    assert len(others) == 4


def test_a_run_that_was_added_before_counts_what_it_counted_then(tmp_path: Path) -> None:
    def add(key: str, first: int, last: int) -> BufferCounts:
        rows = ROWS[first:last]
        found = find_buffer(tmp_path, key)
        ids = [row["id"] for row in rows]
        return add_to_buffer(found, ids, rows.__getitem__, capacity=25, seed=0)

    counts = [add("one", 0, 5), add("two", 3, 12), add("three", 12, 20)]
    assert counts == [(5, 5), (12, 7), (20, 8)]
    assert [add("one", 0, 5), add("two", 3, 12), add("three", 12, 20)] == counts
