"""Merged weights answer as the model and its adapter do, wherever the adapter sits."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from support.simulated_cuda import simulated

from agentlite.engine.load import Loading, load, quantization
from agentlite.engine.merge import merge
from agentlite.workspace.model_source import Source

pytestmark = pytest.mark.torch
IDS = torch.tensor([[11, 7, 300, 42, 5]])


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
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=0.3, generator=chance)


@pytest.mark.parametrize(
    "targets",
    [["embed_tokens"], ["lm_head"], ["embed_tokens", "lm_head"], ["q_proj"], ["q_proj", "lm_head"]],
    ids=str,
)
def test_an_adapter_on_tied_embeddings_is_merged_where_it_sits(tiny_model, tmp_path, targets):
    """Embeddings and head are one matrix in the base: an adapter on one must leave the other."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    how = Loading("hf", 64)
    model = load(Source("tiny", str(tiny_model), None, ""), how, trainable=True).model
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    tuned = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules=targets))
    make_random(tuned)
    tuned.save_pretrained(str(tmp_path / "adapter"))
    with torch.no_grad():
        expected = tuned.eval()(IDS).logits
    source = Source("tuned", str(tiny_model), tmp_path / "adapter", "")
    merge(source, tmp_path / "merged")
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype="auto")
    with torch.no_grad():
        assert torch.allclose(found.eval()(IDS).logits, expected, atol=1e-3)
    assert says_its_head_is_its_embeddings(tmp_path / "merged") == (targets == ["q_proj"])


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
