"""Merged weights answer as the model and its adapter do, wherever the adapter sits."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from support.simulated_cuda import simulated
from support.trainers import sft

from agentlite.engine.adapter import add_adapter
from agentlite.engine.load import Loading, load, load_for_inference, quantization
from agentlite.engine.merge import merge
from agentlite.workspace.lookup import Source

pytestmark = pytest.mark.torch
IDS = torch.tensor([[1, 11, 7, 300, 42, 3, 2]])


def says_its_head_is_its_embeddings(folder: Path) -> bool:
    """As config.json says, which llama.cpp and servers believe; the weights must agree with it."""
    with safe_open(folder / "model.safetensors", "pt") as weights:
        has_head = "lm_head.weight" in weights.keys()  # noqa: SIM118  (no mapping)
    tied = json.loads((folder / "config.json").read_bytes())["tie_word_embeddings"]
    assert tied != has_head
    return bool(tied)


def make_random(tuned: Any) -> None:
    chance = torch.Generator().manual_seed(3)
    for name, weight in tuned.named_parameters():
        if "lora_" in name or "trainable_tokens_delta" in name:
            torch.nn.init.normal_(weight, std=0.3, generator=chance)


@pytest.mark.parametrize(
    ("targets", "engine", "tied"),
    [
        (["embed_tokens"], "hf", True),
        (["lm_head"], "hf", True),
        (["embed_tokens", "lm_head"], "hf", True),
        (["q_proj", "lm_head"], "hf", True),
        *((["q_proj"], engine, tied) for engine in ("hf", "unsloth") for tied in (True, False)),
    ],
    ids=str,
)
def test_an_adapter_is_merged_where_it_sits(tiny_model, tmp_path, targets, engine, tied):
    """Embeddings and head may be one matrix in the base: an adapter on one must leave the other. Of
    two marks one has a row of zeros, and the other that of an unused token: both ends train them.
    """
    from transformers import AutoModelForCausalLM

    plain, base = AutoModelForCausalLM.from_pretrained(tiny_model), tmp_path / "base"
    rows = plain.get_input_embeddings().weight.data
    rows[1], rows[2] = 0, rows[8] + 1e-4
    if not tied:
        plain.config.tie_word_embeddings = False
        plain.get_output_embeddings().weight = torch.nn.Parameter(rows.clone())
    plain.save_pretrained(shutil.copytree(tiny_model, base))
    how = Loading(engine, 64)
    loaded = load(Source("tiny", str(base), None, ""), how, trainable=True)
    given = sft(engine=engine, lora_r=4, lora_target_modules=targets)
    tuned = add_adapter(loaded, given, IDS[0].tolist())
    marks = {"embed_tokens": [1, 2], "lm_head": [1, 2]} if targets == ["q_proj"] else None
    assert tuned.peft_config["default"].trainable_token_indices == marks
    make_random(tuned)
    tuned.save_pretrained(str(tmp_path / "adapter"))
    with torch.no_grad():
        expected = tuned.eval()(IDS).logits
    source = Source("tuned", str(base), tmp_path / "adapter", "")
    merge(source, tmp_path / "merged")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype="auto").eval()
    for model in (merged, load_for_inference(source, how).model):
        with torch.no_grad():
            assert torch.allclose(model(IDS).logits, expected, atol=1e-3)
    is_tied = says_its_head_is_its_embeddings(tmp_path / "merged")
    assert is_tied == (tied and targets == ["q_proj"])


def distances_to_training(base: str, engine: str, scratch: str) -> list[float]:
    """The logits of an adapter on weights in NF4, against those of its two merges."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(base, device_map="cpu", **quantization(True))
    tuned = get_peft_model(loaded, LoraConfig(r=4, target_modules=["q_proj", "down_proj"])).eval()
    for module in tuned.modules():  # its kernel for bfloat16 needs wider layers
        module.support_avx512bf16_for_cpu = False
    make_random(tuned)
    tuned.save_pretrained(f"{scratch}/adapter")
    logits = [tuned(IDS).logits]
    for rounded_by in (engine, None):
        source = Source("tuned", base, Path(scratch, "adapter"), "")
        merge(source, Path(scratch, str(rounded_by)), rounded_by)
        found = AutoModelForCausalLM.from_pretrained(Path(scratch, str(rounded_by)), dtype="auto")
        logits.append(found.eval()(IDS).logits)
    return [float((one - logits[0]).abs().max()) for one in logits[1:]]


@pytest.mark.parametrize("engine", ["hf", "unsloth"])
def test_an_adapter_trained_in_4_bits_is_merged_into_the_weights_it_saw(
    tiny_model, tmp_path, engine
):
    rounded, plain = simulated(distances_to_training, tiny_model, engine, tmp_path, card=None)
    assert rounded < 1e-5 < 1e-3 < plain
