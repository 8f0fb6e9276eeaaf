"""Curves stay small, follow a run that goes back, and say how long it still takes."""

import json
from pathlib import Path

import pytest

from agentlite.core.row_files import write_rows
from agentlite.deploy.board.curves import MOST_CURVES, MOST_POINTS, RECENT, Curves


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


@pytest.mark.parametrize(
    ("steps", "x", "first"),
    [
        (MOST_POINTS, [*range(1, MOST_POINTS + 1)], 1.0),
        (MOST_POINTS + 1, [*range(2, MOST_POINTS + 1, 2), MOST_POINTS + 1], 1.5),
        (2 * MOST_POINTS, [*range(2, 2 * MOST_POINTS + 1, 2)], 1.5),
        (485, [*range(4, 485, 4), 485], 2.5),
    ],
)
def test_a_point_is_the_mean_of_its_rows_and_stands_at_the_last_of_them(tmp_path, steps, x, first):
    assert MOST_POINTS == 240
    rows = ({"step": n, "loss": float(n)} for n in range(1, steps + 1))
    write_rows(tmp_path / "metrics.jsonl", rows)
    loss = Curves(tmp_path).look().as_json()["curves"]["loss"]
    assert (loss["x"], loss["y"][0]) == (x, first)


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


def left(folder: Path, rows: list[dict]) -> float | None:
    write_rows(folder / "metrics.jsonl", ({"step": row["step"], "loss": 1.0} for row in rows))
    write_rows(folder / "pace.jsonl", rows)
    return Curves(folder).look().seconds_left


@pytest.mark.parametrize("seconds", [2.0, 1000.0])  # five such steps take more than an hour
def test_a_pace_with_a_row_for_every_fifth_step_counts_each_step(tmp_path, seconds):
    rows = paced(20, of=30, seconds=seconds)[4::5]
    assert left(tmp_path, rows) == pytest.approx(10 * seconds)


def test_the_time_left_is_that_of_the_last_steps_whatever_one_of_them_took(tmp_path):
    slow, fast = paced(100, of=400, seconds=60.0), paced(100 + RECENT, of=400)[100:]
    fast = [{**row, "at": row["at"] + 1e5} for row in fast]
    fast[-1]["at"] += 500  # one that saved a checkpoint
    assert left(tmp_path, [*slow, *fast]) == pytest.approx(2 * (400 - 100 - RECENT))


def test_no_time_is_left_behind_the_last_step(tmp_path):
    assert left(tmp_path, paced(10, of=10)) is None
    assert left(tmp_path, paced(1, of=10)) is None  # not known yet


def test_tokens_that_are_counted_anew_are_no_speed(tmp_path):
    """Of a run that was carried on."""
    first, again = paced(4, of=9), [{**row, "tokens": 100} for row in paced(5, of=9)[4:]]
    write_rows(tmp_path / "pace.jsonl", [*first, *again])
    speed = Curves(tmp_path).look().as_json()["curves"]["tokens_per_second"]
    assert speed["x"] == [2, 3, 4] and set(speed["y"]) == {50.0}


@pytest.mark.parametrize("name", ["metrics.jsonl", "pace.jsonl"])
def test_a_log_that_is_gone_has_no_curves_and_the_page_is_given_that(tmp_path, name):
    write_rows(tmp_path / "metrics.jsonl", [{"step": n, "loss": 1.0} for n in (1, 2)])
    write_rows(tmp_path / "pace.jsonl", paced(2, of=9))
    follow = Curves(tmp_path)
    before = follow.look().as_json()
    (tmp_path / name).unlink()
    after = follow.look().as_json()
    gone = {"loss"} if name == "metrics.jsonl" else {"memory_gib", "tokens_per_second"}
    assert before["curves"].keys() - after["curves"].keys() == gone
    assert after["version"] != before["version"]
    assert (after["step"], after["steps"]) == ((0, 9) if "loss" in gone else (2, None))


def test_with_as_many_curves_as_fit_each_of_them_goes_on(tmp_path):
    names = [f"n{n}" for n in range(MOST_CURVES + 1)]
    rows = [{"step": step, **dict.fromkeys(names, 1.0)} for step in (1, 2)]
    write_rows(tmp_path / "metrics.jsonl", rows)
    curves = Curves(tmp_path).look().as_json()["curves"]
    assert len(curves) == MOST_CURVES and all(one["x"] == [1, 2] for one in curves.values())


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
