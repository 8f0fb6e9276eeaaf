"""GRPO: no divergence at the start, the advantage of the formula, every part logged, a kill changes
nothing.
"""

import importlib.util
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path
from statistics import fmean, stdev
from types import SimpleNamespace

import pytest
import torch
from support.examples import in_turn, turn
from support.kill_at import die_at, moments
from support.processes import environment, run
from support.trainers import WEIGHTS, grpo, prompts, source, task, verdict
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForCausalLM

from agentlite.config.settings import DpoSettings
from agentlite.core.errors import DIVERGED, UserError
from agentlite.engine import checkpoints, dpo, local_sampler, training_log
from agentlite.engine import grpo as grpo_trainer
from agentlite.engine.adapter import keep_reference
from agentlite.engine.grpo import AnswerReward, complaints
from agentlite.engine.load import load, loading_of
from agentlite.workspace.model_source import load_template


def followed(folder: Path) -> list[tuple[float, ...]]:
    return [(row["step"], row["loss"], row["reward"]) for row in training_log.logged(folder)]


def made(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


@pytest.fixture(scope="module")
def adapter(tiny_model, tmp_path_factory):
    """An adapter that says something else than the base model: what sft would have left."""
    folder = tmp_path_factory.mktemp("start")
    end = load_template("smollm2-135m").encode("sunny")
    rows = [dpo.Preference(prompt, end, end[::-1]) for prompt in prompts()]
    settings = DpoSettings(
        model="tiny", batch_size=5, gradient_accumulation=1, max_steps=4, learning_rate=5e-2
    )
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
            lambda loaded: task(),
        )
        first, second = (row["kl"] for row in training_log.logged(tmp_path / name))
        assert first == 0
        assert second > 0


def test_dropout_of_the_adapter_does_not_part_policy_and_reference(tiny_model, tmp_path):
    settings = grpo(max_steps=2, lora_dropout=0.5)
    grpo_trainer.train(source(tiny_model), settings, tmp_path, lambda loaded: task())
    assert training_log.logged(tmp_path)[0]["kl"] == 0


def test_a_reference_that_is_not_the_start_stops_the_run(
    tiny_model, adapter, tmp_path, monkeypatch
):

    def forget(model):
        keep_reference(model)
        for name, parameter in model.named_parameters():
            if ".ref." in name and "lora_B" in name:
                parameter.data.zero_()

    monkeypatch.setattr("agentlite.engine.adapter.keep_reference", forget)
    with pytest.raises(UserError, match="differ before the first step") as told:
        grpo_trainer.train(source(tiny_model, adapter), grpo(), tmp_path, lambda loaded: task())
    assert told.value.exit_code == 5


@pytest.mark.parametrize("engine", ["unsloth", "hf"])
def test_sampler_and_trainer_agree_on_how_likely_every_token_is(engine, tiny_model, tmp_path):
    settings = grpo(engine=engine, max_steps=6, temperature=0.7, top_p=0.9)
    grpo_trainer.train(source(tiny_model), settings, tmp_path, lambda loaded: task())
    rows = training_log.logged(tmp_path)
    measured = [row["step"] for row in rows if "sampler_gap" in row]
    assert measured == [1, 6]  # the first, and every fifth after it
    for step in measured:
        row = rows[step - 1]
        assert 0 < row["sampler_gap"] <= row["sampler_gap_p99"] <= row["sampler_gap_max"] < 1e-4


@pytest.mark.parametrize("top_p", [1.0, 0.6])
def test_the_gaps_of_a_long_answer_take_the_memory_of_64_tokens(top_p):
    """They are those that all its logits give at once."""
    length, vocabulary, temperature = 150, 7, 0.7
    logits = torch.randn(length + 1, vocabulary, generator=torch.Generator().manual_seed(0))
    ids = [index % vocabulary for index in range(length)]
    most = 0

    class Watching(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            nonlocal most
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor) and result.dtype == torch.float32:
                most = max(most, result.numel() // vocabulary)
            return result

    class Model:
        device = "cpu"

        def __call__(self, **asked):
            assert asked["logits_to_keep"] == length + 1
            return SimpleNamespace(logits=logits.bfloat16()[None])

    row = grpo_trainer.LearnedRow([1, 2], ids, [1] * length, [-1.0] * length, AnswerReward({}))
    decoding = task().decoding._replace(temperature=temperature)
    with Watching():
        found = grpo_trainer.sampler_gaps(Model(), [row], task()._replace(decoding=decoding), top_p)

    expected = []
    for of_token, drawn in zip(logits.bfloat16().float()[:-1] / temperature, ids, strict=True):
        likely = of_token.softmax(-1)
        order = likely.sort(descending=True).values
        kept = order[order.cumsum(-1) - order < top_p].sum()
        expected.append(abs(-1.0 - (likely[drawn] / kept).log().item()))
    assert found == pytest.approx(sorted(expected), abs=1e-5)
    assert most == 64


@pytest.mark.parametrize("engine", ["unsloth", "hf"])
@pytest.mark.parametrize("temperature", in_turn(2, [1.0, 0.7]))
def test_surprisal_estimates_the_entropy_that_the_trainer_measures(
    engine, temperature, sharp_model, tmp_path
):
    """The entropy is TRL's, of the same logits; the surprisal is of one token drawn from each."""
    settings = grpo(
        engine=engine,
        max_steps=3,
        gradient_accumulation=16,
        save_steps=3,
        learning_rate=0.0,
        temperature=temperature,
    )
    drawn: list[list[float]] = []

    def judge(answers):
        drawn.append([-one for answer in answers for one in answer.sample.log_probabilities])
        return [verdict(answer) for answer in answers]

    decoding = task().decoding._replace(temperature=temperature)
    wanted = task(judge)._replace(decoding=decoding)
    grpo_trainer.train(source(sharp_model), settings, tmp_path, lambda loaded: wanted)
    rows = training_log.logged(tmp_path)
    assert [row["surprisal"] for row in rows] == pytest.approx([fmean(step) for step in drawn])
    surprisal, entropy = (fmean(row[name] for row in rows) for name in ("surprisal", "entropy"))
    tokens = [one for step in drawn for one in step]
    error = stdev(tokens) / len(tokens) ** 0.5
    assert 1 < entropy < 10 and error < 0.1 * entropy  # neither certain nor without preference
    assert abs(surprisal - entropy) < 3 * error


def test_a_sampler_with_other_probabilities_than_the_trainers_stops_the_run(
    tiny_model, tmp_path, monkeypatch
):
    """As one whose kernels, masks or positions are wrong: here it draws at another temperature."""
    choose = local_sampler.choose_tokens

    def sharper(logits, uniform, decoding):
        return choose(logits * 3, uniform, decoding)

    monkeypatch.setattr(local_sampler, "choose_tokens", sharper)
    with pytest.raises(UserError, match="sampled by other probabilities") as told:
        grpo_trainer.train(
            source(tiny_model), grpo(max_steps=3), tmp_path, lambda loaded: task()._replace(halt=[])
        )
    assert told.value.exit_code == DIVERGED


@pytest.mark.parametrize(("trl", "stops"), [({}, True), ({"bf16": True}, False)])
def test_a_trainer_in_16_bit_may_round_where_the_sampler_does_not(
    trl, stops, tiny_model, tmp_path, monkeypatch
):
    monkeypatch.setattr(grpo_trainer, "sampler_gaps", lambda *_: [0.02])

    def train():
        settings = grpo(max_steps=2, trl=trl)
        grpo_trainer.train(
            source(tiny_model), settings, tmp_path, lambda loaded: task()._replace(halt=[])
        )

    if stops:
        with pytest.raises(UserError, match="sampled by other probabilities"):
            train()
    else:
        train()
        assert training_log.logged(tmp_path)[0]["sampler_gap"] == pytest.approx(0.02)


def test_what_vllm_drew_is_weighed_token_by_token():
    """TRL's defaults would leave a long answer out for one token."""
    settings = grpo(vllm=True, max_length=96)
    asked = grpo_trainer._vllm(settings)
    assert asked["vllm_importance_sampling_correction"] is True
    assert asked["vllm_importance_sampling_mode"] == "token_truncate"
    assert asked["vllm_importance_sampling_clip_max"] == 2.0
    assert asked["vllm_max_model_length"] == 96


def test_the_advantage_is_the_distance_from_the_mean_of_the_group_in_its_standard_deviations(
    tiny_model, tmp_path, monkeypatch
):
    """And the reward is the weighted sum of the parts, penalties included."""
    loaded = load(source(tiny_model), loading_of(grpo()), trainable=True)
    trainer = grpo_trainer.make_trainer(
        loaded, grpo(), tmp_path, task(), grpo_trainer.schedule(grpo(), 5)
    )
    batch = [trainer.train_dataset[index] for index in (0, 0, 0, 0, 1, 1, 1, 1)]
    trainer.model.train()
    made_of = trainer._generate_and_score_completions(batch)
    totals = []
    for ids, mask in zip(made_of["completion_ids"], made_of["completion_mask"], strict=True):
        drawn = local_sampler.read(loaded.tokenizer, ids[mask == 1].tolist(), {2}, (), (0, 0))
        parts = verdict(grpo_trainer.SampledAnswer(0, 0, 0, drawn)).parts
        totals.append(sum(WEIGHTS[name] * value for name, value in parts.items()))
    groups = torch.tensor(totals).view(2, 4)
    expected = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)
    assert torch.allclose(made_of["advantages"], expected.flatten(), atol=1e-3)


def test_every_part_is_logged_by_name_and_their_weighted_sum_is_the_reward(tiny_model, tmp_path):
    grpo_trainer.train(source(tiny_model), grpo(max_steps=3), tmp_path, lambda loaded: task())
    for row in training_log.logged(tmp_path):
        assert row["reward"] == pytest.approx(
            sum(WEIGHTS[name] * row[f"reward/{name}"] for name in WEIGHTS), abs=1e-5
        )


@pytest.fixture(scope="module")
def sharp_model(tiny_model, tmp_path_factory):
    """The tiny model with a preference of its own: all but equally likely tokens cannot be taught
    in a few steps.
    """
    folder = tmp_path_factory.mktemp("sharp") / "model"
    shutil.copytree(tiny_model, folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.model.norm.weight.mul_(20)
    model.save_pretrained(folder)
    return folder


def test_what_earns_more_is_said_more_often(sharp_model, tmp_path):
    """The run ends when that is learned: at which step differs from one kind of processor to
    another.
    """
    settings = grpo(
        max_steps=60,
        gradient_accumulation=8,
        learning_rate=3e-3,
        beta=0.0,
        save_steps=60,
        lr_scheduler="constant",
    )
    halt: list[Exception] = []
    even: list[float] = []

    def judge(answers):
        rewards = [verdict(answer) for answer in answers]
        even.append(fmean(reward.parts["even"] for reward in rewards))
        if fmean(even[-4:]) > 0.8:
            halt.append(UserError("learned."))
        return rewards

    with pytest.raises(UserError, match="learned"):
        grpo_trainer.train(source(sharp_model), settings, tmp_path, lambda _: task(judge, halt))
    assert fmean(even[:4]) < 0.6


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"loss_type": "gspo"}, ("grpo", "sequence", "group", "sum_then_normalize")),
        ({"loss_type": "luspo"}, ("luspo", "sequence", "group", "sum_then_normalize")),
        ({"loss_type": "vespo"}, ("vespo", "token", "group", "sum_then_normalize")),
        ({"scale_rewards": "component"}, ("dapo", "token", "group", "normalize_then_sum")),
        ({"scale_rewards": "none"}, ("dapo", "token", "none", "sum_then_normalize")),
    ],
    ids=str,
)
def test_a_loss_by_name_is_the_configuration_that_trl_documents_for_it(
    settings, expected, tmp_path
):
    chosen = grpo(**settings)
    grpo_trainer.check(chosen)
    found = grpo_trainer.arguments(chosen, tmp_path, task(), grpo_trainer.schedule(chosen, 5))
    assert expected == (
        found.loss_type,
        found.importance_sampling_level,
        found.scale_rewards,
        found.multi_objective_aggregation,
    )


@pytest.mark.parametrize(
    ("settings", "clip"),
    [
        ({"loss_type": "cispo"}, 5.0),
        ({"loss_type": "cispo", "trl": {"epsilon_high": 3.0}}, 3.0),
        ({"loss_type": "dapo"}, 0.2),
    ],
    ids=str,
)
def test_cispo_does_not_scale_down_a_ratio_of_1(settings, clip, tiny_model, tmp_path):
    loaded = load(source(tiny_model), loading_of(grpo()), trainable=True)
    chosen = grpo(**settings)
    micro = grpo_trainer.schedule(chosen, len(prompts()))
    trainer = grpo_trainer.make_trainer(loaded, chosen, tmp_path, task(), micro)
    assert trainer.epsilon_high == clip


def test_an_epoch_takes_every_prompt_once_with_a_whole_group(tiny_model, tmp_path):
    seen: list[list[int]] = []

    def judge(answers):
        seen.append([answer.prompt for answer in answers])
        assert [answer.batch_index for answer in answers] == list(range(len(answers)))
        return [verdict(answer) for answer in answers]

    grpo_trainer.train(source(tiny_model), grpo(max_steps=5), tmp_path, lambda loaded: task(judge))
    assert all(len(step) == 8 and set(Counter(step).values()) == {4} for step in seen)
    assert Counter(prompt for step in seen for prompt in step) == Counter(
        dict.fromkeys(range(5), 8)
    )


def test_an_answer_whose_reward_failed_moves_nothing(tiny_model, tmp_path):
    loaded = load(source(tiny_model), loading_of(grpo()), trainable=True)

    def judge(answers):
        return [
            AnswerReward(None) if place == 2 else verdict(answer)
            for place, answer in enumerate(answers)
        ]

    trainer = grpo_trainer.make_trainer(
        loaded, grpo(), tmp_path, task(judge), grpo_trainer.schedule(grpo(), 5)
    )
    trainer.model.train()
    # a dict each, as TRL has them: it writes the rewards into it
    inputs = [dict(trainer.train_dataset[0]) for _ in range(4)]
    advantages = trainer._generate_and_score_completions(inputs)["advantages"]
    assert advantages[2] == 0 and advantages.isfinite().all()
    assert advantages.count_nonzero() == 3


def test_a_halt_ends_the_run_with_the_step_saved(tiny_model, tmp_path):
    halt: list[Exception] = []

    def judge(answers):
        if answers[0].trained == 2:
            halt.append(UserError("too many rewards failed."))
        return [verdict(answer) for answer in answers]

    with pytest.raises(UserError, match="too many"):
        grpo_trainer.train(
            source(tiny_model), grpo(save_steps=50), tmp_path, lambda loaded: task(judge, halt)
        )
    newest = checkpoints.newest(tmp_path)
    assert newest is not None and newest.name == "checkpoint-3"
    figures = grpo_trainer.train(
        source(tiny_model), grpo(save_steps=50), tmp_path, lambda loaded: task()
    )
    assert figures["steps"] == 6


@turn(1, of=2)
def test_a_run_killed_at_any_moment_ends_with_the_same_bits(tiny_model, adapter, tmp_path):
    whole = made(tmp_path, "whole")
    grpo_trainer.train(source(tiny_model, adapter), grpo(), whole, lambda loaded: task())
    expected = (whole / "adapter" / "adapter_model.safetensors").read_bytes()
    for moment in moments():
        folder = made(tmp_path, f"killed-{moment}")
        killed = run(
            [sys.executable, __file__, str(tiny_model), str(adapter), str(folder), moment],
            env=environment(),
        )
        assert killed.returncode == -signal.SIGKILL
        grpo_trainer.train(source(tiny_model, adapter), grpo(), folder, lambda loaded: task())
        assert followed(folder) == followed(whole)
        assert (folder / "adapter" / "adapter_model.safetensors").read_bytes() == expected


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"trl": {"num_generations": 8}}, "grpo.group_size"),
        ({"trl": {"num_iterations": 3}}, "is fixed"),
        ({"trl": {"importance_sampling_level": "sequence"}}, "grpo.loss_type"),
        ({"trl": {"multi_objective_aggregation": "normalize_then_sum"}}, "grpo.scale_rewards"),
        ({"trl": {"logging_steps": 10}}, "every step"),
        ({"vllm": True}, "vLLM is not installed"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_anything_is_loaded(
    settings, named, monkeypatch
):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "vllm" else find(name)
    )
    with pytest.raises(UserError) as told:
        grpo_trainer.check(grpo(**settings))
    assert named in str(told.value)


def test_steps_that_teach_nothing_end_the_run_and_are_counted_on_after_a_stop(tiny_model, tmp_path):
    flat = task(
        lambda answers: [AnswerReward({"even": 1.0, "long": 0.0, "timeout": 0.0}) for _ in answers]
    )

    def steps(most: int, wanted: int, code: int) -> int:
        settings = grpo(max_flat_steps=most, max_steps=8)
        if code:
            with pytest.raises(
                UserError, match=f"for {wanted} steps all answers to each prompt"
            ) as told:
                grpo_trainer.train(
                    source(tiny_model), settings, tmp_path, lambda loaded: flat._replace(halt=[])
                )
            assert told.value.exit_code == code and "--max-flat-steps 0" in told.value.fix
        else:
            grpo_trainer.train(
                source(tiny_model), settings, tmp_path, lambda loaded: flat._replace(halt=[])
            )
        return len(training_log.logged(tmp_path))

    assert steps(2, 2, DIVERGED) == 3  # the step under way is finished, and saved
    assert steps(5, 5, DIVERGED) == 6  # three of them were before
    assert steps(0, 0, 0) == 8


def test_one_group_that_differs_begins_the_count_anew(tiny_model, tmp_path):
    def judge(answers):
        differing = answers[0].trained % 3 == 1
        return [
            AnswerReward({"even": float(differing and n == 0), "long": 0.0, "timeout": 0.0})
            for n in range(len(answers))
        ]

    figures = grpo_trainer.train(
        source(tiny_model), grpo(max_flat_steps=3), tmp_path, lambda loaded: task(judge)
    )
    assert figures["steps"] == 6 and [row["flat"] for row in training_log.logged(tmp_path)] == [
        1,
        0.5,
        1,
        1,
        0.5,
        1,
    ]


def test_what_teaches_nothing_is_told_in_plain_words():
    well = {"flat": 0.25, "reward/timeout": 0.1, "kl": 0.02}
    assert complaints([well, well]) == []
    flat = complaints([well | {"flat": 1.0}, well | {"flat": 0.64}])
    assert flat == [
        "in 82% of groups all candidates score the same: raise temperature or group size, or leave "
        "such "
        "prompts out (--skip-solved)"
    ]
    assert complaints([well | {"reward/timeout": 1.0}])[0].startswith("every completion is cut off")
    assert complaints([well | {"reward/timeout": 0.6}])[0].startswith(
        "60% of completions are cut off"
    )
    assert "KL" in complaints([well | {"kl": 3.0}])[0]


def _train_and_die(model: str, adapter: str, folder: str, moment: str) -> None:
    die_at(moment)
    grpo_trainer.train(
        source(Path(model), Path(adapter)), grpo(), Path(folder), lambda loaded: task()
    )


if __name__ == "__main__":
    _train_and_die(*sys.argv[1:])
