"""How a model is loaded and its answers end, as far as it needs no model."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support import shared_tokenizers
from support.hub_cache import cache_model, use_cache

from agentlite.config import unusable_gpu
from agentlite.config.settings import EvalSettings, PairsSettings, SftSettings
from agentlite.core.errors import MODEL, NETWORK, OUT_OF_MEMORY, UserError
from agentlite.engine import (
    load,
    load_libraries,
)
from agentlite.engine.decoding import ends_of
from agentlite.engine.load import Loading, explained, loading_of, weight_files
from agentlite.engine.merge import merge
from agentlite.workspace.model_source import Source, find_model


def test_a_model_is_loaded_as_the_settings_of_its_stage_say() -> None:
    sizes: dict[str, Any] = {"engine": "hf", "max_length": 77}
    for settings in (SftSettings, PairsSettings, EvalSettings):
        assert loading_of(settings(**sizes)) == Loading("hf", 77)
        found = loading_of(settings(**sizes, load_in_4bit=True))
        assert (found.load_in_4bit, found.load_in_8bit, found.quantized) == (True, False, True)
        found = loading_of(settings(**sizes, load_in_8bit=True))
        assert (found.load_in_4bit, found.load_in_8bit, found.quantized) == (False, True, True)
    found = loading_of(SftSettings(**sizes, full=True, deepspeed="x"))
    assert found.full and found.sharded and not found.quantized


@pytest.mark.parametrize("name", ["eager", "sdpa"])
def test_the_engine_hf_has_the_attention_that_was_set(name: Any, tiny_model: Path) -> None:
    source = Source(tiny_model.name, str(tiny_model), None, "")
    loading = Loading(engine="hf", max_length=64, attention=name)
    loaded = load.load(source, loading, trainable=False)
    assert loaded.model.config._attn_implementation == name


@pytest.mark.parametrize("bits", ["load_in_4bit", "load_in_8bit"])
@pytest.mark.parametrize(
    ("by_name", "by_file", "by_torch", "refused"),
    [
        (False, False, False, True),
        (True, True, False, True),  # a driver, but torch cannot use it
        (False, True, True, False),
        (True, True, True, False),
    ],
)
def test_few_bits_are_refused_where_no_gpu_can_be_used(
    bits: str,
    by_name: bool,
    by_file: bool,
    by_torch: bool,
    refused: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(load, "has_gpu", lambda: by_name)
    monkeypatch.setattr(load, "has_driver", lambda: by_file)
    monkeypatch.setattr(unusable_gpu, "has_driver", lambda: by_file)
    monkeypatch.setattr(unusable_gpu, "driver", lambda: "550.54.14" if by_file else None)
    monkeypatch.setattr(load, "on_gpu", lambda: by_torch)
    monkeypatch.setattr(load, "load_libraries", loaded.append)
    cuda_13 = SimpleNamespace(__version__="2.13.0+cu130", version=SimpleNamespace(cuda="13.0"))
    monkeypatch.setitem(sys.modules, "torch", cuda_13)  # type: ignore[arg-type]  # two facts of it
    monkeypatch.delitem(sys.modules, "unsloth", raising=False)  # of a test before, refused with hf
    loading = Loading("hf", 9)._replace(**{bits: True})
    if refused:
        with pytest.raises(UserError, match="need a CUDA GPU, and") as error:
            load.prepare(loading)
        assert error.value.exit_code == 2
        assert bool(loaded) == by_file  # without a driver nothing slow is imported first
        cause = "needs driver 580 or newer; this is 550.54.14" if by_file else "no NVIDIA driver"
        assert cause in error.value.problem
    else:
        load.prepare(loading)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError("CUDA out of memory"), OUT_OF_MEMORY),
        (type("OutOfMemoryError", (Exception,), {})("x"), OUT_OF_MEMORY),
        (ValueError("Some modules are dispatched on the CPU or the disk. Make"), OUT_OF_MEMORY),
        (ValueError("Unsloth: x does not fit in GPU memory (cuda:0 has 2 GB free)"), OUT_OF_MEMORY),
        (ValueError("Please pass trust_remote_code=True"), MODEL),
        (OSError("We couldn't connect to the hub"), NETWORK),
        (OSError("Cannot find it in offline mode"), NETWORK),
        (OSError("no file named model.safetensors"), MODEL),
        (ValueError("unknown model type"), MODEL),
        (KeyError("x"), MODEL),
        (RuntimeError("sizes differ"), MODEL),
        (UserError("mine.", exit_code=3), 3),
        (ZeroDivisionError(), None),
    ],
)
def test_errors_of_libraries_become_those_that_a_user_can_fix(
    error: Exception, code: int | None
) -> None:
    found = explained(error, "the-model")
    assert (found.exit_code if isinstance(found, UserError) else None) == code
    if isinstance(found, UserError) and found is not error:
        assert found.location == "the-model"
    else:
        assert found is error


@pytest.mark.parametrize("quantized", [False, True])
def test_layers_that_were_left_on_the_cpu_are_too_little_memory(
    quantized: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As accelerate places a model that is larger than the card."""
    from accelerate import infer_auto_device_map, init_empty_weights
    from transformers import AutoModelForCausalLM, LlamaConfig

    with init_empty_weights():
        model = AutoModelForCausalLM.from_config(LlamaConfig(num_hidden_layers=2, vocab_size=99))
    monkeypatch.setattr(load, "on_gpu", lambda: True)
    for room, fits in ((8 << 30, True), (1 << 30, False)):
        model.hf_device_map = infer_auto_device_map(model, {0: room, "cpu": 8 << 30})
        if fits:
            load._refuse_spilled(model, "the-model", quantized)
            continue
        with pytest.raises(UserError, match="does not fit") as found:
            load._refuse_spilled(model, "the-model", quantized)
        assert found.value.exit_code == OUT_OF_MEMORY
        assert ("--load-in-4bit" in found.value.fix) is not quantized


@pytest.mark.parametrize(
    ("kind", "files", "left_out"),
    [
        ("adapter", ["adapter_config.json", "adapter_model.safetensors"], ["config.json"]),
        (
            "model",
            [
                "config.json",
                "generation_config.json",
                "model-1-of-2.safetensors",
                "model-2-of-2.safetensors",
                "model.safetensors.index.json",
            ],
            ["tokenizer.json", "optimizer.pt", "trainer_state.json"],
        ),
    ],
)
def test_a_result_is_the_configuration_and_all_the_weights_of_a_checkpoint(
    kind: str, files: list[str], left_out: list[str], tmp_path: Path
) -> None:
    for name in [*files, *left_out]:
        (tmp_path / name).touch()
    found, paths = weight_files(tmp_path)
    assert (found, sorted(path.name for path in paths)) == (kind, sorted(files))


@pytest.mark.torch
@pytest.mark.parametrize(
    ("dtype", "tied", "targets", "folded"),
    [
        ("float32", True, {"q_proj"}, True),
        ("float32", True, {"q_proj", "lm_head"}, False),  # folded in, it would change both ends
        ("float32", True, {"embed_tokens"}, False),
        ("float32", False, {"embed_tokens", "lm_head"}, True),
        ("bfloat16", True, {"q_proj"}, False),  # the sums would be rounded
    ],
)
def test_an_adapter_is_folded_into_the_weights_where_the_answers_stay_the_same(
    dtype: str, tied: bool, targets: set[str], folded: bool
) -> None:
    import torch

    done: list[str] = []
    text = SimpleNamespace(tie_word_embeddings=tied)
    model = SimpleNamespace(
        eval=lambda: done.append("eval"),
        merge_adapter=lambda: done.append("merge"),
        dtype=getattr(torch, dtype),
        config=SimpleNamespace(use_cache=False, get_text_config=lambda: text),
        peft_config={"default": SimpleNamespace(target_modules=targets)},
    )
    load._switch_to_inference(model)
    assert done == ["eval", *(["merge"] if folded else [])] and model.config.use_cache
    model.for_inference = lambda: done.append("unsloth's")
    load._switch_to_inference(model)
    assert done.count("unsloth's") == done.count("eval") == 1


@pytest.mark.parametrize(
    ("configured", "turn_end", "expected"),
    [(2, None, {2}), (2, 7, {2, 7}), ([2, 3], 7, {2, 3, 7}), (None, 7, {7}), (0, None, {0})],
)
def test_an_answer_ends_at_the_turn_and_at_what_the_model_names(
    configured: Any, turn_end: int | None, expected: set[int]
) -> None:
    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=configured))
    assert ends_of(model, turn_end) == expected


IDS = (
    "Qwen/Qwen2.5-1.5B-Instruct",
    "Qwen/Qwen3-8B",
    "meta-llama/Llama-3.1-8B-Instruct",
    "mistralai/Mistral-7B-Instruct-v0.3",
    "unsloth/Qwen2.5-1.5B-Instruct-bnb-4bit",
)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is handed to every `from_pretrained` of transformers: the class and the name."""
    load_libraries("unsloth")
    import transformers

    found: list[tuple[str, str]] = []

    def watch(name: str) -> None:
        original = getattr(transformers, name).from_pretrained.__func__

        def watched(cls: Any, model: Any, *args: Any, **more: Any) -> Any:
            found.append((name, str(model)))
            return original(cls, model, *args, **more)

        monkeypatch.setattr(getattr(transformers, name), "from_pretrained", classmethod(watched))

    for name in ("PreTrainedModel", "PreTrainedTokenizerBase", "GenerationConfig"):
        watch(name)
    shared_tokenizers.read_alone(monkeypatch)
    return found


@pytest.mark.parametrize("engine", ["unsloth", "hf"])
@pytest.mark.parametrize("name", IDS)
def test_the_snapshot_that_the_plan_names_is_what_reaches_transformers(
    name: str,
    engine: Any,
    tiny_model: Path,
    tmp_path: Path,
    loads: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Model, tokenizer and generation settings alike, offline, with a newer commit beside it."""
    cache = use_cache(tmp_path / "hub", monkeypatch)
    snapshot = cache_model(cache, name, tiny_model, "a" * 40, newest=False)
    cache_model(cache, name, tiny_model, "b" * 40)
    source = find_model(f"{name}@{'a' * 40}", tmp_path)
    load.load(source, Loading(engine=engine, max_length=64), trainable=False)
    assert {kind for kind, _ in loads} >= {"PreTrainedModel", "PreTrainedTokenizerBase"}
    assert {location for _, location in loads} == {str(snapshot)}
    loads.clear()
    merge(source, tmp_path / "merged")
    assert {location for _, location in loads} == {str(snapshot)}
