"""GRPO: no divergence at the start, the advantage of the formula, every part logged, a kill changes
nothing.
"""

from pathlib import Path

import pytest
import torch
from support.trainers import WEIGHTS, grpo, prompts, source, task, verdict
from support.trainers import dpo as pair_settings

from agentlite.core.errors import DIVERGED, UserError
from agentlite.engine import dpo, local_sampler, watch
from agentlite.engine import grpo as grpo_trainer
from agentlite.engine.load import load, loading_of
from agentlite.workspace.input_files import load_template


def made(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


@pytest.fixture(scope="module")
def adapter(tiny_model, tmp_path_factory):
    """One with other weights than the base's, also in rows of the embeddings, as sft leaves it."""
    folder = tmp_path_factory.mktemp("start")
    end = load_template("smollm2-135m").encode("sunny")
    rows = [dpo.Preference(prompt, end, end[::-1]) for prompt in prompts()]
    marks = {"trainable_token_indices": [1, 2]}
    settings = pair_settings(batch_size=5, max_steps=4, learning_rate=5e-2, peft=marks)
    dpo.train(source(tiny_model), settings, folder, rows)
    return folder / "adapter"


@pytest.mark.parametrize("engine", ["unsloth", "hf"])
def test_before_the_first_step_there_is_no_divergence_also_when_an_adapter_is_continued(
    engine, tiny_model, adapter, tmp_path
):
    for name, start in (("new", None), ("continued", adapter)):
        grpo_trainer.train(
            source(tiny_model, start),
            grpo(engine=engine, max_steps=2),
            made(tmp_path, name),
            lambda: task(),
        )
        first, second = (row["kl"] for row in watch.read_metrics(tmp_path / name))
        assert first == 0
        assert second > 0


@pytest.mark.parametrize("engine", ["unsloth", "hf"])
def test_sampler_and_trainer_agree_on_how_likely_every_token_is(engine, tiny_model, tmp_path):
    settings = grpo(engine=engine, max_steps=6, temperature=0.7, top_p=0.9)
    grpo_trainer.train(source(tiny_model), settings, tmp_path, lambda: task(settings))
    rows = watch.read_metrics(tmp_path)
    measured = [row["step"] for row in rows if "sampler_gap" in row]
    assert measured == [1, 6]  # the first, and every fifth after it
    for step in measured:
        row = rows[step - 1]
        assert 0 < row["sampler_gap"] <= row["sampler_gap_p99"] <= row["sampler_gap_max"] < 1e-4


def test_a_sampler_with_other_probabilities_than_the_trainers_stops_the_run(
    tiny_model, tmp_path, monkeypatch
):
    """As one whose kernels, masks or positions are wrong: here it draws at another temperature."""
    choose = local_sampler.choose_tokens

    def sharper(logits, uniform, decoding):
        return choose(logits * 3, uniform, decoding)

    monkeypatch.setattr(local_sampler, "choose_tokens", sharper)
    with pytest.raises(UserError, match="sampled by other probabilities") as told:
        grpo_trainer.train(source(tiny_model), grpo(max_steps=3), tmp_path, lambda: task())
    assert told.value.exit_code == DIVERGED


def test_the_advantage_is_the_distance_from_the_mean_of_the_group_in_its_standard_deviations(
    tiny_model, tmp_path, monkeypatch
):
    """And the reward is the weighted sum of the parts, penalties included."""
    settings = grpo(seed=3)
    loaded = load(source(tiny_model), loading_of(grpo()), trainable=True)
    trainer = grpo_trainer.make_trainer(
        loaded, settings, tmp_path, task(), grpo_trainer.schedule(settings, 5)
    )
    first_epoch = [int(prompt) for prompt in trainer.train_dataset["prompt"]][:5]
    assert first_epoch == grpo_trainer.prompt_order(5, 5, 3)
    batch = [trainer.train_dataset[index] for index in (0, 0, 0, 0, 1, 1, 1, 1)]
    trainer.model.train()
    made_of = trainer._generate_and_score_completions(batch)
    totals = []
    for ids, mask in zip(made_of["completion_ids"], made_of["completion_mask"], strict=True):
        answer = ids[mask == 1].tolist()
        parts = verdict(local_sampler.make_sample(loaded.tokenizer, answer, {2}, (), (0, 0)))
        totals.append(sum(WEIGHTS[name] * value for name, value in parts.items()))
    groups = torch.tensor(totals).view(2, 4)
    expected = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)
    assert torch.allclose(made_of["advantages"], expected.flatten(), atol=1e-3)


def test_an_answer_whose_reward_failed_moves_nothing(tiny_model, tmp_path):
    loaded = load(source(tiny_model), loading_of(grpo()), trainable=True)

    def judge(answers):
        return [None if place == 2 else verdict(answer) for place, answer in enumerate(answers)]

    trainer = grpo_trainer.make_trainer(
        loaded, grpo(), tmp_path, task(judge=judge), grpo_trainer.schedule(grpo(), 5)
    )
    trainer.model.train()
    # a dict each, as TRL has them: it writes the rewards into it
    inputs = [dict(trainer.train_dataset[0]) for _ in range(4)]
    advantages = trainer._generate_and_score_completions(inputs)["advantages"]
    assert advantages[2] == 0 and advantages.isfinite().all()
    assert advantages.count_nonzero() == 3
