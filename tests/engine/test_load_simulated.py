"""How a model and its adapter are loaded on Unsloth's CUDA path, simulated and not run on a GPU."""

import math
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.examples import turn
from support.hub_cache import cache_model
from support.simulated_cuda import simulated
from support.trainers import sft, source

from agentlite.core.errors import UserError
from agentlite.engine.planning.memory import adapter_parameters
from agentlite.engine.planning.model_shape import read_shape

pytestmark = pytest.mark.torch

IDS = (
    "Qwen/Qwen2.5-1.5B-Instruct",
    "Qwen/Qwen3-8B",
    "meta-llama/Llama-3.1-8B-Instruct",
    "mistralai/Mistral-7B-Instruct-v0.3",
)
COMMIT = "a" * 40


def names(scratch: str) -> dict[str, Any]:
    """What Unsloth hands to transformers for each hub id and precision, and what it would take in
    place of the bare id.
    """
    import transformers
    from huggingface_hub import constants
    from unsloth.models.loader_utils import get_model_name

    from agentlite.engine import load
    from agentlite.workspace.model_source import find_model

    constants.HF_HUB_CACHE = str(Path(scratch, "hub"))
    loads: list[str] = []

    def watch(kind: Any) -> None:
        original = kind.from_pretrained.__func__

        def watched(cls: Any, model: Any, *rest: Any, **named: Any) -> Any:
            loads.append(str(model))
            if named.get("quantization_config"):
                raise RuntimeError("far enough")
            return original(cls, model, *rest, **named)

        kind.from_pretrained = classmethod(watched)

    watch(transformers.PreTrainedModel)
    watch(transformers.PreTrainedTokenizerBase)
    found: dict[str, Any] = {}
    for name in IDS:
        base = find_model(name, Path(scratch))
        for few_bits in (False, True):
            loads.clear()
            loading = load.Loading("unsloth", 512, load_in_4bit=few_bits)
            if few_bits:
                with pytest.raises(UserError, match="far enough"):
                    load.load(base, loading, trainable=False)
            else:
                load.load(base, loading, trainable=False)
            taken = get_model_name(name, load_in_4bit=few_bits)
            found[f"{name} {few_bits}"] = [sorted({*loads}), taken]
    return found


def test_the_snapshot_of_the_hub_id_is_loaded_and_no_mirror_of_unsloth(tiny_model, tmp_path):
    snapshots = {name: str(cache_model(tmp_path / "hub", name, tiny_model, COMMIT)) for name in IDS}
    found = simulated(names, tmp_path)
    for key, (loads, taken_for_the_name) in found.items():
        name = key.split()[0]
        assert loads == [snapshots[name]], key
        if key.endswith("True"):  # else this test would hold without a snapshot
            assert taken_for_the_name.startswith("unsloth/"), key


def patches(model: str, folder: str, max_length: int) -> dict[str, Any]:
    """What stands in a model with a new adapter, and in one with that adapter loaded again."""
    from agentlite.engine.adapter import adapted
    from agentlite.engine.load import load, loading_of

    settings = sft(max_length=max_length)

    def facts(peft: Any) -> dict[str, Any]:
        layers = peft.get_base_model().model.layers
        trained = [weight for weight in peft.parameters() if weight.requires_grad]
        return {
            "qkv": [layer.self_attn.apply_qkv.__name__ for layer in layers],
            "o": [layer.self_attn.apply_o.__name__ for layer in layers],
            "mlp": [layer.mlp.forward.__name__ for layer in layers],
            "checkpointing": peft._unsloth_gradient_checkpointing,
            "trained": len(trained),
            "dtypes": Counter(str(weight.dtype) for weight in trained),
        }

    base = source(Path(model))
    new = adapted(load(base, loading_of(settings), trainable=True), settings)
    found = {"new": facts(new)}
    new.save_pretrained(folder)
    again = source(Path(model), Path(folder))
    loaded = load(again, loading_of(settings), trainable=True)
    found["loaded"] = facts(adapted(loaded, settings))
    found["asked"] = sum(
        weight.requires_grad
        for weight in load(again, loading_of(settings), trainable=False).model.parameters()
    )
    return found


@pytest.mark.parametrize(("max_length", "checkpointing"), [(1024, "unsloth"), (256, True)])
def test_an_adapter_that_is_loaded_has_the_patches_of_a_new_one(
    tiny_model, tmp_path, max_length, checkpointing
):
    found = simulated(patches, tiny_model, tmp_path / "adapter", max_length)
    assert found["loaded"] == found["new"]
    assert found["loaded"] == {
        "qkv": ["apply_lora_qkv"] * 2,
        "o": ["apply_lora_o"] * 2,
        "mlp": ["apply_lora_mlp_swiglu"] * 2,
        "checkpointing": checkpointing,
        "trained": 28,
        "dtypes": {"torch.float32": 28},
    }
    assert found["asked"] == 0


def general_patches(model: str, scratch: str) -> dict[str, Any]:
    """Of an architecture that Unsloth has no kernels for: what it trains of a new adapter, and of
    that adapter loaded again.
    """
    import os

    import torch
    from transformers import GraniteConfig, GraniteForCausalLM

    from agentlite.engine.adapter import adapted
    from agentlite.engine.load import load, loading_of

    folder, settings = Path(scratch, "granite"), sft(max_length=1024)
    shape = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = GraniteConfig(vocab_size=49152, hidden_size=32, intermediate_size=64, **shape)
    GraniteForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    for file in Path(model).glob("*token*"):
        shutil.copy(file, folder)

    def facts(peft: Any) -> dict[str, Any]:
        trained = {name: weight for name, weight in peft.named_parameters() if weight.requires_grad}
        return {
            "checkpointing": peft._unsloth_gradient_checkpointing,
            "trained": sorted(trained),
            "dtypes": sorted({str(weight.dtype) for weight in trained.values()}),
        }

    new = adapted(load(source(folder), loading_of(settings), trainable=True), settings)
    found = {"new": facts(new), "general": os.environ["UNSLOTH_USE_NEW_MODEL"]}
    new.save_pretrained(f"{scratch}/adapter")
    again = load(source(folder, Path(scratch, "adapter")), loading_of(settings), trainable=True)
    return {**found, "loaded": facts(adapted(again, settings))}


def test_an_adapter_on_another_architecture_is_loaded_as_a_new_one(tiny_model, tmp_path):
    found = simulated(general_patches, tiny_model, tmp_path)
    assert found["general"] == "1"
    assert found["loaded"] == found["new"]
    assert len(found["new"]["trained"]) == 14 and found["new"]["dtypes"] == ["torch.float32"]
    assert found["new"]["checkpointing"] == "unsloth"


def trained(model: str) -> dict[str, Any]:
    """What Unsloth trains of an adapter on all linear layers, and with `all`, where nothing refuses
    it; and the refusal.
    """
    from support.trainers import trained_parameters

    from agentlite.engine.adapter import refuse_embeddings

    base = source(Path(model))
    linear, everything = (
        sft(lora_target_modules=(one,), lora_r=4) for one in ("all-linear", "all")
    )
    with pytest.raises(UserError) as error:
        refuse_embeddings("sft", everything)
    return {
        "linear": trained_parameters(base, linear),
        "all": trained_parameters(base, everything),
        "refused": str(error.value),
    }


def test_unsloth_trains_what_is_planned_and_refuses_to_train_the_embeddings_whole(tiny_model):
    found, shape = simulated(trained, tiny_model), read_shape(tiny_model / "config.json")
    assert found["linear"] == adapter_parameters(shape, 4, ("all-linear",))
    assert "sft.lora_target_modules" in found["refused"] and "--engine hf" in found["refused"]
    assert found["all"] > shape.vocab * shape.hidden  # else there would be nothing to refuse


def eight_bits(model: str, scratch: str) -> dict[str, Any]:
    """What stands in the model, and two steps of each trainer, the later ones from the adapter of
    sft; and what is said where bitsandbytes does not run.
    """
    from support.trainers import dpo, grpo, preferences, prompts, short_rows, task
    from unsloth.models import loader

    from agentlite.engine import dpo as dpo_trainer
    from agentlite.engine import grpo as grpo_trainer
    from agentlite.engine import sft as sft_trainer
    from agentlite.engine import training_log
    from agentlite.engine.adapter import adapted
    from agentlite.engine.load import load, loading_of

    base, short = source(Path(model)), {"max_steps": 2, "batch_size": 2, "load_in_8bit": True}
    found: dict[str, Any] = {}
    loader.ALLOW_BITSANDBYTES = False  # as where bitsandbytes' library does not load
    try:
        load(base, loading_of(sft(**short)), trainable=True)
    except UserError as error:
        found["refused"] = f"{error.exit_code} {error}"
    loader.ALLOW_BITSANDBYTES = True
    loaded = load(base, loading_of(sft(**short)), trainable=True)
    found["layers"] = Counter(type(module).__name__ for module in loaded.model.modules())
    peft = adapted(loaded, sft(**short))
    trained = [weight for weight in peft.parameters() if weight.requires_grad]
    found["trained"] = Counter(str(weight.dtype) for weight in trained)

    folders = {name: Path(scratch, name) for name in ("sft", "dpo", "grpo")}
    for folder in folders.values():
        folder.mkdir()
    short |= {"gradient_accumulation": 1, "save_steps": 2}
    plain = {"lora_dropout": 0.0, "warmup_ratio": 0.0}
    sft_trainer.train(base, sft(**short, **plain), folders["sft"], short_rows(), [])
    again = source(Path(model), folders["sft"] / "adapter")
    dpo_trainer.train(again, dpo(**short), folders["dpo"], preferences()[:2])
    settings = grpo(**short, group_size=2, max_new_tokens=3)
    wanted = task()._replace(prompts=prompts()[:1], stops=[()])
    wanted = wanted._replace(decoding=wanted.decoding._replace(max_new_tokens=3))
    grpo_trainer.train(again, settings, folders["grpo"], lambda loaded: wanted)
    found["rows"] = {name: training_log.logged(folder) for name, folder in folders.items()}
    return found


@turn(1, of=2)
def test_eight_bits_are_trained_on_by_every_trainer_or_refused(tiny_model, tmp_path):
    found = simulated(eight_bits, tiny_model, tmp_path)
    assert found["refused"].startswith("5 load_in_4bit") and "16 bit" in found["refused"]
    assert found["layers"]["Linear8bitLt"] == 14 and found["trained"] == {"torch.float32": 28}
    for rows in found["rows"].values():
        assert [row["step"] for row in rows] == [1, 2]
    sft, dpo, grpo = (found["rows"][name] for name in ("sft", "dpo", "grpo"))
    assert all(row["grad_norm"] > 0 for row in (*sft, *dpo))
    assert sft[1]["loss"] < sft[0]["loss"]
    assert dpo[0]["loss"] == pytest.approx(math.log(2), abs=1e-3)  # the reference is the start
    assert grpo[0]["kl"] == pytest.approx(0, abs=1e-2) and grpo[0]["sampler_gap"] < 0.1
