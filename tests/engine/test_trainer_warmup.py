"""The learning rate of the first steps: never 0, also after a stop, in every trainer."""

from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from support.trainers import dpo, grpo, preferences, rows, sft, source, task
from transformers import get_scheduler

from agentlite.config.settings import Scheduler
from agentlite.engine import dpo as dpo_trainer
from agentlite.engine import grpo as grpo_trainer
from agentlite.engine import sft as sft_trainer
from agentlite.engine import training_log
from agentlite.engine.trainer import raise_first_rates

PEAK, STEPS, WARMUP = 0.1, 10, 4


def scheduled(name: str, warmup: int, raised: bool) -> tuple[Any, Any]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    scheduler = get_scheduler(name, optimizer, warmup, STEPS)
    if raised:
        raise_first_rates(scheduler, warmup)
    return optimizer, scheduler


def rates(optimizer: Any, scheduler: Any, steps: int) -> list[float]:
    """Of each step: what the optimizer takes it with."""
    taken = []
    for _ in range(steps):
        taken.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return taken


@pytest.mark.parametrize("warmup", [0, 1, WARMUP, STEPS - 1])
@pytest.mark.parametrize("name", get_args(Scheduler))
def test_every_step_has_a_rate_and_after_the_warmup_that_of_transformers(
    name: str, warmup: int
) -> None:
    before = rates(*scheduled(name, warmup, False), STEPS)
    after = rates(*scheduled(name, warmup, True), STEPS)
    assert min(after) > 0 and after[warmup:] == before[warmup:]
    if warmup and name != "constant":
        risen = [PEAK * (step + 1) / (warmup + 1) for step in range(warmup)]
        assert before[0] == 0 and after[:warmup] == pytest.approx(risen)
    else:
        assert after == before


@pytest.mark.parametrize("command", ["sft", "dpo", "grpo"])
def test_the_first_step_of_every_trainer_changes_the_adapter(
    command: str, tiny_model: Path, tmp_path: Path
) -> None:
    changes = {"max_steps": 2, "warmup_ratio": 0.5, "save_steps": 1, "lr_scheduler": "linear"}
    start = source(tiny_model)
    if command == "sft":
        sft_trainer.train(start, sft(**changes), tmp_path, rows(), [])
    elif command == "dpo":
        dpo_trainer.train(start, dpo(**changes), tmp_path, preferences())
    else:
        grpo_trainer.train(start, grpo(**changes), tmp_path, lambda loaded: task())
    from safetensors.torch import load_file

    found = [row["learning_rate"] for row in training_log.logged(tmp_path)]
    assert found == pytest.approx([5e-3, 1e-2])
    first = load_file(tmp_path / "checkpoints" / "checkpoint-1" / "adapter_model.safetensors")
    assert any(bool(value.any()) for name, value in first.items() if "lora_B" in name)
