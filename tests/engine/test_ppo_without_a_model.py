"""PPO without a model: the answers of its rounds, its figures, and a step in micro-batches."""

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
from support.trainers import grpo

from agentlite.engine import ppo

SOURCE: Any = None
ROUND: dict[str, Any] = {
    "advantage": "value",
    "rollouts": 8,
    "ppo_epochs": 2,
    "group_size": 2,
    "batch_size": 2,
    "gradient_accumulation": 1,
}


@pytest.mark.torch
def test_a_step_has_the_same_loss_and_figures_in_smaller_micro_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    class Base:
        accelerator = SimpleNamespace(unwrap_model=lambda model: model)

    def figures(model: Any, inputs: Any, labels: Any, temperature: float) -> Any:
        return ppo.TokenFigures(inputs["likely"], inputs["new"])

    monkeypatch.setattr(ppo, "read_tokens", figures)
    names = ("likely", "new", "old", "advantages", "returns", "values")
    generator = torch.Generator().manual_seed(0)
    columns = {name: torch.randn(12, generator=generator) for name in names}
    found = []
    for cuts in ([12], [1, 11], [3, 4, 5]):
        trainer = ppo._clipping(Base, grpo(**ROUND), SOURCE)()
        trainer._metrics, trainer.micro_batches = {"train": defaultdict(list)}, len(cuts)
        parts = [
            {name: column.split(cuts)[n] for name, column in columns.items()}
            for n in range(len(cuts))
        ]
        loss = sum(
            trainer.compute_loss(None, {**part, "labels": None}, num_items_in_batch=12)
            for part in parts
        )
        measured = trainer._metrics["train"]  # TRL logs the mean over micro-batches
        means = [sum(measured[name]) / len(cuts) for name in ("clipped", "value_loss")]
        found.append([float(loss), *means])
    assert found[1] == pytest.approx(found[0]) and found[2] == pytest.approx(found[0])
    assert all(found[0])
