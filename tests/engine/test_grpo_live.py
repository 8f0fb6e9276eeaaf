"""Rows of several turns: what was read has no part in the loss, on either engine."""

import os
import random
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from support.simulated_cuda import simulated
from support.trainers import WEIGHTS, grpo, source, task

from agentlite.config.settings import GrpoSettings
from agentlite.engine import grpo as grpo_trainer
from agentlite.engine.grpo import LearnedRow

pytestmark = pytest.mark.torch
LOSS_TYPES = get_args(get_type_hints(GrpoSettings)["loss_type"])
REWARDS = (1.0, 0.0, 0.25, 0.75)


def rows() -> list[LearnedRow]:
    """Two groups of two, of other lengths; between two turns of the model's stands a result."""
    chance = random.Random(5)
    made = []
    for number, reward in enumerate(REWARDS):
        turns = [[chance.randrange(100, 900) for _ in range(n)] for n in (3 + number, 4, 2)]
        prompt = [chance.randrange(100, 900) for _ in range(4 + number)]
        ids = [one for turn in turns for one in turn]
        mask = [1] * len(turns[0]) + [0] * 4 + [1] * 2
        parts = {"even": reward, "long": number / 3, "timeout": 0.0}
        made.append(LearnedRow(prompt, ids, mask, [-1.0] * len(ids), parts))
    return made


def advantages(made: list[LearnedRow], scale_rewards: str) -> list[float]:
    """By the formula, of two groups of two."""
    import torch

    def scaled(values: torch.Tensor, over: int) -> torch.Tensor:
        groups = values.view(-1, over)
        return ((groups - groups.mean(1, True)) / (groups.std(1, keepdim=True) + 1e-4)).flatten()

    parts = {name: torch.tensor([row.reward[name] for row in made]) for name in WEIGHTS}
    if scale_rewards == "component":
        total = sum(weight * scaled(parts[name], 2) for name, weight in WEIGHTS.items())
        return scaled(total, len(made)).tolist()
    return scaled(sum(weight * parts[name] for name, weight in WEIGHTS.items()), 2).tolist()


def share(loss_type: str, row: LearnedRow, made: list[LearnedRow], most: int) -> float:
    """The factor of a sampled token's advantage x log-probability in the loss of a step. The ratio
    of new and old policy is 1, so that clips, gates and weights of the ratio change nothing.
    `most`: max_new_tokens.
    """
    tokens, every = sum(row.mask), sum(sum(one.mask) for one in made)
    return {
        "dapo": 1 / every,
        "bnpo": 1 / every,  # of a micro-batch, which is the whole step here
        "cispo": 1 / every,
        "vespo": 1 / every,
        "grpo": 1 / (len(made) * tokens),
        "gspo": 1 / (len(made) * tokens),
        "sapo": 1 / (len(made) * tokens),
        "luspo": 1 / len(made),
        "dr_grpo": 1 / (len(made) * most),
    }[loss_type]


def gradients(model: str, folder: str, engine: str, **changes: str) -> float:
    """By how much the trainer's gradient differs from the one by hand, relative to the largest."""
    import torch

    from agentlite.engine.load import load, loading_of

    grpo_trainer.sampler_gaps = lambda *_: [0.0]  # these rows were not sampled
    settings = grpo(
        engine=engine,
        beta=0.0,
        group_size=2,
        batch_size=4,
        gradient_accumulation=1,
        temperature=1.0,
        **changes,
    )
    made = rows()
    loaded = load(source(Path(model)), loading_of(settings), trainable=True)
    live = task()._replace(sample=lambda draw, groups, step: made, is_live=True)
    trainer = grpo_trainer.make_trainer(
        loaded, settings, Path(folder), live, grpo_trainer.schedule(settings, 5)
    )
    policy = trainer.model.train()
    for name, weight in policy.named_parameters():
        if "lora_B" in name:  # at zero, half of the adapter would have no gradient
            torch.nn.init.normal_(weight, std=0.02, generator=torch.Generator().manual_seed(1))
    # a dict each, as TRL has them: it writes the rewards into it
    inputs = [dict(trainer.train_dataset[0]) for _ in range(4)]
    inputs = trainer._generate_and_score_completions(inputs)
    trainer.current_gradient_accumulation_steps = 1
    trainer.compute_loss(policy, inputs).backward()
    trained = {name: one for name, one in policy.named_parameters() if one.requires_grad}
    found = {name: one.grad.clone() for name, one in trained.items()}

    policy.zero_grad()
    loss, alike = torch.zeros(()), advantages(made, settings.scale_rewards)
    for place, row in enumerate(made):
        factor = share(settings.loss_type, row, made, settings.max_new_tokens)
        logits = plain_logits(policy, [*row.prompt, *row.ids])
        likely = logits[len(row.prompt) - 1 : -1].float().log_softmax(-1)
        for n, (token, sampled) in enumerate(zip(row.ids, row.mask, strict=True)):
            loss = loss - sampled * alike[place] * likely[n, token] * factor
    loss.backward()
    largest = max(one.grad.abs().max() for one in trained.values())
    assert largest > 1e-4
    return max(float((found[n] - one.grad).abs().max() / largest) for n, one in trained.items())


def plain_logits(policy: Any, ids: list[int]) -> Any:
    """On CUDA, Unsloth's forward pass returns hidden states while a trainer of it is there."""
    import torch

    before = os.environ.get("UNSLOTH_RETURN_HIDDEN_STATES")
    os.environ["UNSLOTH_RETURN_HIDDEN_STATES"] = "0"
    try:
        return policy(input_ids=torch.tensor([ids])).logits[0]
    finally:
        if before is not None:
            os.environ["UNSLOTH_RETURN_HIDDEN_STATES"] = before


@pytest.mark.parametrize("engine", ["hf", "unsloth"])
def test_the_gradient_is_that_of_the_sampled_tokens_alone(
    engine, tiny_model, tmp_path, monkeypatch
):
    monkeypatch.setattr(grpo_trainer, "sampler_gaps", lambda *_: [0.0])  # undone behind the test
    assert gradients(str(tiny_model), str(tmp_path), engine) < 1e-3


CASES: list[dict[str, Any]] = [
    *({"loss_type": name} for name in LOSS_TYPES if name != "dapo"),
    {"scale_rewards": "component"},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_loss_weighs_a_token_by_its_formula(case, tiny_model, tmp_path, monkeypatch):
    monkeypatch.setattr(grpo_trainer, "sampler_gaps", lambda *_: [0.0])
    assert gradients(str(tiny_model), str(tmp_path), "unsloth", **case) < 1e-3


def simulated_gradients(model: str, folder: str, cases: list[dict[str, Any]]) -> list[float]:
    from agentlite.engine import load_libraries

    load_libraries("unsloth")
    return [gradients(model, folder, "unsloth", **case) for case in cases]


def test_the_same_holds_for_the_loss_of_unsloth_on_cuda(tiny_model, tmp_path):
    """Simulated, and not run on a GPU."""
    [difference] = simulated(simulated_gradients, tiny_model, tmp_path, [{}], card="rtx3060")
    assert difference < 0.05  # in 16 bit
