"""A quick run imports torch neither in its own process nor in those it starts."""

import subprocess
import sys

from support.processes import environment

PROGRAM = """
import importlib.util, subprocess, sys
from support import without_torch
without_torch.refuse()
assert importlib.util.find_spec("torch"), "it counts as installed"
try:
    import torch
except BaseException as skipped:
    print(type(skipped).__name__, skipped)
print(subprocess.run([sys.executable, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode)
"""


def test_torch_is_refused_with_a_skip_and_in_a_program_with_an_error():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment()
    )
    assert done.stdout.splitlines() == ["Skipped needs torch: left out by --quick", "1"], (
        done.stderr
    )
