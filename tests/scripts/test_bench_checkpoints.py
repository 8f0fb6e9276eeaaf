"""scripts/bench/checkpoints.py: every part end to end on a toy; what it reckons, against sums by
hand.
"""

import json
import sys

import pytest
from support import processes
from support.examples import turn
from support.samples import ROOT

BENCH = ROOT / "scripts/bench"
sys.path.insert(0, str(BENCH))

import checkpoints  # noqa: E402


@turn(2, of=4)
def test_a_toy_is_saved_both_ways_and_trained_alike(tiny_model, tmp_path):
    few = ["--saves", "3", "--rounds", "1", "--steps", "4", "--save-steps", "2"]
    told = ["dpo", "run", "--model", str(tiny_model), "--disk", str(tmp_path / "disk"), *few]
    done = processes.run(
        [sys.executable, str(BENCH / "checkpoints.py"), *told],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == ["dpo", "run"]
    assert found["run"]["losses_equal"], "the way of saving changes what is learned"
    assert all(seconds > 0 for seconds in found["run"]["seconds"].values())
    spent = found["dpo"]["milliseconds"]
    assert found["dpo"]["saves"] == 3 and all(
        spent[name] > 0 for name in ("plain", "safe", "synced", "digested")
    )
    assert spent["written"] + spent["synced"] + spent["digested"] + spent["rest"] == pytest.approx(
        spent["safe"], abs=1
    )
    assert not list((tmp_path / "disk").iterdir())


def test_the_cost_is_what_a_save_takes_longer_by_the_steps_between_two():
    rows = [{"step": 1.0, "safe": 0.3, "plain": 0.1}, {"step": 3.0, "safe": 0.5, "plain": 0.1}]
    assert checkpoints.percent(rows, 10) == pytest.approx(100 * 0.3 / (10 * 2.0 + 0.1))
    assert checkpoints.told(rows[:1] * 4, lambda some: checkpoints.percent(some, 10)) == {
        "value": 1.98,
        "interval": [1.98, 1.98],
    }
