"""How a model is loaded and its answers end, as far as it needs no model."""

import json
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
    GREETERS,
    GREETINGS,
    checkpoints,
    load,
    load_dtype,
    load_libraries,
    local_sampler,
)
from agentlite.engine.decoding import Decoding, ends_of, until_stop, window
from agentlite.engine.load import Loading, explained, loading_of, weight_files
from agentlite.engine.local_sampler import SampleRequest
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


@pytest.mark.torch
def test_unsloth_greets_nobody_between_our_lines_and_its_warnings_are_heard(
    capsys: pytest.CaptureFixture[str],
) -> None:
    load_libraries("unsloth")
    packages = Path(str(sys.modules["unsloth"].__file__)).parents[1]
    files = [packages / f"{name.replace('.', '/')}.py" for name in GREETERS]
    texts = "".join(file.read_text(encoding="utf-8") for file in files)
    assert [line for line in GREETINGS if line not in texts] == []
    modules = [sys.modules[name] for name in GREETERS if name in sys.modules]
    for module in modules:
        for line in (*GREETINGS, "Unsloth: Your setup does not support this"):
            vars(module)["print"](f"{line} and more")
    assert capsys.readouterr().out == "Unsloth: Your setup does not support this and more\n" * len(
        modules
    )
    assert modules


@pytest.fixture
def no_flash(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A machine without a GPU and, unless a test adds it, without flash-attn."""
    installed: set[str] = set()
    found = SimpleNamespace(find_spec=lambda name: name if name in installed else None)
    monkeypatch.setattr(load, "importlib", SimpleNamespace(util=found))
    monkeypatch.setattr(load, "has_gpu", lambda: False)
    return installed


@pytest.mark.parametrize("settings", [SftSettings, PairsSettings, EvalSettings])
def test_an_attention_that_is_not_there_is_refused_with_the_way_to_get_it(
    settings: Any, no_flash: set[str]
) -> None:
    def refusal(**given: str) -> str:
        with pytest.raises(UserError) as refused:
            load.prepare(loading_of(settings(**given)))
        assert refused.value.location == "attn_implementation"
        return f"{refused.value.problem} {refused.value.fix}"

    assert "--engine hf" in refusal(attn_implementation="sdpa")
    assert "pip install flash-attn" in refusal(attn_implementation="flash_attention_2", engine="hf")
    no_flash.add("flash_attn")
    assert "none is found" in refusal(attn_implementation="flash_attention_2", engine="hf")
    for name in ("auto", "eager", "sdpa"):
        load.check_attention(loading_of(settings(attn_implementation=name, engine="hf")))
    load.check_attention(loading_of(settings()))


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


@pytest.mark.parametrize("with_card", [True, False])
def test_a_run_on_the_cpu_beside_a_card_says_why(
    with_card: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(load, "has_gpu", lambda: with_card)
    monkeypatch.setattr(load, "on_gpu", lambda: False)
    monkeypatch.setattr(load, "load_libraries", lambda engine: None)
    monkeypatch.setattr(load, "_why_no_gpu", lambda: unusable_gpu.Unusable("the cause", "The fix."))
    load.prepare(Loading("hf", 9))
    notice = "the CPU is used, not the GPU: the cause. The fix."
    assert (notice in capsys.readouterr().err) is with_card


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


def test_the_last_model_for_answers_is_kept_and_only_while_it_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loads: list[Any] = []
    monkeypatch.setattr(load, "_kept", {})
    monkeypatch.setattr(load, "prepare", lambda loading: None)
    monkeypatch.setattr(load, "free_memory", lambda: loads.append("freed"))
    monkeypatch.setattr(load, "_switch_to_inference", lambda model: None)

    def loaded(source: Any, loading: Any, trainable: bool) -> Any:
        loads.append((source.name, trainable))
        return load.Loaded(source.name, None)

    monkeypatch.setattr(load, "_load", loaded)
    first, second = (load.Source(name, name, None, "") for name in "ab")
    for source in (first, first, second, first):
        assert load.load_for_inference(source, Loading("hf", 9)).model == source.name
    load.load_for_inference(first, Loading("hf", 10))
    again = ["freed", ("a", False)]
    assert loads == [("a", False), "freed", ("b", False), *again, *again]


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


@pytest.mark.torch
@pytest.mark.parametrize(("free", "share"), [(12, 0.3), (6, 0.6), (3, 1.0)])
def test_unsloth_is_asked_for_the_share_of_the_free_memory_that_is_planned_of_the_card(
    free: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, 12))
    found = load._fast_inference(load.SharedEngine(0.3, 16))
    assert found == {
        "fast_inference": True,
        "gpu_memory_utilization": pytest.approx(share),
        "max_lora_rank": 16,
    }


@pytest.mark.parametrize(
    ("text", "stops", "expected"),
    [
        ("a stop b stop", ("stop",), "a stop"),
        ("xx END yy STOP", ("STOP", "END"), "xx END"),
        ("none", ("stop",), ""),
        ("none", (), ""),
        ("stop", ("stop",), "stop"),
    ],
)
def test_an_answer_ends_with_the_first_stop_string_included(
    text: str, stops: tuple[str, ...], expected: str
) -> None:
    assert until_stop(text, stops) == expected


@pytest.mark.parametrize(
    ("configured", "turn_end", "expected"),
    [(2, None, {2}), (2, 7, {2, 7}), ([2, 3], 7, {2, 3, 7}), (None, 7, {7}), (0, None, {0})],
)
def test_an_answer_ends_at_the_turn_and_at_what_the_model_names(
    configured: Any, turn_end: int | None, expected: set[int]
) -> None:
    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=configured))
    assert ends_of(model, turn_end) == expected


def test_the_window_holds_the_longest_stop_string_a_character_a_token(smollm2: Any) -> None:
    assert window(()) == 4 and window(("ab", "abcdef", "abc")) >= 6 + 3
    decoding = Decoding(5, 0.5, 0.9).under(smollm2)
    assert decoding == Decoding(5, 0.5, 0.9, turn_end=smollm2.token_id("<|im_end|>"))


def test_a_batch_is_halved_by_prompts_and_a_single_prompt_by_its_samples() -> None:
    one = SampleRequest([1, 2], ("a", "b", "c"), ("x",))
    prompts = local_sampler._halves([one] * 5)
    assert [(len(half.requests), half.prompts, half.samples) for half in prompts] == [
        (2, 0, 0),
        (3, 2, 0),
    ]
    samples = local_sampler._halves([one])
    assert [(half.requests[0].seeds, half.prompts, half.samples) for half in samples] == [
        (("a",), 0, 0),
        (("b", "c"), 0, 1),
    ]
    assert all(half.requests[0][::2] == ([1, 2], ("x",)) for half in samples)
    assert local_sampler._halves([one._replace(seeds=("a",))]) == []


def test_batches_have_the_longest_prompts_first_and_no_more_than_their_size() -> None:
    assert local_sampler.plan_batches([3, 9, 3, 7, 9], 2) == [[1, 4], [3, 0], [2]]
    assert local_sampler.plan_batches([], 2) == []


class Tokenizer:
    """Each id is a letter."""

    def decode(self, ids: Any, **_: Any) -> str:
        return "".join(chr(96 + one) for one in ids)


@pytest.mark.parametrize(
    ("ids", "stops", "kept", "text", "ended"),
    [
        ([1, 2, 9], (), [1, 2, 9], "ab", "turn"),
        ([1, 2, 3], (), [1, 2, 3], "abc", "cut"),
        ([1, 2, 3, 4, 9], ("bc",), [1, 2, 3], "abc", "stop"),
        ([9], (), [9], "", "turn"),
        ([], (), [], "", "cut"),
        ([1, 9, 2], (), [1, 9, 2], "aib", "cut"),  # an end counts where it is the last
    ],
)
def test_a_sample_says_its_text_and_how_it_ended(
    ids: list[int], stops: tuple[str, ...], kept: list[int], text: str, ended: str
) -> None:
    found = local_sampler.read(Tokenizer(), ids, {9}, stops, (3, 5))
    assert found == local_sampler.Sample(3, 5, kept, text, ended)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("capability", "dtype"),
    [((7, 0), "float16"), ((7, 5), "float16"), ((8, 0), "bfloat16"), ((12, 0), "bfloat16")],
)
def test_a_card_that_only_emulates_bfloat16_computes_in_float16(
    capability: tuple[int, int], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *_: True)  # as torch has it
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: capability)
    assert load_dtype() == getattr(torch, dtype)


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


def test_unsloth_is_told_to_take_no_other_repository_than_the_one_it_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A folder may be called as a model is that Unsloth has a mirror of."""
    load_libraries("unsloth")
    import unsloth

    taken: list[Any] = []

    def from_pretrained(name: str, **more: Any) -> Any:
        taken.append((name, more["use_exact_model_name"]))
        return None, None

    monkeypatch.setattr(unsloth.FastLanguageModel, "from_pretrained", from_pretrained)
    load.ENGINES["unsloth"]("Qwen/Qwen2.5-1.5B-Instruct", Loading("unsloth", 64))
    assert taken == [("Qwen/Qwen2.5-1.5B-Instruct", True)]


def test_an_adapter_names_its_base_by_hub_id_and_commit_on_every_machine(tmp_path: Path) -> None:
    snapshot = tmp_path / "hub/models--Qwen--Qwen3-8B/snapshots" / ("a" * 40)
    config = tmp_path / "adapter_config.json"
    config.write_text(json.dumps({"base_model_name_or_path": str(snapshot)}), encoding="utf-8")
    checkpoints._order(config)
    found = json.loads(config.read_bytes())
    assert found["base_model_name_or_path"] == "Qwen/Qwen3-8B" and found["revision"] == "a" * 40
    config.write_text('{"base_model_name_or_path": "/a/folder"}', encoding="utf-8")
    checkpoints._order(config)
    found = json.loads(config.read_bytes())
    assert found["base_model_name_or_path"] == "/a/folder" and "revision" not in found
