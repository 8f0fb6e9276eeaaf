"""The losses of every trainer and of each of its losses, on a tiny model."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from support.golden import Golden

import agentlite
from agentlite.config.settings import PreferenceLoss

GRPO = ("grpo", "dr_grpo", "bnpo", "dapo", "cispo", "gspo", "sapo", "luspo", "vespo")
FIGURES = ("loss", "kl", "reward", "grad_norm", "value_loss", "dev_loss")
SMOOTHED = {"exo_pair": 1e-3, "robust": 0.1}
STEPS = {"max_steps": 2, "learning_rate": 1e-2, "gradient_accumulation": 1, "save_steps": 9}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "sft": ("sft", {"batch_size": 4}),
    "sft full": ("sft", {"batch_size": 4, "full": True}),
    **{
        f"dpo {loss}": ("dpo", {"loss_type": loss, "label_smoothing": SMOOTHED.get(loss, 0.0)})
        for loss in get_args(PreferenceLoss)
    },
    **{f"grpo {loss}": ("grpo", {"loss_type": loss}) for loss in GRPO},
    "ppo": ("grpo", {"advantage": "value", "rollouts": 8, "ppo_epochs": 2}),
    "distill": ("distill", {"lmbda": 0.5, "beta": 0.5}),
    "distill recorded": ("distill", {"lmbda": 0.0}),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_losses_of_two_steps(
    name: str, tiny_run: Path, tiny_model: Path, golden: Golden
) -> None:
    command, options = RUNS[name]
    options = {**STEPS, "model": str(tiny_model), "batch_size": 4, **options}
    if command == "grpo":
        options |= {"rewards": (f"{tiny_run / 'reward.py'}:even",)}
        options |= {"max_new_tokens": 8, "group_size": 4}
    if command == "distill":
        options |= {"teacher": "teacher", "max_new_tokens": 8}
    out = name.replace(" ", "-")
    getattr(agentlite, command)(run=str(tiny_run), out=out, **options)
    lines = (tiny_run / out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = map(json.loads, lines)
    golden(name, [{key: row[key] for key in FIGURES if key in row} for row in rows], within=1e-5)
