"""scripts/gpu.sh and the steps behind it: what fails, hangs or is killed costs its step alone."""

import importlib.util
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import processes
from support.examples import ALL, turn
from support.samples import ROOT
from support.simulated_card import CARDS, DRIVER, environment_with
from support.simulated_cuda import needs_simulation

sys.path.insert(0, str(ROOT / "scripts/bench"))

import first_hour
import gpu

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


@pytest.mark.long
def test_no_step_starts_that_might_not_end_in_the_minutes(tmp_path: Path) -> None:
    runs = Runs(tmp_path, ("short", 5, ""), ("long", 100, ""))
    code, errors = runs.run("--minutes", "1")
    assert code == first_hour.UNFINISHED
    assert "1 steps are left; long may take 100 s" in errors
    assert runs.states() == {"short": "passed"} and runs.begun("long") == 0
    assert "1 not run yet" in (runs.out / "results.md").read_text()
    assert runs.run("--minutes", "2")[0] == 0
    assert (runs.begun("short"), runs.begun("long")) == (1, 1)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_kill_costs_the_running_step_alone(number: signal.Signals, tmp_path: Path) -> None:
    program = f"time.sleep(2 if open({str(tmp_path / 'slow')!r}).read() == 'x' else 0)"
    runs = Runs(tmp_path, ("first", 20, ""), ("slow", 20, program), ("last", 20, ""))
    process = runs.start()
    runs.wait_for("slow")
    process.send_signal(number)
    process.communicate(timeout=processes.TIMEOUT)
    assert process.returncode in (-number, 128 + number)
    assert runs.states() == {"first": "passed"}
    assert runs.run()[0] == 0
    assert runs.states() == dict.fromkeys(("first", "slow", "last"), "passed")
    assert (runs.begun("first"), runs.begun("slow"), runs.begun("last")) == (1, 2, 1)


@pytest.mark.long
def test_a_polite_kill_ends_all_that_the_step_has_started(tmp_path: Path) -> None:
    child = tmp_path / "child"
    program = (
        "import subprocess; "
        f"open({str(child)!r}, 'w').write(str(subprocess.Popen(['sleep', '60']).pid)); "
        f"open({str(tmp_path / 'ready')!r}, 'w').write('x'); time.sleep(60)"
    )
    runs = Runs(tmp_path, ("step", 90, program))
    process = runs.start()
    runs.wait_for("ready")
    process.terminate()
    process.communicate(timeout=processes.TIMEOUT)
    stat = Path(f"/proc/{child.read_text()}/stat")
    until = time.monotonic() + 10
    while stat.exists() and stat.read_text().split()[2] != "Z":
        assert time.monotonic() < until, "the child lives on"
        time.sleep(0.01)


@pytest.mark.long
def test_two_do_not_work_in_one_folder(tmp_path: Path) -> None:
    seen = tmp_path / "seen"  # by the second one
    program = f"import os\nwhile not os.path.exists({str(seen)!r}): time.sleep(0.05)"
    runs = Runs(tmp_path, ("slow", 120, program))
    process = runs.start()
    runs.wait_for("slow")
    code, errors = runs.run()
    assert code == first_hour.UNFINISHED and "another one is at work" in errors
    seen.touch()
    process.communicate(timeout=processes.TIMEOUT)
    assert process.returncode == 0 and runs.begun("slow") == 1


@pytest.mark.long
def test_tests_that_are_skipped_have_not_passed(tmp_path: Path) -> None:
    case = tmp_path / "test_skipped.py"
    case.write_text("import pytest\ndef test_card():\n    pytest.skip('no CUDA device')\n")
    command = ["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(case)]
    result = first_hour.run_step(first_hour.GpuStep("test", "", 60, command), tmp_path)
    assert result["state"] == "failed" and result["exit"] == 0
    assert any("no CUDA device" in line for line in result["why"])


@pytest.mark.long
def test_every_cell_and_every_case_of_the_gpu_tests_is_a_step_that_fits_a_short_piece(
    tmp_path: Path,
) -> None:
    steps = first_hour.steps(tmp_path)
    names = [step.name for step in steps]
    assert len(set(names)) == len(names)
    assert {f"cell-{name}" for name in gpu.CELLS} <= set(names)
    cases = [step.shows for step in steps if step.name.startswith("test-")]
    tests = re.findall(r"^def (test_\w+)", (ROOT / "tests/gpu/test_gpu.py").read_text(), re.M)
    if not importlib.util.find_spec("vllm"):
        tests = [name for name in tests if not name.startswith("test_vllm")]
    assert {case.partition("[")[0].partition("::")[2] for case in cases} == {*tests}
    assert all("tests/gpu/" in case for case in cases)
    assert all(step.seconds <= 8 * 60 for step in steps)
    programs = [step.command[0] for step in steps]
    assert all(program == "-m" or (ROOT / program).is_file() for program in programs)


def test_what_a_step_reads_is_made_again_where_it_is_missing(tmp_path: Path) -> None:
    """As on another machine, to which the results alone have been brought."""
    every = first_hour.steps(tmp_path, toy=True)
    done = {step.name: {"state": "passed"} for step in every}

    def names(found: dict[str, dict[str, str]], again: bool = False) -> list[str]:
        return [step.name for step in first_hour._waiting(every, every, found, again)]

    assert names(done) == []
    assert names({name: done[name] for name in done if name != "sampling-hf"}) == [
        "model",
        "sampling-hf",
    ]
    chain = ["model", "run-prep", "run-sft", "run-pairs", "run-dpo"]
    failed = {**done, "run-dpo": {"state": "failed"}}
    assert names(failed) == [] and names(failed, again=True) == chain
    (tmp_path / "run/sft").mkdir(parents=True)
    assert names(failed, again=True) == chain[3:]


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


@pytest.mark.long
def test_a_step_that_no_name_holds_is_refused(tmp_path: Path) -> None:
    code, errors = Runs(tmp_path, ("good", 20, "")).run("--only", "gud")
    assert code == 2 and "no step's name holds 'gud'; --list shows them." in errors


@turn(3, of=4)
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


@turn(0, of=4)
@pytest.mark.torch
def test_the_first_hour_runs_on_a_simulated_card(tmp_path: Path) -> None:
    """On toys, by the script itself; every step of it with `--all`."""
    needs_simulation("rtx3060")
    names = ["model", "run-prep", "run-sft", "run-grpo"]
    only = [word for name in names for word in ("--only", name)]
    variables = {**processes.environment(), "USE_PYTHON": sys.executable}
    done = subprocess.run(
        [
            *["bash", str(ROOT / "scripts/gpu.sh"), "--toy", "--minutes", "120"],
            *["--out", str(tmp_path / "out")],
            *([] if ALL else only),
        ],
        env=environment_with("rtx3060", tmp_path, variables),
        capture_output=True,
        text=True,
    )
    page = (tmp_path / "out/results.md").read_text()
    assert done.returncode == 0, done.stderr + page
    assert page.startswith(f"# {CARDS['rtx3060'].name}\n\nDriver {DRIVER}.")
    steps = json.loads((tmp_path / "out/results.json").read_bytes())["steps"]
    assert all(step["state"] == "passed" for step in steps.values()) and {*names} <= {*steps}
    assert steps["run-grpo"]["figures"]["figures"]["steps"] == 2
