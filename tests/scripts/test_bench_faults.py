"""scripts/bench/faults: a sample of the sweep finds nothing lost, and it would find it if something
were.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import processes
from support.examples import turn
from support.samples import ROOT

SWEEP = ROOT / "scripts/bench/faults"
COUNTS = ("lost", "doubled", "unresumable", "silent", "unclear")
SEED = str(
    random.SystemRandom().randrange(10**6)
)  # another sample each time; it is in the command that fails
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="each fault is a forked child"),
]
UNCUT = """
import runpy, sys
from agentlite.core import row_files
def uncut(self, path):
    self.path, self.file = path, open(path, "ab", buffering=0)
row_files.Appender.__init__ = uncut
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""
TRUSTING = """
import runpy, sys
from agentlite.workspace import run_folder
run_folder.StoredStage.changed = lambda stage, names=None: []
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""

BELIEVING = """
import runpy, sys
from agentlite.core import user_code
def believed(self, number, deadline):
    piece = self.socket.recv(1 << 20)
    return user_code.msgspec.json.decode(piece.splitlines()[0])[1:]
user_code.UserCode._answer = believed
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


def sweep(
    folder: Path, *arguments: str, program: str = "", by: str = "", seed: str = SEED
) -> tuple[int, list[dict[str, Any]], str]:
    """The exit code, what was found by command and kind, and what was printed."""
    start = ["-c", program, str(SWEEP)] if program else [str(SWEEP)]
    told = ["--seed", seed, "--json", str(folder / "found.json")]
    done = processes.run(
        [sys.executable, *start, *arguments, *told],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "NO_COLOR": "1", "FAULTS_BY": by},
    )
    assert (folder / "found.json").exists(), done.stderr
    return (
        done.returncode,
        json.loads((folder / "found.json").read_bytes())["found"],
        done.stdout + done.stderr,
    )


def clean(code: int, found: list[dict[str, Any]], told: str) -> int:
    """How many faults came, all of them without a loss."""
    assert all(one[count] == 0 for one in found for count in COUNTS), told
    assert code == 0, told
    return sum(one["injected"] for one in found)


@turn(2, of=4)
def test_prep_eval_and_pairs_lose_nothing_and_believe_nothing_that_was_harmed(tmp_path):
    parts = ("prep", "eval", "pairs", "harm", "endpoint")
    assert clean(*sweep(tmp_path, *parts, "--few", "1")) >= 35


@turn(3, of=4)
@pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper")
def test_hostile_rewards_and_tools_cost_only_their_own_answers(tmp_path):
    assert clean(*sweep(tmp_path, "children", "--few", "2")) == 6
    # by a seed whose sample holds functions that write into the connection
    believing = {"program": BELIEVING, "seed": "1"}
    told = sweep(tmp_path, "children", "--only", "pairs", "--few", "4", **believing)
    assert told[0] == 1 and any(told[1][-1][count] for count in COUNTS), told[2]


def test_where_there_is_no_strace_python_fails_its_own_calls(tmp_path):
    code, found, told = sweep(tmp_path, "pairs", "--few", "2", by="Python")
    assert clean(code, found, told) == 6
    assert {one["by"] for one in found} == {"Python"}
    files = [str(tmp_path / "found.json")] * 2  # as of two sweeps side by side
    shown = subprocess.run(
        [sys.executable, str(SWEEP), "--show", *files], capture_output=True, text=True, check=True
    )
    assert shown.stdout.splitlines()[-1] == "| **all** |  | 12 | 0 | 0 | 0 | 0 | 0 |"


@turn(3, of=4)
def test_a_checkpoint_survives_and_a_killed_run_ends_with_the_same_bits(tmp_path):
    one = random.SystemRandom().choice(["sft", "dpo", "grpo", "retriever"])
    code, found, told = sweep(
        tmp_path,
        "saves",
        "checkpoints",
        "steps",
        "locks",
        "--few",
        "1",
        "--times",
        "1",
        "--only",
        one,
    )
    assert clean(code, found, told) >= 13
    assert "set aside" not in told  # in a whole sweep it would be said thousands of times


@pytest.mark.parametrize(
    ("program", "count"),
    [(UNCUT, "unresumable"), (TRUSTING, "silent")],
    ids=["torn rows are not cut", "what is there is believed"],
)
def test_the_sweep_sees_what_is_broken(program, count, tmp_path):
    # a seed whose two faults of a kind meet the planted one: others may show it as rows lost
    code, found, told = sweep(
        tmp_path, "harm", "--only", "eval", "--few", "2", program=program, seed="12"
    )
    assert code == 1, told
    assert sum(one[count] for one in found) > 0
