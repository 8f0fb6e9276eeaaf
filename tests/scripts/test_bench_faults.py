"""scripts/bench/faults: a sample finds nothing lost, and it would if something were."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from support import processes
from support.samples import ROOT

SWEEP = ROOT / "scripts/bench/faults"
COUNTS = ("lost", "doubled", "unresumable", "silent", "unclear")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="each fault is a forked child"),
]
EMPTIED = """
import runpy, sys
from agentlite.core import row_files
def emptied(self, path):
    self.path, self.file = path, open(path, "wb", buffering=0)
row_files.Appender.__init__ = emptied
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


def sweep(
    folder: Path, *arguments: str, program: str = ""
) -> tuple[int, list[dict[str, Any]], str]:
    """The exit code, what was found by command and kind, and what was printed."""
    start = ["-c", program, str(SWEEP)] if program else [str(SWEEP)]
    told = ["--json", str(folder / "found.json")]
    done = processes.run(
        [sys.executable, *start, *arguments, *told], capture_output=True, text=True, timeout=600
    )
    assert (folder / "found.json").exists(), done.stderr
    found = json.loads((folder / "found.json").read_bytes())
    return done.returncode, found, done.stdout + done.stderr


def test_a_sample_of_faults_loses_nothing(tmp_path):
    code, found, told = sweep(tmp_path, "--few", "1")
    assert code == 0 and not any(one[count] for one in found for count in COUNTS), told
    assert sum(one["injected"] for one in found) >= 4


def test_the_sweep_sees_answers_that_are_thrown_away(tmp_path):
    code, found, told = sweep(tmp_path, "eval", "--few", "12", program=EMPTIED)
    assert code == 1 and any(one[count] for one in found for count in COUNTS), told
