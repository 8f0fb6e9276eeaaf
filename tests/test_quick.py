"""A quick run imports torch neither in its own process nor in those it starts."""

import subprocess
import sys

import pytest
from support import examples
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


@pytest.mark.long
def test_torch_is_refused_with_a_skip_and_in_a_program_with_an_error():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment()
    )
    assert done.stdout.splitlines() == ["Skipped needs torch: left out by --quick", "1"], (
        done.stderr
    )


@pytest.mark.parametrize("step", [2, 3, 4, 5])
def test_a_sample_of_pairs_holds_every_value_of_both_sides(monkeypatch, step):
    first, second = range(7), "abcde"
    monkeypatch.setattr(examples, "QUICK", False)
    monkeypatch.setattr(examples, "ALL", True)
    whole = examples.pairs(step, first, second)
    assert len(whole) == 35 and examples.every(step, first) == [*first]
    monkeypatch.setattr(examples, "ALL", False)
    assert examples.every(step, first) == [*first]
    monkeypatch.setattr(examples, "QUICK", True)
    sample = examples.pairs(step, first, second)
    assert {*sample} < {*whole} and len(sample) <= 35 // step + 1
    assert {one for one, _ in sample} == {*first} and {other for _, other in sample} == {*second}
    assert examples.every(step, first) == [*first[::step]]
