"""scripts/bench/gpu.py: every kind of cell end to end on toys, without a GPU; what it reckons,
against sums by hand.
"""

import sys

import pytest
from support.samples import ROOT

BENCH = ROOT / "scripts/bench"
sys.path.insert(0, str(BENCH))

import gpu  # noqa: E402

from agentlite.engine.planning.estimate import operations  # noqa: E402
from agentlite.engine.planning.gpus import CARDS  # noqa: E402
from agentlite.engine.planning.memory import GIB, fits, memory  # noqa: E402

CARD = gpu.Card("NVIDIA H100 80GB HBM3", 79.6, CARDS["h100"])
pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", gpu.CELLS)
def test_a_cell_is_planned_to_fit_its_cap_and_on_a_fast_card_to_have_time_for_steps(name):
    cell = gpu.CELLS[name]
    load, _ = gpu.loads(cell, toy=False)
    assert not cell.cap or fits(memory(load).total, cell.cap * GIB)
    assert gpu.FEWEST < gpu.steps_of(cell, CARD, gpu.SECONDS) <= gpu.MOST


def test_operations_are_those_counted_by_hand():
    """Qwen2.5-7B, a row of 8,192 tokens: N = 7,070,285,824 weights with the head, L h T = 28 * 3584
    * 8192. A frozen model takes 4 N + 6 L h T a token, and 6 N + 8 L h T where the forward pass is
    computed again."""
    load, real = gpu.loads(gpu.CELLS["sft-7b-12gb"], toy=False)
    weights, attention = 7_070_285_824, 28 * 3584 * 8192
    assert load == real and operations(real) == 6 * weights + 8 * attention
    found = {
        "tokens": 30_000,
        "seconds": [1.0, 2.0],
        "losses": [12.0, 11.0],
        "steps": 4,
        "besides": {},
        "gib": {"allocated_gib": 7.0, "reserved_gib": 8.0, "used_gib": 9.0, "loading_gib": 6.0},
    }
    result = gpu.figures(gpu.CELLS["sft-7b-12gb"], False, CARD, "ours", found)
    assert (result["tokens_a_second"], result["seconds_a_step"]) == (10_000, 1.5)
    assert result["hfu"] == pytest.approx(10_000 * (6 * weights + 8 * attention) / 989e12, abs=1e-4)
    assert result["mfu"] == pytest.approx(10_000 * (4 * weights + 6 * attention) / 989e12, abs=1e-4)
    planned_gib = (memory(load).total - GIB) / GIB  # overhead is 1 GiB
    assert result["planned_gib"] == pytest.approx(planned_gib, abs=1e-3)
    assert result["planner_error"] == pytest.approx(result["planned_gib"] / 7 - 1, abs=1e-3)


@pytest.mark.parametrize(
    ("name", "gib"), [("sft-1.5b", 3.86), ("sft-7b-12gb", 7.364), ("beside-defaults", 8.252)]
)
def test_what_was_measured_on_an_h200_is_planned_within_a_tenth_or_so(name, gib):
    """docs/results.md: 2026-11-26. Never less is planned than was needed."""
    load, _ = gpu.loads(gpu.CELLS[name], False)
    planned = (memory(load).total - load.regime.overhead) / GIB
    assert 0 <= gpu.planner_error(planned, gib) <= 0.12
