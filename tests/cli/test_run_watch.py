"""`runs --watch` says each change once, and shows no sign that would steer a terminal."""

import json
import shutil
import subprocess
import sys
import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.processes import environment, start
from support.samples import ROOT

from agentlite.cli.run_watch import (
    BARS,
    COLUMNS,
    WIDTH,
    _last,
    _time,
    _view,
    line,
    short_names,
    sparkline,
    watch,
)
from agentlite.core.row_files import write_rows
from agentlite.deploy.board.workspaces import StageRow, Workspaces
from agentlite.workspace.run_folder import Plan, open_stage

REST: Any = ("sft", "done", "", "", 0.0, 0.0, None, None, {}, {})  # of a StageRow


@pytest.mark.long
def test_a_line_for_each_change_until_it_is_stopped(tmp_path):
    command = [sys.executable, "-m", "agentlite", "runs", str(tmp_path), "--watch", "--json"]
    states = []
    with start(command, stdout=subprocess.PIPE, env=environment(), cwd=ROOT) as process:
        assert process.stdout
        with open_stage(tmp_path / "sft", Plan("sft", {}, {}), force=False) as stage:
            first = json.loads(process.stdout.readline())
            stage.finish([], {"steps": 3})
        while not states or states[-1] != "done":
            states.append(json.loads(process.stdout.readline())["state"])
        process.send_signal(2)
        assert process.wait(30) == 0
    assert (first["id"], first["state"]) == (f"{tmp_path}/sft", "running")


def test_a_workspace_that_is_empty_is_waited_for_and_that_is_said(tmp_path, monkeypatch, capsys):
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("agentlite.cli.run_watch.time.sleep", interrupted)
    with open_stage(tmp_path / "full" / "sft", Plan("sft", {}, {}), force=False):
        pass
    (tmp_path / "empty").mkdir()
    watch([tmp_path / "full", tmp_path / "empty"], json_lines=True)
    shown = capsys.readouterr()
    assert shown.err == f"{tmp_path}/empty: holds no stage yet; waiting for one\n"
    assert json.loads(shown.out)["id"] == f"{tmp_path}/full/sft"


def test_what_runs_stands_first_with_its_curve_and_its_newest_answer(tmp_path):
    from rich.console import Console

    with open_stage(tmp_path / "a", Plan("prep", {}, {}), force=False) as done:
        done.finish([], {})
    with open_stage(tmp_path / "grpo", Plan("grpo", {}, {}), force=False) as stage:
        now = time.time()
        losses = ({"step": n, "loss": 1 / n} for n in range(1, 9))
        write_rows(stage.folder / "metrics.jsonl", losses)
        pace = ({"step": n, "steps": 12, "at": now + n, "memory_gib": 3.25} for n in range(1, 9))
        write_rows(stage.folder / "pace.jsonl", pace)
        answer = {"record_id": "r1", "turn": 1, "text": "\x1b[2Jhello", "components": {"exact": 1}}
        write_rows(stage.folder / "rollouts.jsonl", [answer])
        board = Workspaces([tmp_path])
        board.look(10)
        console = Console(width=150, color_system=None)
        with console.capture() as captured:
            console.print(_view(board, 40, 150))
    text = captured.get()
    assert text.index("\ngrpo ") < text.index("\na ")
    for part in ("running, step 8 of 12", "4 s", "0.125", "3.25", "▁", "r1/1) exact 1", "hello"):
        assert part in text
    assert "\x1b" not in text
    running = next(row for row in board.rows()[0] if row.stage == "grpo")
    assert line(running).endswith("running, step 8 of 12, 4 s left")


@pytest.mark.parametrize("width", [40, 60, 80, 100, 150])
def test_each_stage_is_one_line_that_names_it_on_a_terminal_of_any_width(tmp_path, width):
    from rich.console import Console

    for run in ("a", "b"):
        for name in ("prep", "evaluation"):
            folder = tmp_path / "a-folder-with-a-long-name" / run / name
            with open_stage(folder, Plan("sft", {}, {}), force=False) as stage:
                stage.finish([], {"steps": 3})
    board = Workspaces([tmp_path / "a-folder-with-a-long-name"])
    while board.look(10):
        pass
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(_view(board, 24, width))
    head, *lines = captured.get().splitlines()
    names = sorted(line.split()[0] for line in lines)
    assert names == ["a/evaluation", "a/prep", "b/evaluation", "b/prep"]
    assert all("done" in line and len(line.rstrip()) <= width for line in lines)
    assert head.split()[:2] == ["stage", "state"]


@pytest.mark.parametrize(("name", "least"), [*COLUMNS.items()])
def test_a_column_is_shown_from_its_width_on(tmp_path, name, least):
    from rich.console import Console

    for width in (least, least - 1):
        console = Console(width=200, color_system=None)
        with console.capture() as captured:
            console.print(_view(Workspaces([tmp_path]), 24, width))
        assert (name in captured.get()) is (width >= least)


@pytest.mark.parametrize("as_json", [True, False])
def test_a_stage_that_is_gone_has_one_line_more(tmp_path, monkeypatch, capsys, as_json):
    for name in ("a", "b"):
        with open_stage(tmp_path / name, Plan("sft", {}, {}), force=False):
            pass
    looks = iter(range(2))

    def removing(seconds: float) -> None:
        if next(looks, None) is None:
            raise KeyboardInterrupt
        shutil.rmtree(tmp_path / "b", ignore_errors=True)

    monkeypatch.setattr("agentlite.cli.run_watch.time.sleep", removing)
    watch([tmp_path], json_lines=as_json)
    *_, last = lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    gone = json.dumps({"id": f"{tmp_path}/b", "state": "gone"}, separators=(",", ":"))
    assert last == (gone if as_json else f"{tmp_path}/b: gone")


def test_the_newest_answer_is_cut(tmp_path):
    from rich.console import Console

    with open_stage(tmp_path / "grpo", Plan("grpo", {}, {}), force=False) as stage:
        answer = {"record_id": "r1", "turn": 1, "text": "x" * 900, "components": {"exact": 1}}
        write_rows(stage.folder / "rollouts.jsonl", [answer])
        board = Workspaces([tmp_path])
        board.look(10)
        console = Console(width=400, color_system=None)
        with console.capture() as captured:
            console.print(_view(board, 40, 150))
    assert "x" * 300 in captured.get() and "x" * 301 not in captured.get()


def test_names_lose_only_a_folder_that_all_workspaces_are_in(tmp_path):
    def rows(*runs):
        return [StageRow(f"{run}/sft", run, "sft", *REST) for run in runs]

    assert [*short_names(rows("runs/a", "runs/ab")).values()] == ["a/sft", "ab/sft"]
    assert [*short_names(rows("runs/a")).values()] == ["sft"]
    assert [*short_names(rows("runs/a", "/tmp/b")).values()] == ["runs/a/sft", "/tmp/b/sft"]
    assert [*short_names(rows("a", "b")).values()] == ["a/sft", "b/sft"]
    assert short_names([]) == {}


def test_a_curve_is_as_wide_as_its_column_at_most():
    assert sparkline([]) == "" and sparkline([2.0]) == "▁"
    assert sparkline([0, 1]) == "▁█"
    assert len(sparkline([float(n) for n in range(1000)])) <= WIDTH


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=WIDTH))
def test_a_curve_rises_and_falls_with_its_values(values):
    """From the lowest bar to the highest, whatever the scale; where nothing changes it is flat."""
    bars = [BARS.index(bar) for bar in sparkline(values)]
    assert len(bars) == len(values)
    assert min(bars) == 0 and max(bars) == (len(BARS) - 1 if len({*values}) > 1 else 0)
    for (one, other), (bar, other_bar) in zip(pairwise(values), pairwise(bars), strict=True):
        assert (one - other) * (bar - other_bar) >= 0 and (one != other or bar == other_bar)
    assert sparkline([3 * value + 1 for value in values]) == sparkline(values)


@given(st.integers(2, 9), st.lists(st.sampled_from([0.0, 7.0]), min_size=WIDTH, max_size=WIDTH))
def test_a_long_curve_is_that_of_the_means_of_its_parts(size, means):
    spread = [value for mean in means for value in (mean - 1, *[mean] * (size - 2), mean + 1)]
    assert sparkline(spread) == sparkline(means)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, ""),
        (0.4, "0 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7199, "120 min"),
        (7200, "2 h"),
        (172799, "48 h"),
        (172800, "2 d"),
    ],
)
def test_a_time_has_the_largest_unit_of_which_it_has_two(seconds, words):
    assert _time(seconds) == words


def test_a_table_has_as_many_stages_as_there_are_lines_and_the_last_written_first(tmp_path):
    from rich.console import Console

    for name in "abcdefgh":
        with open_stage(tmp_path / name, Plan("prep", {}, {}), force=False) as stage:
            stage.finish([], {})
    board = Workspaces([tmp_path])
    board.look(10)
    console = Console(width=150, color_system=None)
    for height, shown in ((0, 3), (9, 3), (10, 4), (14, 8), (40, 8)):
        with console.capture() as captured:
            console.print(_view(board, height, 150))
        head, *lines = captured.get().splitlines()
        assert head.split() == " ".join(COLUMNS).split()
        names = [text.split()[0].rpartition("/")[2] for text in lines[:shown]]
        assert names == [*"hgfedcba"][:shown]
        assert lines[shown:] == ([f"and {8 - shown} others: agentlite runs"] if shown < 8 else [])


@pytest.mark.parametrize(
    ("left", "shown"), [(None, ""), (0.0, ", 0 s left"), (0.4, ", 0 s left"), (120, ", 2 min left")]
)
def test_a_time_of_nought_is_shown_and_one_that_is_not_known_is_not(left, shown):
    row = replace(StageRow("runs/a/sft", "runs/a", "sft", *REST), state="running", left=left)
    assert line(row).partition("running")[2] == shown
    assert _time(left) == shown.removeprefix(", ").removesuffix(" left")


@pytest.mark.parametrize(
    ("last", "shown"),
    [(0.0, "0"), (-0.5, "-0.5"), (99.96, "100"), (100, "100"), (12345.6, "12,346")],
)
def test_the_last_value_of_a_curve_is_shown_whatever_it_is(last, shown):
    assert _last({"loss": {"last": last}}, "loss") == shown
    assert _last({"loss": {"last": None}}, "loss") == _last({}, "loss") == ""
