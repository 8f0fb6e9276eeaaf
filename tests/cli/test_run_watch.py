"""`runs --watch` says each change once, and shows no sign that would steer a terminal."""

import json
import subprocess
import sys
import time

from support.processes import environment, start
from support.samples import ROOT

from agentlite.cli.run_watch import WIDTH, _view, line, sparkline
from agentlite.core.row_files import write_rows
from agentlite.deploy.board.workspaces import Workspaces
from agentlite.workspace.run_folder import Plan, open_stage


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
            console.print(_view(board, 40))
    text = captured.get()
    assert text.index("grpo") < text.index(f"{tmp_path}/a")
    for part in ("running, step 8 of 12", "4 s", "0.125", "3.25", "▁", "r1/1) exact 1", "hello"):
        assert part in text
    assert "\x1b" not in text
    running = next(row for row in board.rows()[0] if row.stage == "grpo")
    assert line(running).endswith("running, step 8 of 12, 4 s left")


def test_a_curve_is_as_wide_as_its_column_at_most():
    assert sparkline([]) == "" and sparkline([2.0]) == "▁"
    assert sparkline([0, 1]) == "▁█"
    assert len(sparkline([float(n) for n in range(1000)])) <= WIDTH
