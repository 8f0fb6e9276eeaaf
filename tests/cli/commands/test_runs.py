"""`agentlite runs` says how each stage stands, and which checkpoints no later command
misses.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import processes
from support.samples import DATA, ROOT

import agentlite
from agentlite.cli.run_listing import inventory

STEPS = {
    "max_steps": 3,
    "save_steps": 1,
    "batch_size": 1,
    "gradient_accumulation": 1,
    "profile": "cpu",
}
EVAL = {"max_new_tokens": 4, "profile": "cpu"}


def cli(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "agentlite", "runs", *map(str, arguments)]
    return processes.run(command, capture_output=True, text=True, cwd=cwd, env=environment)


def told(*arguments: object) -> dict[str, dict]:
    done = cli(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return {one["stage"]: one for one in json.loads(done.stdout)["stages"]}


@pytest.fixture(scope="module")
def made(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "weather"
    agentlite.prep(
        str(DATA / "weather.jsonl"), run=str(run), model=str(tiny_model), dev=0.2, test=0.3
    )
    agentlite.sft(run=str(run), **STEPS)
    agentlite.evaluate(run=str(run), model="sft", **EVAL)
    return run


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "weather")
    return tmp_path / "weather"


def test_stages_are_listed_with_state_figure_size_and_age(run):
    found = told(run)
    assert list(found) == ["prep", "sft", "eval/prep/sft"]
    assert {one["state"] for one in found.values()} == {"done"}
    assert found["prep"]["figure"] == "6 of 6 rows kept"
    assert found["sft"]["figure"].startswith("dev loss ")
    assert found["eval/prep/sft"]["figure"].startswith("right tool ")
    on_disk = sum(path.stat().st_size for path in (run / "sft").rglob("*") if path.is_file())
    assert found["sft"]["bytes"] == on_disk
    assert 0 < found["sft"]["checkpoint_bytes"] < on_disk
    assert 0 <= found["sft"]["age"] < 3600


@pytest.mark.long
def test_a_stage_that_is_held_is_running_and_a_killed_holder_leaves_it_half_done(tmp_path):
    program = (
        "import sys, time; from pathlib import Path\n"
        "from agentlite.workspace.stage_folder import *\n"
        f"with open_stage(Path({str(tmp_path / 'sft')!r}), Plan('sft', {{}}, {{}}), force=False):\n"
        "    print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    (found,) = inventory(tmp_path)
    assert found.state == "running"
    holder.kill()
    holder.wait()
    (found,) = inventory(tmp_path)
    assert found.state == "half"


def test_removed_checkpoints_are_missed_by_no_command(run, tiny_model):
    shutil.rmtree(run / "sft" / "checkpoints")
    assert told(run)["sft"]["checkpoint_bytes"] == 0
    assert agentlite.sft(run=str(run), **STEPS).status == "up to date"
    assert agentlite.evaluate(run=str(run), model="sft", **EVAL).status == "up to date"
    assert agentlite.sft(run=str(run), model="sft", out="further", **STEPS).status == "done"


def test_a_table_a_hint_and_several_workspaces(run):
    shutil.copytree(run, run.with_name("b"))
    done = cli(run)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split() == ["stage", "state", "size", "checkpoints", "age"]
    assert f"rm -r {run}/sft/checkpoints" in done.stdout
    both = cli(run, run.with_name("b"))
    assert (
        sum(line.split()[0].endswith("/sft") for line in both.stdout.splitlines()) == 4
    )  # two sft, two eval/prep/sft
