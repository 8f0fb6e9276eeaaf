"""What the trainer sees is what was masked; its order, its resume and its choice of checkpoint are
exact.
"""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.trainers import rows, sft, source

from agentlite.core.row_files import read_rows
from agentlite.engine import load
from agentlite.engine import sft as sft_trainer
from agentlite.engine import trainer as training
from agentlite.workspace.lookup import find_model


@given(
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=30),
    seed=st.integers(0, 99),
    shape=st.tuples(st.integers(1, 9), st.integers(1, 4), st.integers(1, 3)),
)
def test_the_order_of_rows_is_whole_epochs_with_the_longest_first(lengths, seed, shape):
    plan = training.Schedule(*shape)
    order = training.row_order(lengths, plan, seed)
    assert order == training.row_order(lengths, plan, seed)
    assert len(order) == plan.rows
    counts = Counter(order)
    times = plan.rows // len(lengths)
    assert all(times <= counts[row] <= times + 1 for row in range(len(lengths)))
    assert max(lengths[row] for row in order) == max(
        lengths[row] for row in order[: plan.batch_size]
    )


@pytest.mark.parametrize("engine", ["unsloth", "hf"])
def test_the_batch_a_trainer_sees_holds_exactly_the_masked_rows(engine, tiny_model, tmp_path):
    settings = sft(engine=engine, seed=3)
    plan = sft_trainer.schedule(settings, rows())
    load.prepare_libraries(load.loading_of(settings))
    trainer = sft_trainer.make_trainer(source(tiny_model), settings, tmp_path, rows(), [], plan)
    seen: Counter[tuple[int, ...]] = Counter()
    for batch in trainer.get_train_dataloader():
        for ids, labels, mask in zip(
            batch["input_ids"], batch["labels"], batch["attention_mask"], strict=True
        ):
            length = int(mask.sum())
            assert all(label == -100 for label in labels[length:])
            seen[(*ids[:length].tolist(), *labels[:length].tolist())] += 1
    lengths = [len(row.input_ids) for row in rows()]
    order = training.row_order(lengths, training.Schedule(6, 2, 2), 3)
    assert seen == Counter((*rows()[i].input_ids, *rows()[i].labels) for i in order)
    in_order = [rows()[index].input_ids for index in order]
    assert [row["input_ids"] for row in trainer.train_dataset] == in_order


@pytest.mark.parametrize(
    ("engine", "model"),
    [
        ("unsloth", "tiny"),
        ("hf", "tiny"),
        *(
            pytest.param(engine, "smollm2-135m", marks=pytest.mark.slow)
            for engine in ["unsloth", "hf"]
        ),
    ],
)
def test_the_first_loss_is_that_of_the_trained_tokens_alone(engine, model, tiny_model, tmp_path):
    import torch

    settings = sft(engine=engine, max_steps=1)
    chosen = source(tiny_model) if model == "tiny" else find_model(model, tmp_path)
    figures = sft_trainer.train(chosen, settings, tmp_path, rows(), [])
    base = load.load(chosen, load.loading_of(settings), trainable=False).model.eval()
    order = training.row_order(
        [len(row.input_ids) for row in rows()], training.Schedule(1, 2, 2), 0
    )
    total = count = 0.0
    with torch.no_grad():
        for row in (rows()[index] for index in order):
            log_p = base(torch.tensor([row.input_ids])).logits[0].float().log_softmax(-1)
            for place, label in enumerate(row.labels[1:]):
                if label != -100:
                    total -= float(log_p[place, label])
                    count += 1
    assert figures["first_loss"] == pytest.approx(
        total / count, rel=1e-4
    )  # padded or alone: other rounding


def test_the_checkpoint_with_the_least_dev_loss_becomes_the_adapter(tiny_model, tmp_path):
    figures = sft_trainer.train(
        source(tiny_model), sft(learning_rate=0.5, max_steps=8), tmp_path, rows(), rows()[:2]
    )
    dev = {
        row["step"]: row["dev_loss"]
        for row in read_rows(tmp_path / "metrics.jsonl")
        if "dev_loss" in row
    }
    assert len(set(dev.values())) > 1
    assert figures["kept_step"] == min(dev, key=lambda step: dev[step])
    kept = (
        tmp_path
        / "checkpoints"
        / f"checkpoint-{figures['kept_step']}"
        / "adapter_model.safetensors"
    )
    assert (tmp_path / "adapter" / "adapter_model.safetensors").read_bytes() == kept.read_bytes()
