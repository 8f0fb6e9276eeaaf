"""Curves stay small, follow a run that goes back, and say how long it still takes."""

import json
from pathlib import Path

import pytest

from agentlite.core.row_files import write_rows
from agentlite.deploy.board.curves import MOST_CURVES, MOST_POINTS, Curves


def paced(steps: int, *, of: int, seconds: float = 2.0, tokens: int = 100) -> list[dict]:
    return [
        {
            "step": step,
            "steps": of,
            "at": 1e9 + seconds * step,
            "tokens": tokens * step,
            "memory_gib": 1.5,
        }
        for step in range(1, steps + 1)
    ]


def test_a_long_run_has_as_many_points_as_fit_and_their_means(tmp_path):
    write_rows(tmp_path / "metrics.jsonl", ({"step": n, "loss": float(n)} for n in range(1, 5001)))
    found = Curves(tmp_path).look().as_json()
    loss = found["curves"]["loss"]
    assert MOST_POINTS / 2 < len(loss["x"]) <= MOST_POINTS
    assert (loss["x"][-1], loss["last"], found["step"]) == (5000, 5000, 5000)
    assert loss["y"][0] == pytest.approx((loss["x"][0] + 1) / 2, rel=1e-3)


def test_a_run_that_is_looked_at_on_the_way_has_the_same_curves_in_the_end(tmp_path):
    path, rows = tmp_path / "metrics.jsonl", [{"step": n, "loss": 1 / n} for n in range(1, 1500)]
    follow = Curves(tmp_path)
    for cut in (1, 7, 800, len(rows)):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows[:cut]))
        follow.look()
    assert follow.as_json()["curves"] == Curves(tmp_path).look().as_json()["curves"]


def test_steps_that_are_taken_again_replace_the_first_ones(tmp_path):
    rows = [*paced(10, of=20), *({**row, "memory_gib": 9.0} for row in paced(8, of=20)[5:])]
    write_rows(tmp_path / "pace.jsonl", rows)
    memory = Curves(tmp_path).look().as_json()["curves"]["memory_gib"]
    assert memory["x"] == [*range(1, 9)] and memory["y"][-3:] == [9.0] * 3


def test_speed_and_time_left_come_from_the_pace(tmp_path):
    write_rows(tmp_path / "metrics.jsonl", ({"step": n, "loss": 1.0} for n in range(1, 11)))
    write_rows(tmp_path / "pace.jsonl", paced(10, of=30))
    found = Curves(tmp_path).look().as_json()
    assert (found["steps"], found["left"]) == (30, pytest.approx(40))
    assert set(found["curves"]["tokens_per_second"]["y"]) == {50.0}


@pytest.mark.parametrize("stops", [{10}, {1, 3, 5, 7, 9, 11, 13}])
def test_a_pause_between_two_processes_does_not_count(tmp_path, stops):
    rows = [
        {**row, "at": row["at"] + 1e6 * sum(stop < row["step"] for stop in stops)}
        for row in paced(15, of=20)
    ]
    write_rows(tmp_path / "metrics.jsonl", ({"step": n, "loss": 1.0} for n in range(1, 16)))
    write_rows(tmp_path / "pace.jsonl", rows)
    assert Curves(tmp_path).look().seconds_left == pytest.approx(10)


@pytest.mark.parametrize(
    "text",
    [
        '{"step": NaN, "loss": 1}\n{"step": "x"}\n{"loss": 3}\n{"step": 1, "loss": Infinity}\n',
        '{"step": 1, "at": 1e400, "steps": 2}\n{"step": {}, "at": []}\n',
        '{"step": 1e299, "loss": 1}\n{"step": 2, "loss": {"a": 1}}\n',
        "".join(f'{{"step": 1, "n{n}": 1}}\n' for n in range(3 * MOST_CURVES)),
    ],
)
def test_harmed_rows_are_left_out_and_what_is_sent_is_json(tmp_path: Path, text):
    for name in ("metrics.jsonl", "pace.jsonl"):
        (tmp_path / name).write_text(text)
    found = Curves(tmp_path).look().as_json()
    json.dumps(found, allow_nan=False)
    assert len(found["curves"]) <= MOST_CURVES + 2


def test_names_that_are_read_against_each_other_share_a_chart(tmp_path):
    row = {"step": 1, "grad_norm": 1, "loss": 1, "dev_loss": 1, "kl": 0, "reward/exact": 1}
    write_rows(tmp_path / "metrics.jsonl", [row])
    found = Curves(tmp_path).look().as_json()
    assert found["groups"] == [["loss", "dev_loss"], ["kl"], ["grad_norm"]]
    assert found["components"] == ["reward/exact"]
