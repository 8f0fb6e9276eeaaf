"""Without a GPU, micro-batches begin as large as the machine's memory is planned to hold."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.samples import DATA

import agentlite
from agentlite.config.gpu_profiles import Gpu
from agentlite.config.settings import DistillSettings, DpoSettings, GrpoSettings, SftSettings
from agentlite.engine.planning import gpus
from agentlite.engine.planning.estimate import load_of
from agentlite.engine.planning.memory import MARGIN, memory
from agentlite.engine.planning.micro_batch import micro_batch_in_memory
from agentlite.engine.planning.model_shape import find_shape, with_teacher
from agentlite.engine.trainer import Schedule
from agentlite.engine.training_log import logged

TRAINERS = {
    "sft": SftSettings(),
    "dpo": DpoSettings(),
    "grpo": GrpoSettings(),
    "distill": DistillSettings(teacher="Qwen/Qwen2.5-7B-Instruct"),
}
LONGEST = 700


def needed(command: str, settings: Any, base: str, run: Path) -> float:
    """Bytes, with what is to be left free."""
    shape = with_teacher(find_shape(base), settings, run)
    return memory(load_of(command, settings, shape, False, LONGEST)).total * (1 + MARGIN)


@pytest.mark.parametrize("command", TRAINERS)
@pytest.mark.parametrize("fitting", [6, 3, 1])
def test_the_largest_that_fits_is_taken_and_a_step_keeps_its_rows(
    command: str, fitting: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(TRAINERS[command], batch_size=6, gradient_accumulation=2)
    of_fitting = replace(settings, batch_size=fitting, gradient_accumulation=12 // fitting)
    given: tuple[Any, ...] = (command, settings, "smollm2-135m", LONGEST, tmp_path)
    enough = needed(command, of_fitting, "smollm2-135m", tmp_path)
    monkeypatch.setattr(gpus, "_host_bytes", lambda: enough + 1)
    assert micro_batch_in_memory(*given) == Schedule(1, fitting, 12 // fitting)
    monkeypatch.setattr(gpus, "_host_bytes", lambda: 1.0)  # not even one row
    assert micro_batch_in_memory(*given) == Schedule(1, 1, 12)


@pytest.mark.parametrize(("gpu", "processes"), [(True, 1), (False, 2)])
def test_a_card_and_several_processes_begin_with_the_micro_batch_that_was_set(
    gpu: bool, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A card says when it is full, and processes have to agree."""
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    monkeypatch.setattr(gpus, "_host_bytes", lambda: 1.0)
    if gpu:
        monkeypatch.setattr("agentlite.config.gpu_profiles.card", lambda: Gpu("T4", 15.0, 0.1))
    settings = replace(SftSettings(), batch_size=6, gradient_accumulation=2)
    found = micro_batch_in_memory("sft", settings, "smollm2-135m", LONGEST, tmp_path)
    assert found == Schedule(1, 6, 2)


def test_micro_batches_are_not_cut_where_sampling_alone_is_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(GrpoSettings(), batch_size=6, gradient_accumulation=600)
    alone = replace(settings, batch_size=1, gradient_accumulation=3600)
    need, least = (needed("grpo", one, "smollm2-135m", tmp_path) for one in (settings, alone))
    assert need == least
    monkeypatch.setattr(gpus, "_host_bytes", lambda: need / 2)
    found = micro_batch_in_memory("grpo", settings, "smollm2-135m", LONGEST, tmp_path)
    assert found == Schedule(1, 6, 600)


@pytest.mark.torch
def test_a_run_in_smaller_micro_batches_learns_the_same_and_says_so(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    run = str(tmp_path)
    agentlite.prep(str(DATA / "weather.jsonl"), run=run, model=str(tiny_model), dev=0, test=0)
    short: dict[str, Any] = {"run": run, "max_steps": 2, "batch_size": 2, "save_steps": 1}
    agentlite.sft(**short, out="whole")
    monkeypatch.setattr(gpus, "_host_bytes", lambda: 1.0)
    capsys.readouterr()
    found = agentlite.sft(**short, out="small")
    assert "2 rows at once would need more memory than this machine has" in capsys.readouterr().err
    assert found.figures["batch_size"] == 1
    whole, small = (
        [row["loss"] for row in logged(tmp_path / name) if "loss" in row]
        for name in ("whole", "small")
    )
    assert len(small) == 2 and small == pytest.approx(whole, rel=1e-4)
    assert agentlite.sft(**short, out="small").status == "up to date"
