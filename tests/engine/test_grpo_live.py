"""Rows of several turns: what was read has no part in the loss, on either engine."""

import random
from pathlib import Path
from typing import Any

import pytest
from support.simulated_cuda import simulated
from support.trainers import WEIGHTS, grpo, source, task

from agentlite.engine import grpo as grpo_trainer
from agentlite.engine.grpo import AnswerReward, LearnedRow

pytestmark = pytest.mark.torch
REWARDS = (1.0, 0.0, 0.25, 0.75)


def rows(credited: bool) -> list[LearnedRow]:
    """Two groups of two, of other lengths; between two turns of the model's stands a result."""
    chance = random.Random(5)
    made = []
    for number, reward in enumerate(REWARDS):
        turns = [[chance.randrange(100, 900) for _ in range(n)] for n in (3 + number, 4, 2)]
        prompt = [chance.randrange(100, 900) for _ in range(4 if credited else 4 + number)]
        ids = [one for turn in turns for one in turn]
        mask = [1] * len(turns[0]) + [0] * 4 + [1] * 2
        advantages = [0.3 - number, *[-0.2] * (len(ids) - 1)] if credited else []
        parts = {"even": reward, "long": 0.0, "timeout": 0.0}
        made.append(
            LearnedRow(prompt, ids, mask, [-1.0] * len(ids), AnswerReward(parts), advantages)
        )
    return made


def gradients(model: str, folder: str, engine: str, credited: bool) -> float:
    """By how much the trainer's gradient differs from the one by hand, relative to the largest."""
    import torch

    from agentlite.engine.load import load, loading_of

    grpo_trainer._log_gap = lambda *_: None  # these rows were not sampled
    settings = grpo(
        engine=engine,
        beta=0.0,
        group_size=2,
        batch_size=4,
        gradient_accumulation=1,
        temperature=1.0,
    )
    made = rows(credited)
    loaded = load(source(Path(model)), loading_of(settings), trainable=True)
    live = task()._replace(live=lambda sample, groups, step: made)
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
    totals = [sum(WEIGHTS[name] * part for name, part in row.reward.parts.items()) for row in made]
    loss, count = torch.zeros(()), sum(sum(row.mask) for row in made)
    for place, row in enumerate(made):
        group = torch.tensor(totals[place - place % 2 :][:2])
        alike = ((totals[place] - group.mean()) / (group.std() + 1e-4)).item()
        logits = plain_logits(policy, [*row.prompt, *row.ids])
        likely = logits[len(row.prompt) - 1 : -1].float().log_softmax(-1)
        for n, (token, sampled) in enumerate(zip(row.ids, row.mask, strict=True)):
            advantage = row.advantages[n] if credited else alike
            loss = loss - sampled * advantage * likely[n, token] / count
    loss.backward()
    largest = max(one.grad.abs().max() for one in trained.values())
    assert largest > 1e-4
    return max(float((found[n] - one.grad).abs().max() / largest) for n, one in trained.items())


def plain_logits(policy: Any, ids: list[int]) -> Any:
    """On CUDA, Unsloth's forward pass returns hidden states while a trainer of it is there."""
    import os

    import torch

    before = os.environ.get("UNSLOTH_RETURN_HIDDEN_STATES")
    os.environ["UNSLOTH_RETURN_HIDDEN_STATES"] = "0"
    try:
        return policy(input_ids=torch.tensor([ids])).logits[0]
    finally:
        if before is not None:
            os.environ["UNSLOTH_RETURN_HIDDEN_STATES"] = before


@pytest.mark.parametrize("credited", [False, True])
@pytest.mark.parametrize("engine", ["hf", "unsloth"])
def test_the_gradient_is_that_of_the_sampled_tokens_alone(
    engine, credited, tiny_model, tmp_path, monkeypatch
):
    monkeypatch.setattr(grpo_trainer, "_log_gap", lambda *_: None)  # undone behind the test
    assert gradients(str(tiny_model), str(tmp_path), engine, credited) < 1e-3


def simulated_gradients(model: str, folder: str) -> list[float]:
    from agentlite.engine import load_libraries

    load_libraries("unsloth")
    return [gradients(model, folder, "unsloth", credited) for credited in (False, True)]


def test_the_same_holds_for_the_loss_of_unsloth_on_cuda(tiny_model, tmp_path):
    """Simulated, and not run on a GPU."""
    for difference in simulated(simulated_gradients, tiny_model, tmp_path, card="rtx3060"):
        assert difference < 0.05  # in 16 bit


def test_a_rollout_without_a_turn_is_not_compared_with_what_was_sampled(tiny_model, tmp_path):
    """It is the first of its group, which is the step's only one."""
    from agentlite.engine.load import load, loading_of

    settings = grpo(engine="hf", group_size=2, batch_size=2, gradient_accumulation=1)
    empty = LearnedRow([2], [2], [0], [0.0], AnswerReward(None))
    loaded = load(source(tiny_model), loading_of(settings), trainable=True)
    live = task()._replace(live=lambda sample, groups, step: [empty, rows(False)[0]])
    trainer = grpo_trainer.make_trainer(
        loaded, settings, tmp_path, live, grpo_trainer.schedule(settings, 5)
    )
    trainer._generate_and_score_completions([dict(trainer.train_dataset[0]) for _ in range(2)])
    [gap] = trainer._metrics["train"]["sampler_gap/mean"]
    assert gap > 0
