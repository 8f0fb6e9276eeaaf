"""DPO: the reference is the start, the loss is the formula's, the ids are the pairs', a kill
changes nothing.
"""

import math
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest
import torch
from support.trainers import dpo, preferences, source

from agentlite.config.settings import PreferenceLoss
from agentlite.core.errors import UserError
from agentlite.engine import dpo as dpo_trainer
from agentlite.engine import trainer as training
from agentlite.engine import watch
from agentlite.engine.adapter import keep_reference
from agentlite.engine.dpo import Preference
from agentlite.engine.load import load, loading_of, prepare_libraries


@pytest.fixture(scope="module")
def adapter(tiny_model, tmp_path_factory):
    """One with other weights than the base's, also in rows of the embeddings, as sft leaves it."""
    folder = tmp_path_factory.mktemp("start")
    rows = {"trainable_token_indices": [1, 2]}
    dpo_trainer.train(
        source(tiny_model), dpo(max_steps=4, learning_rate=5e-2, peft=rows), folder, preferences()
    )
    return folder / "adapter"


def log_probability(model, prompt: list[int], answer: list[int]) -> float:
    with torch.no_grad():
        likely = model(torch.tensor([prompt + answer])).logits[0].double().log_softmax(-1)
    return sum(float(likely[len(prompt) + place - 1, token]) for place, token in enumerate(answer))


def ratios(tiny_model: Path, start: Path | None, end: Path) -> list[tuple[float, float]]:
    """log pi - log pi_ref of the chosen and of the rejected answer, for every pair of the second of
    two steps.
    """
    settings = loading_of(dpo())
    before, after = (
        load(source(tiny_model, one), settings, trainable=False).model.eval()
        for one in (start, end)
    )

    def ratio(prompt: list[int], answer: list[int]) -> float:
        return log_probability(after, prompt, answer) - log_probability(before, prompt, answer)

    return [
        (ratio(row.prompt, row.chosen), ratio(row.prompt, row.rejected)) for row in second_step()
    ]


def second_step() -> list[Preference]:
    order = training.row_order([row.tokens for row in preferences()], training.Schedule(2, 5, 1), 3)
    return [preferences()[index] for index in order[5:]]


def test_a_reference_that_is_not_the_start_stops_the_run(
    tiny_model, adapter, tmp_path, monkeypatch
):

    def forget(model):  # as where a library compares with the base model
        keep_reference(model)
        for name, parameter in model.named_parameters():
            if ".ref." in name and "lora_B" in name:
                parameter.data.zero_()

    monkeypatch.setattr("agentlite.engine.adapter.keep_reference", forget)
    with pytest.raises(UserError, match="differ before the first step") as told:
        dpo_trainer.train(source(tiny_model, adapter), dpo(), tmp_path, preferences())
    assert told.value.exit_code == 5


def test_the_reference_never_moves_and_is_not_stored(tiny_model, adapter, tmp_path):
    plan = training.schedule(dpo(), len(preferences()))
    prepare_libraries(loading_of(dpo()))
    trainer = dpo_trainer.make_trainer(
        source(tiny_model, adapter), dpo(), tmp_path, preferences(), plan
    )
    reference = {name: p for name, p in trainer.model.named_parameters() if ".ref." in name}
    assert reference and not any(parameter.requires_grad for parameter in reference.values())
    before = {name: parameter.clone() for name, parameter in reference.items()}
    training.train(lambda micro: trainer, tmp_path, plan)
    assert all(torch.equal(parameter, before[name]) for name, parameter in reference.items())
    assert all(
        torch.equal(parameter, trainer.model.get_parameter(name.replace(".ref.", ".default.")))
        is False
        for name, parameter in reference.items()
        if "lora_B" in name
    )
    assert not list(tmp_path.glob("**/ref"))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def softplus(x: float) -> float:
    """-log sigmoid(-x)"""
    return math.log1p(math.exp(x))


def exo(x: float, smoothing: float) -> float:
    """The divergence of (1 - smoothing, smoothing) from the policy's two shares, reversed."""
    shares = sigmoid(x), sigmoid(-x)
    return sum(p * math.log(p / q) for p, q in zip(shares, (1 - smoothing, smoothing), strict=True))


# loss -> its settings, and its formula with beta .1: of the log-ratios of the two answers
FORMULAS = {
    "sigmoid": ({}, lambda c, r: softplus(-0.1 * (c - r))),
    "beta": ({"beta": 0.5}, lambda c, r: softplus(-0.5 * (c - r))),
    "smoothed": (
        {"label_smoothing": 0.2},
        lambda c, r: 0.8 * softplus(-0.1 * (c - r)) + 0.2 * softplus(0.1 * (c - r)),
    ),
    "hinge": ({}, lambda c, r: max(0.0, 1 - 0.1 * (c - r))),
    "robust": (
        {"label_smoothing": 0.2},
        lambda c, r: (0.8 * softplus(-0.1 * (c - r)) - 0.2 * softplus(0.1 * (c - r))) / 0.6,
    ),
    "exo_pair": ({"label_smoothing": 0.01}, lambda c, r: exo(0.1 * (c - r), 0.01)),
    "nca_pair": (
        {},
        lambda c, r: softplus(-0.1 * c) + 0.5 * softplus(0.1 * c) + 0.5 * softplus(0.1 * r),
    ),
    "bco_pair": ({}, lambda c, r: softplus(-0.1 * c) + softplus(0.1 * r)),
    "sppo_hard": ({}, lambda c, r: (c - 5) ** 2 + (r + 5) ** 2),
    "apo_zero": ({}, lambda c, r: 1 - sigmoid(0.1 * c) + sigmoid(0.1 * r)),
    "apo_down": ({}, lambda c, r: sigmoid(0.1 * c) + 1 - sigmoid(0.1 * (c - r))),
    "discopop": (
        {},
        lambda c, r: (
            sigmoid(-2 * (c - r)) * softplus(-0.1 * (c - r))
            + sigmoid(2 * (c - r)) * math.exp(-0.1 * (c - r))
        ),
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_the_loss_is_that_of_the_formula(name, tiny_model, adapter, tmp_path):
    """The second of two steps: its loss by hand, from the policy of the first."""
    settings, loss = FORMULAS[name]
    named = {"loss_type": name} if name in get_args(PreferenceLoss) else {}
    chosen = dpo(batch_size=5, save_steps=1, max_steps=2, seed=3, **named, **settings)
    training.check("dpo", chosen)
    dpo_trainer.train(source(tiny_model, adapter), chosen, tmp_path, preferences())
    pairs = ratios(tiny_model, adapter, tmp_path / "checkpoints" / "checkpoint-1")
    assert max(abs(one) for pair in pairs for one in pair) > 0.1  # it has moved
    by_hand = sum(loss(*pair) for pair in pairs) / 5
    assert watch.read_metrics(tmp_path)[1]["loss"] == pytest.approx(by_hand, rel=1e-4)


def test_every_loss_has_its_formula_in_a_test():
    others = {"ipo", "sigmoid_norm", "simpo", "orpo"}
    assert {*get_args(PreferenceLoss)} == {*FORMULAS} - {"beta", "smoothed"} | others


def odds(mean: float) -> float:
    return math.exp(mean) / (1 - math.exp(mean))


@pytest.mark.parametrize("engine", ["unsloth", "hf"])
@pytest.mark.parametrize(
    ("settings", "loss"),
    [
        (
            {"loss_type": "simpo", "beta": 2.0, "gamma": 0.5},
            lambda c, r: softplus(-(2.0 * (c - r) - 0.5)),
        ),
        (
            {"loss_type": "orpo", "beta": 0.3},
            lambda c, r: 0.3 * softplus(-math.log(odds(c) / odds(r))),
        ),
    ],
    ids=["simpo", "orpo"],
)
def test_simpo_and_orpo_compare_the_mean_log_probabilities_of_a_token(
    settings, loss, engine, tiny_model, adapter, tmp_path
):
    chosen = dpo(batch_size=5, max_steps=1, sft_weight=0.5, engine=engine, **settings)
    figures = dpo_trainer.train(source(tiny_model, adapter), chosen, tmp_path, preferences())
    model = load(source(tiny_model, adapter), loading_of(dpo()), trainable=False).model.eval()
    nats = [
        [log_probability(model, row.prompt, answer) for answer in (row.chosen, row.rejected)]
        for row in preferences()
    ]
    means = [
        (c / len(row.chosen), r / len(row.rejected))
        for (c, r), row in zip(nats, preferences(), strict=True)
    ]
    sft = -sum(c for c, _ in nats) / sum(len(row.chosen) for row in preferences())
    by_hand = sum(loss(*pair) for pair in means) / 5 + 0.5 * sft
    assert figures["first_loss"] == pytest.approx(by_hand, rel=1e-4)
    row = watch.read_metrics(tmp_path)[0]
    margin = sum(c - r for c, r in means) / 5
    assert row["margin"] == pytest.approx(chosen.beta * margin, rel=1e-4)
    assert row["accuracy"] == pytest.approx(sum(c > r for c, r in means) / 5)
    sides = [chosen.beta * sum(side) / 5 for side in zip(*means, strict=True)]
    assert [row["chosen_reward"], row["rejected_reward"]] == pytest.approx(sides, rel=1e-4)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(
    "settings", [{"loss_type": "simpo"}, {"loss_type": "orpo"}, {"reference_free": True}], ids=str
)
def test_where_no_reference_is_used_none_is_in_memory(settings, full, tiny_model, tmp_path):
    chosen = dpo(**settings, full=full)
    plan = training.schedule(chosen, len(preferences()))
    prepare_libraries(loading_of(chosen))
    trainer = dpo_trainer.make_trainer(source(tiny_model), chosen, tmp_path, preferences(), plan)
    assert not chosen.in_memory(False).reference
    assert trainer.ref_model is None and not trainer.accelerator._models
    assert not [name for name, _ in trainer.model.named_parameters() if ".ref." in name]
    assert any(weight.requires_grad for weight in trainer.model.parameters())


@pytest.mark.parametrize("micro", [(5, 1), (2, 2), (1, 4)], ids=str)
def test_a_chosen_token_weighs_the_same_in_every_micro_batch(micro, tiny_model, adapter, tmp_path):
    """A likely answer of one token, and unlikely ones of many: the mean of the means of
    micro-batches is another loss.
    """
    pairs = [
        row._replace(chosen=row.rejected[: 4 * number] or row.chosen[:1])
        for number, row in enumerate(preferences()[: micro[0] * micro[1]])
    ]
    chosen = dpo(batch_size=micro[0], gradient_accumulation=micro[1], max_steps=1, sft_weight=0.5)
    figures = dpo_trainer.train(source(tiny_model, adapter), chosen, tmp_path, pairs)
    model = load(source(tiny_model, adapter), loading_of(dpo()), trainable=False).model.eval()
    nats = [-log_probability(model, row.prompt, row.chosen) for row in pairs]
    by_hand = math.log(2) + 0.5 * sum(nats) / sum(len(row.chosen) for row in pairs)
    assert figures["first_loss"] == pytest.approx(by_hand, rel=1e-4)
    if micro == (1, 4):
        alone = sum(nats[n] / len(row.chosen) for n, row in enumerate(pairs)) / len(pairs)
        assert math.log(2) + 0.5 * alone != pytest.approx(by_hand, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("ipo", lambda c, r: (c - r - 1 / (2 * 0.1)) ** 2),
        ("sigmoid_norm", lambda c, r: softplus(-0.1 * (c - r))),
    ],
)
def test_ipo_and_sigmoid_norm_compare_the_mean_log_ratios_of_a_token(
    name, loss, tiny_model, adapter, tmp_path
):
    chosen = dpo(batch_size=5, save_steps=1, max_steps=2, seed=3, loss_type=name)
    dpo_trainer.train(source(tiny_model, adapter), chosen, tmp_path, preferences())
    pairs = ratios(tiny_model, adapter, tmp_path / "checkpoints" / "checkpoint-1")
    total = sum(
        loss(c / len(row.chosen), r / len(row.rejected))
        for (c, r), row in zip(pairs, second_step(), strict=True)
    )
    assert watch.read_metrics(tmp_path)[1]["loss"] == pytest.approx(total / 5, rel=1e-4)


def test_reference_free_counts_the_reference_as_zero(tiny_model, adapter, tmp_path):
    chosen = dpo(batch_size=5, max_steps=1, reference_free=True)
    figures = dpo_trainer.train(source(tiny_model, adapter), chosen, tmp_path, preferences())
    model = load(source(tiny_model, adapter), loading_of(dpo()), trainable=False).model.eval()
    x = [
        log_probability(model, row.prompt, row.chosen)
        - log_probability(model, row.prompt, row.rejected)
        for row in preferences()
    ]
    assert figures["first_loss"] == pytest.approx(
        sum(math.log1p(math.exp(-0.1 * one)) for one in x) / 5, rel=1e-4
    )


def test_the_batch_a_trainer_sees_holds_exactly_the_ids_of_the_pairs(tiny_model, tmp_path):
    settings = dpo(max_steps=5, batch_size=1)
    plan = training.schedule(settings, len(preferences()))
    prepare_libraries(loading_of(settings))
    trainer = dpo_trainer.make_trainer(source(tiny_model), settings, tmp_path, preferences(), plan)
    seen: Counter[tuple[tuple[int, ...], tuple[int, ...]]] = Counter()
    for batch in trainer.get_train_dataloader():
        columns = (batch[name] for name in ("input_ids", "attention_mask", "completion_mask"))
        for ids, mask, answer in zip(*columns, strict=True):
            seen[(tuple(ids[mask == 1].tolist()), tuple(ids[answer == 1].tolist()))] += 1
    expected = Counter(
        (tuple(row.prompt + side), tuple(side))
        for row in preferences()
        for side in (row.chosen, row.rejected)
    )
    assert seen == expected
