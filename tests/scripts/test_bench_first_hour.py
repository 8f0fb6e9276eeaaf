"""scripts/gpu.sh and the steps behind it: what fails, hangs or is killed costs its step alone."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import processes
from support.examples import ALL
from support.samples import ROOT

sys.path.insert(0, str(ROOT / "scripts/bench"))

import first_hour

# The steps of a run: NAME, SECONDS, PROGRAM; each of them counts how often it has run.
RUN = """
import json, sys, first_hour
steps = [
    first_hour.GpuStep(name, "a step", seconds, ["-c", program])
    for name, seconds, program in json.loads(sys.argv.pop(1))
]
first_hour.steps = lambda out, toy: steps
sys.exit(first_hour.main())
"""
COUNT = "import sys, time; open({path!r}, 'a').write('x'); "


class Runs:
    """Runs of the same steps in one folder, and how often each step has begun."""

    def __init__(self, folder: Path, *steps: tuple[str, int, str]) -> None:
        self.folder, self.out = folder, folder / "out"
        counted = [
            (name, seconds, COUNT.format(path=str(folder / name)) + program)
            for name, seconds, program in steps
        ]
        self.command = [sys.executable, "-c", RUN, json.dumps(counted)]
        self.command += ["--toy", "--out", str(self.out)]

    def start(self, *options: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*self.command, *options],
            env=processes.environment(),
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )

    def run(self, *options: str) -> tuple[int, str]:
        process = self.start(*options)
        errors = process.communicate(timeout=processes.TIMEOUT)[1]
        return process.returncode, errors

    def begun(self, name: str) -> int:
        path = self.folder / name
        return len(path.read_text()) if path.exists() else 0

    def states(self) -> dict[str, str]:
        results = json.loads((self.out / "results.json").read_bytes())
        return {name: step["state"] for name, step in results["steps"].items()}

    def wait_for(self, name: str) -> None:
        until = time.monotonic() + processes.TIMEOUT
        while not self.begun(name):
            assert time.monotonic() < until
            time.sleep(0.01)


@pytest.mark.long
def test_a_step_that_fails_or_hangs_stops_no_other_and_the_page_says_why(tmp_path: Path) -> None:
    runs = Runs(
        tmp_path,
        ("falls", 20, "sys.exit('the card fell out')"),
        ("hangs", 1, "print('waiting', flush=True); time.sleep(60)"),
        ("gives", 20, 'print(\'{"tokens_a_second": {"ours": 1234.5}}\')'),
    )
    code, _ = runs.run()
    assert code == 1
    assert runs.states() == {"falls": "failed", "hangs": "failed", "gives": "passed"}
    page = (runs.out / "results.md").read_text()
    assert "1 of 3 steps passed, 2 failed, 0 not run yet." in page
    assert "## falls: failed, exit code 1" in page and "the card fell out" in page
    assert "not done in 1 s\nwaiting" in page
    results = json.loads((runs.out / "results.json").read_bytes())
    assert results["steps"]["gives"]["figures"] == {"tokens_a_second": {"ours": 1234.5}}


@pytest.mark.long
def test_nothing_runs_twice_unless_what_failed_is_wanted_again(tmp_path: Path) -> None:
    runs = Runs(tmp_path, ("good", 20, ""), ("bad", 20, "sys.exit(3)"))
    assert [runs.run()[0], runs.run()[0]] == [1, 1]
    assert (runs.begun("good"), runs.begun("bad")) == (1, 1)
    assert runs.run("--again")[0] == 1
    assert (runs.begun("good"), runs.begun("bad")) == (1, 2)
    assert runs.run("--only", "good")[0] == 0  # of the chosen ones, none has failed
    assert runs.begun("good") == 1


def test_the_page_has_the_cells_and_the_sampling(tmp_path: Path) -> None:
    side = {
        **{"tokens_a_second": 5000.0, "seconds_a_step": 1.5, "mfu": 0.4, "hfu": 0.5},
        **{"allocated_gib": 7.25, "reserved_gib": 8.0, "planned_gib": 7.5, "used_gib": 9.0},
        "planner_error": 0.034,
    }
    cell = {"sides": {"ours": side}, "cap_gib": 12, "against": {}, "date": "2026-11-23"}
    (tmp_path / "cells.json").write_text(json.dumps({"sft-7b-12gb": {"a card": cell}}))
    figures = {"tokens_a_second": {"ours": 1300.4, "generate": 160.0}}
    step = {"state": "passed", "seconds": 3.0, "exit": 0, "figures": figures}
    results = {
        **{"card": "a card", "driver": "580.95", "versions": {"torch": "2.13.0"}},
        "steps": {"sampling-hf": step},
    }
    page = first_hour.page(first_hour.steps(tmp_path, toy=True), results, tmp_path)
    assert "| hf | ours | 1,300 |" in page and "| hf | generate | 160 |" in page
    row = "| sft-7b-12gb | ours | 5,000 | 1.500 | 40.0% | 50.0% | 7.25 | 8.00 | 7.50 | +3.4% |"
    assert f"{row} 9.0 of 12 GiB used |" in page
    assert page.startswith("# a card\n\nDriver 580.95. torch 2.13.0.\n")


@pytest.mark.torch
def test_the_pipeline_of_the_first_hour_runs_on_a_toy(tmp_path: Path) -> None:
    """By the script itself, with this Python, and without a GPU; all of it with `--all`."""
    whole = ALL
    names = ["run-", "sampling-"] if whole else ["run-prep", "run-sft"]
    words = [word for name in ["model", *names] for word in ("--only", name)]
    done = subprocess.run(
        ["bash", str(ROOT / "scripts/gpu.sh"), "--toy", "--out", str(tmp_path), *words],
        env={**processes.environment(), "USE_PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr + (tmp_path / "results.md").read_text()
    results = json.loads((tmp_path / "results.json").read_bytes())
    assert results["steps"]["run-sft"]["figures"]["figures"]["steps"] == 2
