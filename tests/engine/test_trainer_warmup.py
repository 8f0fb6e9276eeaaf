"""The learning rate of the first steps: never 0, also after a stop, in every trainer."""

from typing import Any, get_args

import pytest
import torch
from transformers import get_scheduler

from agentlite.config.settings import Scheduler
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
