"""scripts/bench/gpu.py: every kind of cell end to end on toys, without a GPU; what it reckons,
against sums by hand.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import processes
from support.examples import ALL, turn
from support.samples import ROOT

BENCH = ROOT / "scripts/bench"
sys.path.insert(0, str(BENCH))

import gpu  # noqa: E402
import gpu_parts  # noqa: E402

from agentlite.engine.planning.memory import GIB, fits, memory  # noqa: E402
from agentlite.engine.planning.time_and_disk import CARDS, GpuSpeed, operations  # noqa: E402

# A cell starts a new torch for each side. The last one is an sft too, of both sides.
ONE_OF_EACH = (
    ("sft-0.5b", "dpo-7b-24gb", "grpo-1.5b-12gb", "beside-best")
    if ALL
    else ("grpo-1.5b-12gb", "beside-best")
)
HERE = gpu.Here("NVIDIA H100 80GB HBM3", 79.6, CARDS["h100"])


pytestmark = pytest.mark.torch


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Without a GPU, also where there is one."""
    return processes.run(
        [sys.executable, str(BENCH / "gpu.py"), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1", "CUDA_VISIBLE_DEVICES": ""},
    )


@pytest.fixture(scope="module")
def toys(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[list[str], Path, subprocess.CompletedProcess[str]]:
    """Arguments that say where everything is, the JSON, and the first run."""
    folder = tmp_path_factory.mktemp("gpu")
    places = ["--toy", "--json", str(folder / "bench/gpu.json"), "--models", str(folder / "models")]
    cells = [word for name in ONE_OF_EACH for word in ("--cell", name)]
    return places, folder / "bench/gpu.json", bench(*places, *cells)


@turn(1, of=4)
def test_each_kind_of_cell_runs_on_a_toy_and_gives_whole_figures(toys):
    _, path, ran = toys
    assert ran.returncode == 0, ran.stderr
    results = json.loads(path.read_bytes())
    assert list(results) == list(ONE_OF_EACH)
    for name, by_card in results.items():
        result = by_card["toy"]
        assert result["versions"]["torch"] and result["date"] and result["cap_gib"] == 0
        assert list(result["sides"]) == (["ours", "plain"] if name == "beside-best" else ["ours"])
        for side, found in result["sides"].items():
            numbers = {key: value for key, value in found.items() if key != "with"}
            assert found["steps"] == 3 and all(
                isinstance(value, int | float) for value in numbers.values()
            )
            assert all(
                number > 0
                for key, number in numbers.items()
                if key not in ("planner_error", "last_loss", "first_loss")
            )
            assert ("planned_gib" in found) == (side == "ours")
    beside = results["beside-best"]["toy"]
    assert beside["against"]["allocated"] == pytest.approx(
        beside["sides"]["ours"]["allocated_gib"] / beside["sides"]["plain"]["allocated_gib"],
        abs=1e-3,
    )


@turn(1, of=4)
def test_the_engine_ran_a_model_that_knows_nothing_and_a_pair_that_is_equal_to_its_reference(toys):
    """The loss of a guess among 50,000 tokens is ln 50,000 = 10.82; the first of dpo is ln 2."""
    results = json.loads(toys[1].read_bytes())
    expected = {
        "sft-0.5b": (10.82, 0.1),
        "beside-best": (10.82, 0.1),
        "dpo-7b-24gb": (0.6931, 1e-3),
    }
    for name in expected.keys() & results.keys():
        loss, accuracy = expected[name]
        first = results[name]["toy"]["sides"]["ours"]["first_loss"]
        assert first == pytest.approx(loss, abs=accuracy), name


@turn(1, of=4)
def test_the_tokens_of_a_step_are_those_of_its_rows(toys):
    """dpo: two rows of 64; grpo: 8 answers of 8 tokens after prompts of 56, all counted as they
    were sampled.
    """
    results = json.loads(toys[1].read_bytes())
    expected = {"dpo-7b-24gb": 2 * 64, "grpo-1.5b-12gb": 8 * 64}
    for name in expected.keys() & results.keys():
        tokens = expected[name]
        found = results[name]["toy"]["sides"]["ours"]
        assert found["tokens_a_second"] * found["seconds_a_step"] == pytest.approx(tokens, rel=0.02)


@turn(1, of=4)
def test_the_table_has_a_line_a_side(toys):
    lines = toys[2].stdout.splitlines()
    assert lines[0].startswith("toy, 20")
    sides = [line.split()[:2] for line in lines[2:] if line.startswith(tuple(gpu.CELLS))]
    assert sides == [*([name, "ours"] for name in ONE_OF_EACH), ["beside-best", "plain"]]


@turn(1, of=4)
def test_what_is_there_is_left_out_and_measured_again_when_asked(toys):
    places, path, _ = toys
    results = json.loads(path.read_bytes())
    results["grpo-1.5b-12gb"]["toy"]["sides"]["ours"]["tokens_a_second"] = 123456.0
    path.write_text(json.dumps(results), encoding="utf-8")
    left_out = bench(*places, "--cell", "grpo-1.5b-12gb")
    assert (
        left_out.returncode == 0
        and "is there already" in left_out.stderr
        and "123,456" in left_out.stdout
    )
    assert json.loads(path.read_bytes()) == results
    again = bench(*places, "--cell", "grpo-1.5b-12gb", "--again")
    assert again.returncode == 0 and "123,456" not in again.stdout
    assert list(json.loads(path.read_bytes())) == list(ONE_OF_EACH)


def test_without_cuda_one_line_says_so(tmp_path):
    refused = bench("--json", str(tmp_path / "gpu.json"))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("gpu.py: no CUDA device") and refused.stderr.count("\n") == 1
    assert not (tmp_path / "gpu.json").exists()


def test_the_list_names_eight_cells():
    listed = bench("--list").stdout.splitlines()
    assert [line.split()[0] for line in listed] == list(gpu.CELLS) and len(listed) == 8


@pytest.mark.parametrize("name", gpu.CELLS)
def test_a_cell_is_planned_to_fit_its_cap_and_on_a_fast_card_to_have_time_for_steps(name):
    cell = gpu.CELLS[name]
    load, _ = gpu.loads(cell, toy=False)
    assert not cell.cap or fits(memory(load).total, cell.cap * GIB)
    assert gpu.FEWEST < gpu.steps_of(cell, HERE, gpu.SECONDS) <= gpu.MOST


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
    result = gpu.figures(gpu.CELLS["sft-7b-12gb"], False, HERE, "ours", found)
    assert (result["tokens_a_second"], result["seconds_a_step"]) == (10_000, 1.5)
    assert result["hfu"] == pytest.approx(10_000 * (6 * weights + 8 * attention) / 989e12, abs=1e-4)
    assert result["mfu"] == pytest.approx(10_000 * (4 * weights + 6 * attention) / 989e12, abs=1e-4)
    assert result["planned_gib"] == pytest.approx(
        (memory(load).total - GIB) / GIB, abs=1e-3
    )  # overhead is 1 GiB
    assert result["planner_error"] == pytest.approx(result["planned_gib"] / 7 - 1, abs=1e-3)


def test_shares_errors_and_means_by_hand():
    assert gpu.share_of_peak(1000, 5e10, GpuSpeed(80, 100, 2000)) == pytest.approx(0.5)
    assert gpu.planner_error(11, 10) == pytest.approx(0.1)
    assert gpu.attended((3, 1)) == 2.5  # 9 + 1 operations, over 4 tokens
    assert gpu_parts.kept([0, 10, 11, 13], [100, 200, 400, 900]) == {
        "seconds": [1, 2],
        "tokens": 300,
    }
    assert gpu.against(
        {
            "ours": {"tokens_a_second": 3, "allocated_gib": 1},
            "plain": {"tokens_a_second": 2, "allocated_gib": 4},
        }
    ) == {"tokens_a_second": 1.5, "allocated": 0.25}


def test_an_error_is_tried_again_but_out_of_memory_is_a_result():
    error: dict[str, Any] = {"error": "x", "out_of_memory": False}
    assert not gpu.settled(None) and not gpu.settled({"sides": {"ours": {}, "plain": error}})
    assert gpu.settled({"sides": {"ours": {}, "plain": {**error, "out_of_memory": True}}})
    nothing = gpu.figures(
        gpu.CELLS["sft-0.5b"], False, HERE, "ours", {"losses": [1.0, float("nan")], "tokens": 5}
    )
    assert "nan" in nothing["error"] and not nothing["out_of_memory"]


@pytest.mark.parametrize(
    ("name", "gib"), [("sft-1.5b", 3.86), ("sft-7b-12gb", 7.364), ("beside-defaults", 8.252)]
)
def test_what_was_measured_on_an_h200_is_planned_within_a_tenth_or_so(name, gib):
    """docs/gpu.md: 2026-11-26. Never less is planned than was needed."""
    load, _ = gpu.loads(gpu.CELLS[name], False)
    planned = (memory(load).total - load.regime.overhead) / GIB
    assert 0 <= gpu.planner_error(planned, gib) <= 0.12


def test_under_a_cap_torch_gets_less_and_a_library_hears_of_a_small_card(monkeypatch):
    """On a card of 80 GiB, 12 allowed: torch may have 11.45. Of these it holds 5, and 6.45 are
    free, whatever other processes hold; no more than are free on the card.
    """
    torch = pytest.importorskip("torch")
    shares: list[float] = []
    monkeypatch.setattr(torch.cuda.memory, "mem_get_info", lambda device=None: (70 * GIB, 80 * GIB))
    monkeypatch.setattr(torch.cuda, "mem_get_info", None)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", shares.append)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device=None: 5 * GIB)
    gpu_parts._cap_memory(12)
    assert shares == [pytest.approx(11.45 / 80)]
    assert torch.cuda.mem_get_info() == (pytest.approx(6.45 * GIB), 12 * GIB)
    monkeypatch.setattr(torch.cuda.memory, "mem_get_info", lambda device=None: (3 * GIB, 80 * GIB))
    assert torch.cuda.mem_get_info() == (3 * GIB, 12 * GIB)


@pytest.mark.parametrize("name", ["sft-0.5b", "beside-best"])
def test_mixed_rows_pack_into_full_ones(name):
    """So that a step of ours and one of plain TRL have the same tokens, none of them padding."""
    from agentlite.engine import load_libraries

    load_libraries("unsloth")
    from datasets import Dataset
    from trl import pack_dataset

    cell = gpu.CELLS[name]
    settings = gpu.settings_of(cell, False, 4)
    rows = [list(range(length)) for _ in range(6) for length in gpu.lengths_of(cell, settings)]
    packed = pack_dataset(Dataset.from_dict({"input_ids": rows}), settings.max_length)
    assert {len(ids) for ids in packed["input_ids"]} == {settings.max_length}
