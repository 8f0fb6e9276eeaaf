"""PPO: advantages and losses are those of the formulas, rounds are learned from in passes, a kill
changes nothing.
"""

import math
from collections.abc import Collection
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest
from support.trainers import WEIGHTS, grpo, source, task, verdicts

from agentlite.core.row_files import read_rows
from agentlite.engine import grpo as grpo_trainer
from agentlite.engine import ppo, trainer, watch
from agentlite.engine.grpo import Reward
from agentlite.engine.load import load, loading_of
from agentlite.engine.ppo import Experience

SETTINGS: dict[str, Any] = {
    "advantage": "value",
    "beta": 0.02,
    "rollouts": 16,
    "ppo_epochs": 2,
    "group_size": 2,
}


def trained(
    tiny_model: Path,
    folder: Path,
    failed: Collection[int] = (),
    start: Path | None = None,
    **changes: object,
) -> dict[str, object]:
    """`failed`: the answers of a round whose reward function fails; `start`: an adapter."""

    def judge(answers: Any) -> list[Reward]:
        earned = enumerate(verdicts(answers))
        return [None if place in failed else one for place, one in earned]

    folder.mkdir(exist_ok=True)
    settings = grpo(**{**SETTINGS, **changes})
    return grpo_trainer.train(
        source(tiny_model, start),
        settings,
        folder,
        lambda: task(settings, judge),
        ppo.make_trainer,
    )


def test_the_advantage_is_that_of_the_formula():
    """Three tokens, the last of which earns 1; a KL of .2 nats at the first costs .1 of it."""
    one = Experience(
        [1], [7, 8, 9], 1.0, {}, [-1.0, -2.0, -3.0], [-1.2, -2.0, -3.0], [0.1, 0.4, 0.5]
    )
    rewards = ppo.token_rewards(one, 0.1)
    assert rewards == pytest.approx([-0.02, 0, 1])
    last = 1 - 0.5
    middle = (0 + 0.5 - 0.4) + 0.9 * last
    first = (-0.02 + 0.4 - 0.1) + 0.9 * middle
    advantages, returns = ppo.estimate_advantages(rewards, one.values, 0.9)
    assert advantages == pytest.approx([first, middle, last])
    assert returns == pytest.approx([first + 0.1, middle + 0.4, 1.0])
    _, returns = ppo.estimate_advantages(rewards, one.values, 1.0)  # all that comes, less the value
    assert returns == pytest.approx([0.98, 1.0, 1.0])


def test_advantages_are_whitened_over_the_tokens_that_are_learned():
    rows = [
        Experience([1], [7] * count, reward, {}, [-1.0] * count, [-1.0] * count, [0.0] * count)
        for count, reward in ((1, 1.0), (3, 0.0), (2, None))
    ]
    found = ppo.whiten(rows, grpo(**SETTINGS, gae_lambda=1.0))
    every = [value for row in found[:2] for value in row.advantages]
    assert (fmean(every), pstdev(every)) == pytest.approx((0, 1), abs=1e-6)
    assert [row.is_learned for row in found] == [True, True, False]


@pytest.mark.torch
def test_the_clipped_losses_are_those_of_the_formulas():
    import torch

    old = torch.tensor([-1.0, -1.0, -1.0, -1.0])
    new = old + torch.tensor([1.5, 1.1, 0.5, 1.5]).log()
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.0])
    # r above 1.2 does not help a good token; r below .8 does not help a bad one; else r counts
    expected = [-1.2, -1.1, 0.8, 1.5]
    assert ppo.policy_loss(new, old, advantages, 0.2).tolist() == pytest.approx(expected)
    before = torch.zeros(3)
    values, returns = torch.tensor([0.1, 0.5, 0.5]), torch.tensor([1.0, 1.0, 0.3])
    expected = [0.5 * 0.9**2, 0.5 * max(0.5**2, 0.8**2), 0.5 * max(0.2**2, 0.1**2)]
    assert ppo.value_loss(values, before, returns, 0.2).tolist() == pytest.approx(expected)


@pytest.mark.parametrize(("engine", "failed"), [("unsloth", ()), ("hf", ()), ("hf", (3, 8, 9))])
def test_the_loss_of_a_later_step_is_that_of_the_formula(engine, failed, tiny_model, tmp_path):
    """The second of two steps over the same answers: the policy is no longer that of the round. It
    begins from a trained adapter with dropout, whose reference has none. An answer without a reward
    does not count.
    """
    import torch
    from safetensors.torch import load_file

    changes = {"engine": engine, "batch_size": 16, "gradient_accumulation": 1, "max_steps": 2}
    changes["lora_dropout"] = 0.3  # which is off: it would part the policy from the one before
    trainer.check("grpo", grpo(**{**SETTINGS, **changes}))
    changes |= {"save_steps": 1, "warmup_ratio": 0.0}
    first = tmp_path / "first"
    trained(tiny_model, first, failed, **{**changes, "max_steps": 1})
    trained(tiny_model, tmp_path, failed, first / "checkpoints" / "checkpoint-1", **changes)
    checkpoint = tmp_path / "checkpoints" / "checkpoint-1"
    loaded = load(source(tiny_model, checkpoint), loading_of(grpo()), trainable=False)
    head = load_file(checkpoint / ppo.HEAD / ppo.WEIGHTS)
    assert head["weight"].abs().sum() > 0
    rows = [Experience(**row) for row in read_rows(tmp_path / ppo.EXPERIENCE)]
    assert sum(row.reward is None for row in rows) == len(failed)
    for row in rows:
        weighted = sum(WEIGHTS[name] * value for name, value in row.parts.items())
        assert row.reward == (pytest.approx(weighted) if row.parts else None)
    settings, total, count, clipped = grpo(**{**SETTINGS, **changes}), 0.0, 0, 0
    of_values = 0.0
    for row in ppo.whiten(rows, settings):
        if not row.is_learned:
            continue
        one = row.answer
        ids = torch.tensor([[*one.prompt, *one.ids]])
        assert one.old == pytest.approx(one.reference, abs=1e-5)  # the first round
        with torch.no_grad():
            output = loaded.model(ids, output_hidden_states=True)
        start = len(one.prompt) - 1
        likely = output.logits[0, start:-1].double().log_softmax(-1)
        states = output.hidden_states[-1][0, start:-1]
        values = (states @ head["weight"].T + head["bias"])[:, 0].tolist()
        for place, token in enumerate(one.ids):
            ratio = math.exp(float(likely[place, token]) - one.old[place])
            advantage = row.advantages[place]
            near = max(0.8, min(1.2, ratio))
            clipped += near != ratio
            moved = max(-0.2, min(0.2, values[place] - one.values[place]))
            off = (values[place] - row.returns[place]) ** 2
            off_near = (one.values[place] + moved - row.returns[place]) ** 2
            of_values += 0.5 * max(off, off_near)
            total += max(-advantage * ratio, -advantage * near) + 0.25 * max(off, off_near)
            count += 1
    first, second = watch.read_metrics(tmp_path)
    assert first["clipped"] == 0 and first["kl"] == pytest.approx(0, abs=1e-5)
    assert second["loss"] == pytest.approx(total / count, rel=1e-3, abs=1e-5)
    assert second["clipped"] == pytest.approx(clipped / count, abs=1e-6)
    assert second["value_loss"] == pytest.approx(of_values / count, rel=1e-3)


def test_a_round_takes_every_answer_once_in_each_pass():
    settings = grpo(**SETTINGS)
    order = ppo.round_order(settings, 4)
    assert sorted(order[:16]) == sorted(order[16:]) == list(range(16))
    assert order[:16] != order[16:] and order == ppo.round_order(settings, 4)
    assert order != ppo.round_order(settings, 8)
