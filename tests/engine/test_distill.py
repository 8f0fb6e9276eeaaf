"""Distillation: the answers are whose they should be, the loss is that of the formula, a kill
changes nothing.
"""

import math
import random
from pathlib import Path

import pytest
import torch
from support.trainers import distill, distill_task, dpo, preferences, source

from agentlite.engine import distill as distill_trainer
from agentlite.engine import dpo as dpo_trainer
from agentlite.engine import local_sampler, summed_loss, trainer, watch
from agentlite.engine.load import load, loading_of
from agentlite.engine.trainer import MICRO_BATCH_FILE

TEACHER, STUDENT = (0.5, 0.3, 0.2), (0.2, 0.2, 0.6)


@pytest.fixture(scope="module")
def taught(tiny_model, tmp_path_factory):
    """The folder of an adapter that says something else than the base model."""
    folder = tmp_path_factory.mktemp("teacher")
    settings = dpo(batch_size=5, max_steps=4, learning_rate=5e-2)
    dpo_trainer.train(source(tiny_model), settings, folder, preferences())
    return folder / "adapter"


def trained(
    tiny_model: Path, taught: Path | None, folder: Path, **changes: object
) -> dict[str, object]:
    folder.mkdir(exist_ok=True)
    return distill_trainer.train(
        source(tiny_model), source(tiny_model, taught), distill(**changes), folder, distill_task()
    )


def likely(loaded, row) -> object:
    """The log-probabilities before each token of the answer, (tokens, vocabulary)."""
    ids = torch.tensor([row["input_ids"]])
    with torch.no_grad():
        logits = loaded.model.eval()(ids).logits[0].double()
    return logits[row["labels"].count(-100) - 1 : -1].log_softmax(-1)


def by_hand(rows, student, teaching, beta) -> tuple[float, float, float]:
    """The loss, the share of tokens at which both hold the same token for likeliest, and of answers
    whose likeliest first token is ten thousand times less likely to the student.
    """
    own, other = (torch.cat([likely(one, row) for row in rows]) for one in (student, teaching))
    mixed = (beta * other.exp() + (1 - beta) * own.exp()).log()
    total = beta * (other.exp() * (other - mixed)).sum()
    total += (1 - beta) * (own.exp() * (own - mixed)).sum()
    agreed = (own.argmax(-1) == other.argmax(-1)).double().mean()
    starts = []
    for row in rows:
        first, of_teacher = (likely(one, row)[0].exp() for one in (student, teaching))
        starts.append(float(first[of_teacher.argmax()]) < 1e-4 * float(of_teacher.max()))
    return float(total) / len(own), float(agreed), sum(starts) / len(starts)


@pytest.mark.parametrize("engine", ["unsloth", "hf"])
def test_the_loss_is_that_of_the_formula_over_the_answers_of_whom_they_should_be(
    engine, tiny_model, taught, tmp_path, monkeypatch
):
    """In the first step the student is the base model."""
    steps = []
    make = distill_trainer.sample_answers

    def noting(*given):
        steps.append(make(*given))
        return steps[-1]

    monkeypatch.setattr(distill_trainer, "sample_answers", noting)
    monkeypatch.setattr(summed_loss, "CHUNK", 3)
    settings = {"engine": engine, "lmbda": 0.5, "beta": 0.4}
    trainer.check("distill", distill(**settings))
    trained(tiny_model, taught, tmp_path, max_steps=1, **settings)
    student, teaching = (
        load(source(tiny_model, one), loading_of(distill(engine=engine)), trainable=False)
        for one in (None, taught)
    )
    task, whose = distill_task(), []
    for place, row in enumerate(steps[0]):
        whose.append(random.Random(f"0 0 {place} whose").random() < 0.5)
        asked = row["labels"].count(-100)
        prompt = next(one for one in task.prompts if one.ids == row["input_ids"][:asked])
        request = local_sampler.SampleRequest(prompt.ids, (f"0 0 {place}",))
        sampled = local_sampler.sample(student, [request], task.decoding)[0].ids
        assert row["labels"][asked:] == (sampled if whose[-1] else prompt.recorded)
    assert True in whose and False in whose
    (found,) = watch.read_metrics(tmp_path)
    loss, agreement, starts = by_hand(steps[0], student, teaching, 0.4)
    assert found["loss"] == pytest.approx(loss, rel=1e-4)
    assert found["agreement"] == pytest.approx(agreement)
    assert found["unlikely_starts"] == pytest.approx(starts)
    assert found["sampled_share"] == sum(whose) / len(whose)


@pytest.mark.parametrize("by_itself", [False, True])
def test_a_step_is_the_same_in_smaller_micro_batches(by_itself, tiny_model, taught, tmp_path):
    """As after a micro-batch that did not fit into memory: its loss, and every figure beside it."""
    found = []
    for size in (4, 1):
        folder = tmp_path / str(size)
        folder.mkdir()
        (folder / MICRO_BATCH_FILE).write_text(f'{{"batch_size": {size}}}', encoding="utf-8")
        changes = {"max_steps": 2, "batch_size": 4, "gradient_accumulation": 1}
        trained(tiny_model, None if by_itself else taught, folder, lmbda=0.5, **changes)
        rows = watch.read_metrics(folder)
        names = ("loss", *distill_trainer.MEASURES.values())
        found.append({name: [row[name] for row in rows] for name in names})
    assert not by_itself or found[0]["agreement"] == [1.0, 1.0]
    for name, values in found[0].items():
        assert values == pytest.approx(found[1][name], rel=1e-4, abs=1e-6), name


@pytest.mark.parametrize(
    ("lmbda", "fade", "expected"),
    [
        (0.2, 0.0, [0.2, 0.2, 0.2, 0.2, 0.2]),
        (0.2, 0.8, [0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.0, 0.4, [0.0, 0.5, 1.0, 1.0, 1.0]),
    ],
)
def test_answers_of_others_fade_out(lmbda, fade, expected):
    settings = distill(lmbda=lmbda, fade=fade)
    found = [distill_trainer.sampled_share(settings, step, 5) for step in range(5)]
    assert found == pytest.approx(expected)


def logs(*rows):
    return torch.tensor(rows, dtype=torch.float64).log()


def kl(one, other):
    return sum(p * math.log(p / q) for p, q in zip(one, other, strict=True))


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_the_divergence_is_that_of_the_formula(beta):
    mixed = [beta * p + (1 - beta) * q for p, q in zip(TEACHER, STUDENT, strict=True)]
    expected = {
        0.0: kl(TEACHER, STUDENT),
        0.3: 0.3 * kl(TEACHER, mixed) + 0.7 * kl(STUDENT, mixed),
        1.0: kl(STUDENT, TEACHER),
    }[beta]
    found = distill_trainer.divergence(logs(STUDENT, TEACHER), logs(TEACHER, TEACHER), beta)
    assert found.tolist() == pytest.approx([expected, 0], abs=1e-12)
