"""sft on Unsloth's CUDA path, simulated and not run on a GPU."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.simulated_card import CARDS
from support.simulated_cuda import simulated
from support.trainers import sft, short_rows, source

from agentlite.engine import training_log

pytestmark = pytest.mark.torch

SHORT = {
    "max_steps": 2,
    "batch_size": 2,
    "gradient_accumulation": 1,
    "warmup_ratio": 0.0,
    "lora_dropout": 0.0,  # its random numbers would differ
}


def train(model: str, folder: str) -> dict[str, object]:
    """Two steps, and what was patched for them."""
    import trl
    from unsloth.kernels import fast_lora
    from unsloth.models import llama

    from agentlite.config.gpu_profiles import card
    from agentlite.engine import sft as sft_trainer

    calls: Counter[str] = Counter()

    def counted(module: object, name: str) -> None:
        plain = getattr(module, name)

        def call(*rest: object, **named: object) -> object:
            calls[name] += 1
            return plain(*rest, **named)

        setattr(module, name, call)

    counted(fast_lora, "matmul_lora")
    counted(llama, "fast_rms_layernorm")
    batches: list[dict[str, list[int]]] = []
    base = next(base for base in trl.SFTTrainer.__mro__ if "compute_loss" in vars(base))
    compute_loss = base.compute_loss

    def looked(self: Any, model: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
        batches.append({name: list(tensor.shape) for name, tensor in inputs.items()})
        return compute_loss(self, model, inputs, *rest, **named)

    base.compute_loss = looked
    figures = sft_trainer.train(source(Path(model)), sft(**SHORT), Path(folder), short_rows(), [])
    rows = training_log.logged(Path(folder))
    return {
        "card": card(),
        "calls": calls,
        "figures": figures,
        "rows": rows,
        "batches": batches,
    }


@pytest.fixture(scope="module")
def run(tiny_model, tmp_path_factory):
    return simulated(train, tiny_model, tmp_path_factory.mktemp("run"), card="rtx3060")


def test_a_simulated_card_is_what_the_package_finds(run):
    assert run["card"][:2] == ["NVIDIA GeForce RTX 3060", CARDS["rtx3060"].gib]


def test_unsloths_kernels_train_an_adapter(run):
    assert run["figures"]["steps"] == 2
    assert run["calls"]["matmul_lora"] and run["calls"]["fast_rms_layernorm"]


def test_batches_have_no_padding(run):
    """Two rows are one sequence; their lengths keep them apart."""
    for batch in run["batches"]:
        assert batch["input_ids"][0] == 1 and batch["packed_seq_lengths"] == [2]
        assert "attention_mask" not in batch


def test_losses_and_gradients_are_those_of_a_run_on_the_cpu(run, tiny_model, tmp_path):
    """The kernels run in bfloat16, so they agree to its precision."""
    from agentlite.engine import sft as sft_trainer

    sft_trainer.train(source(tiny_model), sft(**SHORT), tmp_path, short_rows(), [])
    for expected, row in zip(training_log.logged(tmp_path), run["rows"], strict=True):
        assert row["loss"] == pytest.approx(expected["loss"], abs=0.01), row
        assert row["grad_norm"] == pytest.approx(expected["grad_norm"], rel=0.05), row
