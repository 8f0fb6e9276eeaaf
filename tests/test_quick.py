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


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("step", [1, 2, 3, 5])
def test_with_as_many_commits_as_steps_each_case_has_its_turn(monkeypatch, step, count):
    cases = range(count)
    monkeypatch.setattr(examples, "ALL", False)
    seen = []
    for number in range(1000, 1000 + step):
        monkeypatch.setattr(examples, "TURN", number)
        part = examples.in_turn(step, cases)
        assert 1 <= len(part) <= -(-count // min(step, count))
        seen += part
        skips = [examples.turn(one, of=step).args[0] for one in range(step)]
        assert skips.count(False) == 1
    assert {*seen} == {*cases}
    monkeypatch.setattr(examples, "ALL", True)
    assert examples.in_turn(step, cases) == [*cases]
    assert not any(examples.turn(one, of=step).args[0] for one in range(step))


def test_the_turn_is_that_of_the_commit(monkeypatch, tmp_path):
    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(examples, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert examples.number_of_commit() == 0
    git("init", "-q")
    numbers = []
    for day in (1, 2):
        monkeypatch.setenv("GIT_COMMITTER_DATE", f"2026-01-0{day}T00:00:00Z")
        git("commit", "-q", "--allow-empty", "-m", "one")
        numbers.append(examples.number_of_commit())
    assert 0 not in numbers and numbers[0] != numbers[1]
