"""What the board knows of workspaces is what lies there, also while it changes or was harmed."""

import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from support.generated_run import stage

from agentlite.core.row_files import write_rows
from agentlite.deploy.board.workspaces import Workspaces, as_json, defaults
from agentlite.workspace.run_folder import Plan, open_stage


def rows_of(board: Workspaces) -> dict[str, Any]:
    while board.look(10):
        pass
    return {row.id: row for row in board.rows()[0]}


def sft(folder: Path, **settings: Any) -> None:
    plan = {"command": "sft", "settings": {"model": "base", **settings}, "inputs": {}}
    stage(folder, plan, {"metrics.jsonl": [{"step": 1, "loss": 0.5}]}, {"steps": 1, "last": 0.5})


def test_workspaces_and_folders_of_workspaces_are_found(tmp_path):
    sft(tmp_path / "runs/a/sft")
    sft(tmp_path / "runs/b/sft")
    sft(tmp_path / "alone/sft")
    (tmp_path / "runs/empty").mkdir()
    (tmp_path / "runs/.board").mkdir()
    board = Workspaces([tmp_path / "runs", tmp_path / "alone", tmp_path / "none"])
    names = {name.removeprefix(f"{tmp_path}/") for name in rows_of(board)}
    assert names == {"runs/a/sft", "runs/b/sft", "alone/sft"}


def test_a_running_stage_says_its_step_and_the_time_left_and_then_that_it_is_done(tmp_path):
    board, name = Workspaces([tmp_path]), f"{tmp_path}/sft"
    with open_stage(tmp_path / "sft", Plan("sft", {}, {}), force=False) as one:
        now = time.time()
        for step in (1, 2, 3):
            write_rows(one.folder / "metrics.jsonl", ({"step": n} for n in range(1, step + 1)))
            write_rows(
                one.folder / "pace.jsonl",
                ({"step": n, "steps": 5, "at": now + n} for n in range(1, step + 1)),
            )
            found = rows_of(board)[name]
            assert (found.state, found.detail) == ("running", f"step {step} of 5")
        assert round(found.left or 0) == 2
        one.finish(["metrics.jsonl"], {"steps": 3})
        version = board.version
    board.look(10)
    [found] = board.rows(version)[0]
    assert (found.state, found.left, found.figures) == ("done", None, {"steps": 3})


def test_only_rows_that_changed_are_given_again_and_those_that_went(tmp_path):
    sft(tmp_path / "a/sft")
    sft(tmp_path / "b/sft")
    board = Workspaces([tmp_path])
    rows_of(board)
    version = board.version
    board.look(10)
    assert board.rows(version) == ([], [])
    shutil.rmtree(tmp_path / "a")
    (tmp_path / "b/sft/done.json").unlink()
    board.look(10)
    changed, gone = board.rows(version)
    assert [(row.id, row.state) for row in changed] == [(f"{tmp_path}/b/sft", "half")]
    assert gone == [f"{tmp_path}/a/sft"]


def test_a_stage_that_went_and_came_back_is_not_gone(tmp_path):
    sft(tmp_path / "a/sft")
    board = Workspaces([tmp_path])
    rows_of(board)
    version = board.version
    shutil.rmtree(tmp_path / "a/sft")
    board.look(10)
    assert board.rows(version) == ([], [f"{tmp_path}/a/sft"])
    assert board.rows() == ([], [])  # a page that begins has nothing to forget
    sft(tmp_path / "a/sft")
    board.look(10)
    changed, gone = board.rows(version)
    assert ([row.id for row in changed], gone) == ([f"{tmp_path}/a/sft"], [])


def test_a_stage_whose_process_was_killed_is_half_done_though_none_of_its_files_has_changed(
    tmp_path,
):
    board, name = Workspaces([tmp_path]), f"{tmp_path}/sft"
    sft(tmp_path / "later")
    with open_stage(tmp_path / "sft", Plan("sft", {}, {}), force=False):
        assert rows_of(board)[name].state == "running"
        assert board.busy == {tmp_path: True}  # whichever of its stages is looked at last
    board.look(10)
    assert rows_of(board)[name].state == "half" and board.busy == {tmp_path: False}


def test_a_row_has_the_numbers_of_its_stage_and_when_it_was_written(tmp_path):
    plan = {"command": "sft", "settings": {}, "inputs": {}}
    figures = {"steps": 3, "loss": 0.5, "best": True, "kinds": {"a": 1}, "name": "x"}
    stage(tmp_path / "sft", plan, {"metrics.jsonl": []}, figures)
    newest = max(path.stat().st_mtime for path in (tmp_path / "sft").iterdir())
    [row] = rows_of(Workspaces([tmp_path])).values()
    assert row.figures == {"steps": 3, "loss": 0.5}
    assert row.seconds == 1.0 and abs(row.written - newest) < 1e-3
    [shown] = as_json([row])
    assert shown["seconds"] == 1.0 and not {"left", "detail", "settings"} & shown.keys()


def test_files_that_were_harmed_are_one_broken_row_each_and_no_error(tmp_path):
    harms = {"plan.json": b"{", "done.json": b"\xff", "metrics.jsonl": b'{"step": 1'}
    for name, content in harms.items():
        sft(tmp_path / name / "sft")
        (tmp_path / name / "sft" / name).write_bytes(content)
    sft(tmp_path / "missing/sft")
    (tmp_path / "missing/sft/metrics.jsonl").unlink()
    sft(tmp_path / "deep/sft")
    (tmp_path / "deep/sft/plan.json").write_text("[" * 100_000)
    os.symlink(tmp_path / "nowhere", tmp_path / "link")
    found = rows_of(Workspaces([tmp_path]))
    assert {row.state for row in found.values()} == {"broken"} and len(found) == 5
    json.dumps(as_json([*found.values()]), allow_nan=False)


def test_a_row_has_the_settings_that_are_not_the_defaults(tmp_path):
    usual = defaults()["sft"]
    sft(tmp_path / "sft", **{**usual, "model": "base", "lora_r": 3})
    [row] = rows_of(Workspaces([tmp_path])).values()
    assert row.settings == {"model": "base", "lora_r": 3}


def test_evaluations_are_rows_and_other_workspaces_inside_are_not(tmp_path):
    plan = {"command": "eval", "settings": {}, "inputs": {}}
    stage(tmp_path / "eval/prep/sft", plan, {}, {})
    sft(tmp_path / "ablate/cells/sft")
    assert set(rows_of(Workspaces([tmp_path]))) == {f"{tmp_path}/eval/prep/sft"}


def test_a_look_ends_in_time_and_a_thousand_runs_come_in_turn(tmp_path):
    for number in range(60):
        sft(tmp_path / f"run{number}/sft")
    board, waits, looks = Workspaces([tmp_path]), 1, 0
    while waits:
        waits, looks = board.look(0.005), looks + 1
    assert looks > 1 and len(board.rows()[0]) == 60
    (tmp_path / "run59/sft/done.json").unlink()
    version, end = board.version, time.monotonic() + 20
    while not board.rows(version)[0] and time.monotonic() < end:
        board.look(0.005)
    assert [row.state for row in board.rows(version)[0]] == ["half"]


def test_only_a_stage_that_was_seen_has_a_folder(tmp_path):
    sft(tmp_path / "runs/a/sft")
    board = Workspaces([tmp_path / "runs"])
    rows_of(board)
    assert board.folder(f"{tmp_path}/runs/a/sft") == tmp_path / "runs/a/sft"
    for name in (f"{tmp_path}/runs/a/../a/sft", "/etc", "..", "", f"{tmp_path}/runs/a"):
        assert board.folder(name) is None and board.curves(name) is None


def test_a_look_makes_way_for_whoever_waits_and_still_comes_to_all(tmp_path):
    for number in range(5):
        sft(tmp_path / f"run{number}/sft")
    board = Workspaces([tmp_path])
    waiting = [board.look(10, lambda: True) for _ in range(5)]
    assert waiting == [4, 3, 2, 1, 0]  # one at each look, however often somebody asks
    assert len(board.rows()[0]) == 5


def test_curves_do_not_wait_for_a_look(tmp_path):
    sft(tmp_path / "sft")
    board, name = Workspaces([tmp_path]), f"{tmp_path}/sft"
    assert name in rows_of(board)
    with ThreadPoolExecutor(1) as other, board._lock:  # as a look holds it
        curves = other.submit(lambda: (board.look_for(name), board.curves(name))[1]).result(10)
    assert curves and curves["curves"]["loss"]["last"] == 0.5
