"""KTO: the loss is that of the formula, z is of answers to other prompts, a kill changes
nothing.
"""

import math
from itertools import product

import pytest
from support.trainers import dpo, preferences, source

from agentlite.engine import dpo as dpo_trainer
from agentlite.engine import trainer as training
from agentlite.engine import watch
from agentlite.engine.dpo import KtoAnswer
from agentlite.engine.load import load, loading_of

SETTINGS = {"loss_type": "kto", "desirable_weight": 1.5, "undesirable_weight": 0.5}


def answers() -> list[KtoAnswer]:
    """Both sides of each pair, but the third chosen one is undesirable: unpaired."""
    return [
        KtoAnswer(row.prompt, answer, desirable and number % 3 != 2)
        for number, row in enumerate(preferences())
        for answer, desirable in ((row.chosen, True), (row.rejected, False))
    ]


def log_ratio(before, after, prompt: list[int], answer: list[int]) -> float:
    import torch

    ids = torch.tensor([prompt + answer])
    with torch.no_grad():
        new, old = (model(ids).logits[0].double().log_softmax(-1) for model in (after, before))
    places = range(len(answer))
    return sum(
        float(new[len(prompt) + n - 1, answer[n]] - old[len(prompt) + n - 1, answer[n]])
        for n in places
    )


@pytest.mark.parametrize("engine", ["unsloth", "hf"])
def test_the_loss_is_that_of_the_formula(engine, tiny_model, tmp_path):
    """The second of two steps, from the policy of the first."""
    run = {"save_steps": 1, "max_steps": 2, "seed": 3, "engine": engine}
    settings = dpo(batch_size=10, beta=0.3, **run, **SETTINGS)
    dpo_trainer.check(settings)
    figures = dpo_trainer.train(source(tiny_model), settings, tmp_path, answers())
    assert figures["first_loss"] == pytest.approx((4 * 1.5 + 6 * 0.5) / 2 / 10, abs=1e-5)
    after = tmp_path / "checkpoints" / "checkpoint-1"
    before, policy = (
        load(source(tiny_model, one), loading_of(dpo()), trainable=False).model.eval()
        for one in (None, after)
    )
    plan = training.Schedule(2, 10, 1)
    order = training.row_order([row.tokens for row in answers()], plan, 3)
    rows = [answers()[index] for index in order]
    others = dpo_trainer.mismatch_answers(rows)[10:]
    rows = rows[10:]
    z = sum(
        log_ratio(before, policy, row.prompt, other)
        for row, other in zip(rows, others, strict=True)
    )
    z = z / 10
    assert z > 0.1  # or it would have no part in the loss
    total = 0.0
    for row in rows:
        c = log_ratio(before, policy, row.prompt, row.answer)
        x = 0.3 * (c - z if row.desirable else z - c)
        total += (1.5 if row.desirable else 0.5) * (1 - 1 / (1 + math.exp(-x)))
    row = watch.read_metrics(tmp_path)[1]
    assert row["loss"] == pytest.approx(total / 10, rel=1e-4)
    assert row["kl"] == pytest.approx(z, abs=1e-4)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_z_takes_the_nearest_answer_to_another_prompt_that_stands_before_in_a_circle(count):
    for prompts in product((1, 2), repeat=count):
        rows = [KtoAnswer([prompt], [place], True) for place, prompt in enumerate(prompts)]
        for place, found in enumerate(dpo_trainer.mismatch_answers(rows)):
            circle = [*rows[place + 1 :], *rows[:place]]
            others = [row.answer for row in circle if row.prompt != rows[place].prompt]
            assert found == (others or [rows[place].answer])[-1]
