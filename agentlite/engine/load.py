"""A model's source -> the model in memory with its adapter, and its tokenizer."""

import contextlib
import gc
import io
import json
import os
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.config.settings import (
    Attention,
    Engine,
    EvalSettings,
    PairsSettings,
    RolloutSettings,
    TrainerSettings,
)
from agentlite.config.this_machine import has_driver, has_gpu
from agentlite.core import console
from agentlite.core.errors import MODEL, OUT_OF_MEMORY, UserError
from agentlite.core.row_files import disk_errors
from agentlite.engine import load_dtype, load_libraries, on_gpu, peft, torch, transformers, unsloth
from agentlite.workspace import hub
from agentlite.workspace.input_files import (
    EMBEDDED,
    PAD_ID,
    TURN_END_ID,
    embedded_file,
    embedded_tokenizer,
)
from agentlite.workspace.lookup import Source

QUANTIZED_LAYERS = {"Linear4bit", "Linear8bitLt"}  # the layers of bitsandbytes
DOCTOR_HINT = "`agentlite doctor` says what is found, and what to do."
# of CUDA, of cuBLAS and cuDNN, and of torch on a CPU
OUT_OF_MEMORY_WORDS = ("out of memory", "ALLOC_FAILED", "can't allocate memory")


class Loaded(NamedTuple):
    """`training_bytes`: of a GPU, which the training of the model keeps while it samples."""

    model: Any
    tokenizer: Any
    training_bytes: float = 0.0


class Loading(NamedTuple):
    """How a model is put into memory."""

    engine: Engine
    max_length: int
    load_in_4bit: bool = False
    load_in_8bit: bool = False
    attention: Attention = "auto"
    full: bool = False
    sharded: bool = False  # by DeepSpeed, which moves it to where it belongs
    # of a vLLM engine in this process, on the weights of the trained model: the share of the card
    # that is its own, weights included, and the rank of the largest adapter that it is handed
    vllm_share: float = 0.0
    vllm_rank: int = 0

    @property
    def quantized(self) -> bool:
        return self.load_in_4bit or self.load_in_8bit


def loading_of(
    settings: TrainerSettings | PairsSettings | RolloutSettings | EvalSettings,
) -> Loading:
    """How the settings of a stage say that its model is loaded."""
    loading = Loading(
        engine=settings.engine,
        max_length=settings.max_length,
        load_in_4bit=settings.load_in_4bit,
        load_in_8bit=settings.load_in_8bit,
        attention=settings.attn_implementation,
    )
    if isinstance(settings, TrainerSettings):
        return loading._replace(full=settings.full, sharded=bool(settings.deepspeed))
    return loading


def refuse_unusable(loading: Loading, may_see_gpu: bool | None = None) -> None:
    """Raises UserError 2. `may_see_gpu`: what torch says; None before it is imported, which takes
    seconds: then as long as there may be a GPU, nothing is refused for want of one.

    bitsandbytes has a backend for the CPU, and it would be slow; a run there with a dev set would
    also go on otherwise after a kill, since weights are repacked for evaluation.
    """
    if loading.attention != "auto" and loading.engine != "hf":
        raise UserError(
            f"{loading.attention} is for the engine hf: Unsloth chooses its own.",
            "Add --engine hf, or leave it out.",
            location="attn_implementation",
        )
    if may_see_gpu is None:
        may_see_gpu = has_gpu() or has_driver()
    if loading.quantized and not may_see_gpu:
        raise UserError(
            "4-bit and 8-bit weights need a CUDA GPU, and torch sees none.",
            f"To train on the CPU, leave load_in_4bit and load_in_8bit off. {DOCTOR_HINT}",
            location="load_in_4bit",
        )


def prepare_libraries(loading: Loading) -> None:
    """Imports the libraries, unless it is clear before that they could not do it. Raises UserError
    2 or 5.
    """
    refuse_unusable(loading)
    load_libraries(loading.engine)
    refuse_unusable(loading, on_gpu())
    if has_gpu() and not on_gpu():
        console.notice(f"torch does not see the GPU, and the CPU is used. {DOCTOR_HINT}")


def weights_folder(base: str, in_4bit: bool = False) -> Path:
    """The folder that a whole model is loaded from: a name would be loaded at its newest commit,
    and by Unsloth from another repository. `in_4bit`: see hub. Raises UserError 5, 8 or 74.
    """
    if base in EMBEDDED:
        return _embedded_weights(base)
    return Path(base) if Path(base).is_dir() else hub.model_snapshot(base, in_4bit)


def _refuse_not_finite(model: Any, folder: Path) -> None:
    """Raises UserError 5 for weights that hold a NaN or an infinity: then their sum is one too, and
    a sum needs no memory.
    """
    for name, weights in model.named_parameters():
        if weights.is_floating_point() and not weights.sum(dtype=torch.float32).isfinite():
            raise UserError(
                f"the weights are damaged: {name} holds what is not a number (NaN or infinite).",
                "Fetch the model again.",
                location=str(folder),
                exit_code=MODEL,
            )


def _embedded_weights(alias: str) -> Path:
    """The folder of an embedded model, whose GGUF file is converted to safetensors once. They are
    renamed into place last: their presence means that the folder is whole.
    """
    folder, gguf_file = embedded_tokenizer(alias), embedded_file(alias)
    if (folder / "model.safetensors").exists():
        return folder
    console.notice(f"{alias}: converting {gguf_file.name}, once (about half a minute)")
    with contextlib.redirect_stderr(io.StringIO()):  # tqdm's bar, which heeds no setting
        model = transformers.AutoModelForCausalLM.from_pretrained(
            gguf_file.parent, gguf_file=gguf_file.name, dtype=torch.float32
        )
    del model.config.quantization_config  # the saved weights are plain
    model.hf_quantizer = None
    for config in (model.config, model.generation_config):
        config.bos_token_id, config.eos_token_id, config.pad_token_id = None, TURN_END_ID, PAD_ID
    with disk_errors(folder), tempfile.TemporaryDirectory(dir=folder) as scratch:
        model.save_pretrained(scratch)
        config_file = Path(scratch) / "config.json"
        saved_config = json.loads(config_file.read_bytes())
        saved_config.pop("_model_name_or_path", None)
        config_file.write_text(json.dumps(saved_config, indent=2), encoding="utf-8")
        for name in ("config.json", "generation_config.json", "model.safetensors"):
            os.replace(Path(scratch) / name, folder / name)
    return folder


def load(source: Source, loading: Loading, *, trainable: bool) -> Loaded:
    """The base model, with the adapter of `source` if it has one. Raises UserError 2, 5, 7 or 8."""
    prepare_libraries(loading)
    if load_for_inference.cache_info().currsize:  # two models may be more than the memory holds
        load_for_inference.cache_clear()
        free_memory()
    with console.waiting(f"loading {source.name}"):
        folder = weights_folder(source.base, loading.load_in_4bit)
        try:
            read = _read_by_unsloth if loading.engine == "unsloth" else _read_by_transformers
            model, tokenizer = read(folder, loading)
            _refuse_not_finite(model, folder)
            model = _adapt(model, source, folder, loading, trainable)
        except Exception as error:
            raise loading_error(error, source.name, loading.quantized) from error
    tokenizer.padding_side = "left"
    rows = model.config.get_text_config().vocab_size
    if tokenizer.pad_token_id is None or tokenizer.pad_token_id >= rows:
        tokenizer.pad_token = tokenizer.eos_token
    return Loaded(model, tokenizer)


def _adapt(model: Any, source: Source, folder: Path, loading: Loading, trainable: bool) -> Any:
    """A base model made ready, with its adapter."""
    # where the GPU's memory is short, Unsloth's loader leaves layers on the CPU without a word, and
    # its kernels fail on them later
    devices = {str(device) for device in getattr(model, "hf_device_map", {}).values()}
    if on_gpu() and not devices.isdisjoint(("cpu", "disk")):
        raise RuntimeError("out of memory")
    # Of generation_config.json the special tokens alone stay. Its penalties would apply wherever
    # `generate` decodes (eval, chat, serve) and not in training: Qwen2.5's 1.1 on repetition makes
    # a name that stands in the prompt less likely in the call.
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    ids = {name: getattr(model.generation_config, name) for name in names}
    model.generation_config = transformers.GenerationConfig(**ids)
    if trainable and loading.quantized and loading.engine == "hf":
        model = peft.prepare_model_for_kbit_training(model)
    if source.adapter:
        model = peft.PeftModel.from_pretrained(model, str(source.adapter), is_trainable=trainable)
        # at every save PEFT compares with the configuration of the base: the one in the folder
        model.peft_config["default"].base_model_name_or_path = str(folder)
        if trainable and loading.engine == "unsloth" and on_gpu():
            model = _patch_by_unsloth(model)
    return model


@lru_cache(maxsize=1)
def load_for_inference(source: Source, loading: Loading) -> Loaded:
    """Kept until another model is loaded, so that several rounds of answers load it once.

    In float32 the adapter is folded into the weights: the same answers up to rounding, in two
    thirds of the time. Not where it is on the embeddings and the head is the same matrix: folded
    in, it would change both.
    """
    loaded = load(source, loading, trainable=False)
    model = loaded.model
    # Unsloth's models have a switch of their own, which also turns the key-value cache on
    getattr(model, "for_inference", model.eval)()
    model.config.use_cache = True
    if hasattr(model, "merge_adapter") and model.dtype == torch.float32:
        adapted = {name for config in model.peft_config.values() for name in config.target_modules}
        is_tied = model.config.get_text_config().tie_word_embeddings
        if not is_tied or adapted.isdisjoint({"embed_tokens", "lm_head", "wte"}):
            model.merge_adapter()
    return loaded


def free_memory() -> None:
    """Gives back what nothing holds any more: models and trainers hold each other."""
    gc.collect()
    if on_gpu():
        torch.cuda.empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """As torch says it, or a library below it."""
    text = str(error)
    if isinstance(error, ValueError):  # of bitsandbytes' loader in transformers, and of Unsloth's
        return "dispatched on the CPU or the disk" in text or "fit in GPU memory" in text
    return type(error).__name__ == "OutOfMemoryError" or (
        isinstance(error, RuntimeError) and any(words in text for words in OUT_OF_MEMORY_WORDS)
    )


def too_large_error(subject: str, fix: str, location: str = "") -> UserError:
    """The error where a row, a prompt or a model alone is too large. `fix`: what helps on a GPU."""
    memory = "the GPU's memory"
    if not on_gpu():
        memory = "this machine's memory"
        fix = "Lower --max-length, choose a smaller model, or end other programs."
    return UserError(
        f"{subject} does not fit into {memory}.", fix, location=location, exit_code=OUT_OF_MEMORY
    )


@console.hide_stdout()
def _read_by_unsloth(folder: Path, loading: Loading) -> tuple[Any, Any]:
    vllm_arguments: dict[str, object] = {}
    if loading.vllm_share:
        # Unsloth takes a share of the free memory, and hands vLLM what that is of the whole card
        free, total = torch.cuda.mem_get_info()
        share = min(1.0, loading.vllm_share * total / free)
        vllm_arguments = {"gpu_memory_utilization": share, "max_lora_rank": loading.vllm_rank}
    model, tokenizer = unsloth.FastLanguageModel.from_pretrained(
        str(folder),
        max_seq_length=loading.max_length,
        dtype=load_dtype(),
        load_in_4bit=loading.load_in_4bit,
        load_in_8bit=loading.load_in_8bit,
        full_finetuning=loading.full,
        use_gradient_checkpointing=unsloth_checkpointing(),
        trust_remote_code=False,
        use_safetensors=True,
        use_exact_model_name=True,  # also where a folder is called as a model is on the hub
        fast_inference=bool(loading.vllm_share),
        **vllm_arguments,
    )
    layers = {type(module).__name__ for module in model.modules()}
    if loading.quantized and QUANTIZED_LAYERS.isdisjoint(layers):
        raise UserError(
            "bitsandbytes does not run here, so Unsloth has loaded 16 bit in place of fewer.",
            "`python -m bitsandbytes` says why; or leave load_in_4bit and load_in_8bit off.",
            location="load_in_4bit",
            exit_code=MODEL,
        )
    # where vLLM does not know an architecture, Unsloth samples by itself, with a line of output
    if loading.vllm_share and not hasattr(model, "vllm_engine"):
        raise UserError(
            "Unsloth cannot share this model's weights with vLLM.",
            "Leave --vllm out, or add --engine hf.",
            location="grpo.vllm",
            exit_code=MODEL,
        )
    if loading.vllm_share:  # where its cache is too small, Unsloth shortens the rows
        length = model.vllm_engine.llm_engine.vllm_config.model_config.max_model_len
        if length < loading.max_length:
            raise UserError(
                f"vLLM's share of the card holds rows of {length} tokens, and max_length is "
                f"{loading.max_length}.",
                "Raise vllm_gpu_memory_utilization under trl:, lower --max-length, or leave "
                "--vllm out.",
                location="grpo.vllm",
                exit_code=OUT_OF_MEMORY,
            )
    return model, tokenizer


def _read_by_transformers(folder: Path, loading: Loading) -> tuple[Any, Any]:
    options: dict[str, Any] = {}
    if loading.attention != "auto":
        options["attn_implementation"] = loading.attention
    if loading.quantized:
        options |= quantization(loading.load_in_4bit)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        str(folder),
        dtype=load_dtype(),
        device_map=None if loading.sharded else {"": 0} if on_gpu() else "cpu",
        use_safetensors=True,
        trust_remote_code=False,  # None would ask on a terminal
        **options,
    )
    return model, transformers.AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)


def quantization(in_4bit: bool, skipped_modules: list[str] | None = None) -> dict[str, Any]:
    """Linear layers in NF4 as QLoRA has them, or in 8 bit, but for the output head and
    `skipped_modules`.
    """
    config = transformers.BitsAndBytesConfig(
        load_in_4bit=in_4bit,
        load_in_8bit=not in_4bit,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=load_dtype(),
        llm_int8_skip_modules=skipped_modules,
    )
    return {"quantization_config": config}


def _patch_by_unsloth(model: Any) -> Any:
    """A model whose adapter was loaded gets what Unsloth gives a new adapter: its fused kernels and
    its gradient checkpointing. Its own loader does the same with the folder of an adapter.
    """
    checkpointing = unsloth.models._utils.apply_unsloth_gradient_checkpointing(
        unsloth_checkpointing(), model.max_seq_length, model.get_input_embeddings().weight.dtype
    )
    # Unsloth's mark of a model that its general loader has loaded: an architecture it has no
    # kernels for, or 8 bit
    if os.environ.get("UNSLOTH_USE_NEW_MODEL") == "1":
        return unsloth.models.vision.FastBaseModel.post_patch_model(model, checkpointing)
    return unsloth.FastLanguageModel.patch_peft_model(model, checkpointing)


def unsloth_checkpointing() -> str | bool:
    """Unsloth's keeps activations in host memory; on a CPU they are there already, and recomputing
    costs a third.
    """
    return "unsloth" if on_gpu() else False


def loading_error(error: Exception, name: str, quantized: bool = False) -> UserError:
    """A library's exception as an error that names the model."""
    if isinstance(error, UserError):
        return error
    if is_out_of_memory(error):
        fix = "Choose" if quantized else "Add --load-in-4bit true, choose"
        fix += " a smaller model, or end other programs on the GPU: nvidia-smi lists them."
        return too_large_error("the model", fix, name)
    problem = f"the model cannot be loaded: {' '.join(str(error).split())[:300]}"
    fix = "Fetch it again if its files are damaged; --debug shows where it failed."
    if "trust_remote_code" in str(error):
        problem = "it needs its own code, which agentlite never runs."
        fix = "Choose a model that transformers knows by itself."
    return UserError(problem, fix, location=name, exit_code=MODEL)


def weight_files(folder: Path) -> tuple[str, list[Path]]:
    """What kind of thing a checkpoint holds, adapter or model, and the files that make it:
    configuration and weights.
    """
    kind = "adapter" if (folder / "adapter_config.json").exists() else "model"
    names = {
        "adapter": ("adapter_config.json",),
        "model": ("config.json", "generation_config.json", "*.index.json"),
    }
    return kind, [path for name in (*names[kind], "*.safetensors") for path in folder.glob(name)]
