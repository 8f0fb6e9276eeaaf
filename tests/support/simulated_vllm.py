"""vLLM's interface over a small Llama on the CPU: no more of it than unsloth_zoo, TRL and agentlite
use. Simulated, as vLLM cannot be installed without a GPU: names and signatures are those that their
sources call in vllm 0.31, and nothing here says how fast it is or what it takes of a card.

`install()` puts it where `import vllm` finds it; support.vllm_hook does so where a test asks.
Logits are calculated here, without transformers, from the tensors that Unsloth shares with the
trained model and from the adapter that a request names: another implementation than the trainer's.
"""

import importlib.machinery
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import torch
from safetensors.torch import load_file
from torch import nn


@dataclass
class SamplingParams:
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    max_tokens: int | None = 16
    seed: int | None = None
    stop: list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None


@dataclass
class EngineArgs:
    model: str
    gpu_memory_utilization: float = 0.9
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    quantization: str | None = None
    load_format: str = "auto"
    kv_cache_dtype: str = "auto"
    dtype: Any = "auto"
    max_logprobs: int = 20
    logprobs_mode: str = "raw_logprobs"
    seed: int = 0
    enable_lora: bool = False
    max_lora_rank: int = 16
    max_loras: int = 1
    disable_log_stats: bool = False
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    compilation_config: Any = None
    enforce_eager: bool = False
    enable_sleep_mode: bool = False
    tensor_parallel_size: int = 1
    model_impl: str = "auto"
    distributed_executor_backend: str | None = None
    trust_remote_code: bool = False


@dataclass
class LoRARequest:
    lora_name: str
    lora_int_id: int
    lora_path: str = ""


@dataclass
class Logprob:
    logprob: float
    rank: int = 1


@dataclass
class CompletionOutput:
    token_ids: list[int]
    text: str
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: str


@dataclass
class RequestOutput:
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]


class Names:
    """Attributes by name: what vLLM keeps in objects of its own."""

    def __init__(self, **values: Any):
        vars(self).update(values)


class _Weight(nn.Module):
    def __init__(self, *parts: torch.Tensor):
        super().__init__()
        self.weight = nn.Parameter(torch.cat(parts), requires_grad=False)
        self.output_sizes = [len(part) for part in parts]


class VllmLlama(nn.Module):
    """A checkpoint as vLLM holds it: queries, keys and values in one matrix, gate and up in
    another."""

    def __init__(self, tensors: dict[str, torch.Tensor], config: Any, dtype: torch.dtype):
        super().__init__()
        tensors = {name: tensor.to(dtype) for name, tensor in tensors.items()}
        self.config, self.model = config, nn.Module()
        self.model.embed_tokens = _Weight(tensors["model.embed_tokens.weight"])
        self.model.norm = _Weight(tensors["model.norm.weight"])
        self.model.layers = nn.ModuleList()
        for number in range(config.num_hidden_layers):
            layer = nn.Module()
            layer.self_attn, layer.mlp = nn.Module(), nn.Module()

            def weights(*names: str, start: str = f"model.layers.{number}.") -> _Weight:
                return _Weight(*(tensors[f"{start}{name}.weight"] for name in names))

            layer.self_attn.qkv_proj = weights(*(f"self_attn.{one}_proj" for one in "qkv"))
            layer.self_attn.o_proj = weights("self_attn.o_proj")
            layer.mlp.gate_up_proj = weights("mlp.gate_proj", "mlp.up_proj")
            layer.mlp.down_proj = weights("mlp.down_proj")
            layer.input_layernorm = weights("input_layernorm")
            layer.post_attention_layernorm = weights("post_attention_layernorm")
            self.model.layers.append(layer)

    def logits(self, ids: list[int], adapter: dict[str, torch.Tensor]) -> torch.Tensor:
        """Of the token after `ids`, in float32. `adapter`: what is added to a weight, by name."""
        config, length = self.config, len(ids)
        heads, kept = config.num_attention_heads, config.num_key_value_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // heads
        half = torch.arange(0, size, 2).float() / size
        angles = torch.outer(torch.arange(length).float(), _theta(config) ** -half)
        cos, sin = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()

        def norm(x: torch.Tensor, scale: nn.Module) -> torch.Tensor:
            return scale.weight * x * (x.pow(2).mean(-1, True) + config.rms_norm_eps).rsqrt()

        def turned(x: torch.Tensor) -> torch.Tensor:
            first, second = x.chunk(2, -1)
            return x * cos + torch.cat([-second, first], -1) * sin

        x = self.model.embed_tokens.weight[ids].float()
        for number, layer in enumerate(self.model.layers):

            def times(y: torch.Tensor, module: nn.Module, *names: str, number: int = number) -> Any:
                parts = module.weight.float().split(module.output_sizes)
                named = zip(names, parts, strict=True)
                added = [one + adapter.get(f"{number}.{name}", 0) for name, one in named]
                return [y @ one.T for one in added]

            attention, mlp, y = layer.self_attn, layer.mlp, norm(x, layer.input_layernorm)
            q, k, v = times(y, attention.qkv_proj, "q_proj", "k_proj", "v_proj")
            q, k, v = (one.view(length, -1, size).transpose(0, 1) for one in (q, k, v))
            k, v = (one.repeat_interleave(heads // kept, 0) for one in (turned(k), v))
            y = nn.functional.scaled_dot_product_attention(turned(q), k, v, is_causal=True)
            x = x + times(y.transpose(0, 1).reshape(length, -1), attention.o_proj, "o_proj")[0]
            y = norm(x, layer.post_attention_layernorm)
            gate, up = times(y, mlp.gate_up_proj, "gate_proj", "up_proj")
            x = x + times(nn.functional.silu(gate) * up, mlp.down_proj, "down_proj")[0]
        return norm(x[-1], self.model.norm) @ self.model.embed_tokens.weight.float().T


def _theta(config: Any) -> float:
    return float((getattr(config, "rope_parameters", None) or {}).get("rope_theta", 10000.0))


@dataclass
class Call:
    """What one call of `generate` was given. `adapter`: the tensors of the file it names."""

    prompts: list[list[int]]
    parameters: list[SamplingParams]
    lora_int_id: int | None
    adapter: dict[str, torch.Tensor] = field(default_factory=dict)


class LLM:
    engines: ClassVar[list["LLM"]] = []  # every engine of the process, and in each every call

    def __init__(self, **arguments: Any):
        from transformers import AutoConfig, AutoTokenizer

        self.arguments, self.calls = EngineArgs(**arguments), []
        folder, dtype = self.arguments.model, self.arguments.dtype
        config = AutoConfig.from_pretrained(folder)
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        dtype = dtype if isinstance(dtype, torch.dtype) else torch.float32
        self.model = VllmLlama(load_file(Path(folder, "model.safetensors")), config, dtype)
        runner = Names(model=self.model)
        executor = Names(driver_worker=Names(model_runner=runner))
        length = self.arguments.max_model_len or config.max_position_embeddings
        model_config = Names(
            model=folder,
            revision=None,
            max_model_len=length,
            enable_sleep_mode=self.arguments.enable_sleep_mode,
        )
        lora = Names(max_lora_rank=self.arguments.max_lora_rank)
        self.llm_engine = Names(
            model_executor=executor,
            model_config=model_config,
            vllm_config=Names(model_config=model_config, lora_config=lora),
        )
        LLM.engines.append(self)

    def get_tokenizer(self) -> Any:
        return self.tokenizer

    def reset_prefix_cache(self) -> bool:
        return True

    def generate(
        self,
        prompts: list[dict[str, list[int]]],
        sampling_params: SamplingParams | list[SamplingParams],
        *,
        use_tqdm: bool = True,
        lora_request: Any = None,
    ) -> list[RequestOutput]:
        ids = [prompt["prompt_token_ids"] for prompt in prompts]
        each = (
            sampling_params if isinstance(sampling_params, list) else [sampling_params] * len(ids)
        )
        assert len(each) == len(ids) and all(one.n == 1 for one in each)
        call = Call(ids, each, lora_request and lora_request.lora_int_id)
        added = {}
        if lora_request:
            assert self.arguments.enable_lora, "this engine takes no adapter"
            call.adapter = load_file(Path(lora_request.lora_path, "adapter_model.safetensors"))
            added = self._added(call.adapter, Path(lora_request.lora_path))
        self.calls.append(call)
        with torch.no_grad():
            return [self._answer(*one, added) for one in zip(ids, each, strict=True)]

    def _added(self, tensors: dict[str, torch.Tensor], folder: Path) -> dict[str, torch.Tensor]:
        """The product of the two matrices of each layer, rounded as those of the model are."""
        import json

        config, added = json.loads((folder / "adapter_config.json").read_bytes()), {}
        assert config["r"] <= self.arguments.max_lora_rank
        dtype = self.model.model.norm.weight.dtype
        for name, down in tensors.items():
            layer, found, _ = name.removeprefix("base_model.model.").partition(".lora_A.")
            if found:
                up = tensors[name.replace(".lora_A.", ".lora_B.")].to(dtype).float()
                number, module = layer.split(".")[2], layer.rpartition(".")[2]
                scale = config["lora_alpha"] / config["r"]
                added[f"{number}.{module}"] = scale * up @ down.to(dtype).float()
        return added

    def _answer(
        self, prompt: list[int], wanted: SamplingParams, added: dict[str, torch.Tensor]
    ) -> RequestOutput:
        limit = self.arguments.max_model_len or math.inf
        assert len(prompt) + (wanted.max_tokens or 0) <= limit, (
            "the prompt is longer than the engine"
        )
        generator = torch.Generator().manual_seed(wanted.seed) if wanted.seed is not None else None
        ids, likely, reason, text = [], [], "length", ""
        while len(ids) < (wanted.max_tokens or limit) and reason == "length":
            logits = self.model.logits(prompt + ids, added) / (wanted.temperature or 1.0)
            scale, order = logits.softmax(-1).sort(descending=True)
            scale[scale.cumsum(-1) - scale >= wanted.top_p] = 0.0
            if wanted.temperature == 0:
                place = 0
            else:
                place = int(torch.multinomial(scale, 1, generator=generator))
            # "processed": of the scale that was drawn from; "raw": of the model's own
            processed = (scale[place] / scale.sum()).log()
            raw = (logits * (wanted.temperature or 1.0)).log_softmax(-1)[order[place]]
            mode = self.arguments.logprobs_mode
            ids.append(int(order[place]))
            likely.append(
                {ids[-1]: Logprob(float(processed if mode[0] == "p" else raw), place + 1)}
            )
            text = self.tokenizer.decode(ids, skip_special_tokens=wanted.skip_special_tokens)
            ended = ids[-1] in (wanted.stop_token_ids or ())
            if ended or any(stop in text for stop in wanted.stop or ()):
                reason = "stop"
        logprobs = None if wanted.logprobs is None else likely
        return RequestOutput(prompt, [CompletionOutput(ids, text, logprobs, reason)])


class StructuredOutputsParams: ...


MODULES: dict[str, dict[str, Any]] = {
    "vllm": {
        "__version__": "0.31.0",
        "LLM": LLM,
        "LLMEngine": LLM,
        "AsyncLLMEngine": LLM,
        "EngineArgs": EngineArgs,
        "AsyncEngineArgs": EngineArgs,
        "SamplingParams": SamplingParams,
        "RequestOutput": RequestOutput,
    },
    "vllm.sampling_params": {
        "SamplingParams": SamplingParams,
        "StructuredOutputsParams": StructuredOutputsParams,
    },
    "vllm.lora": {},
    "vllm.lora.request": {"LoRARequest": LoRARequest},
    "vllm.lora.worker_manager": {},
    # what TRL imports of a server
    "vllm.utils": {},
    "vllm.utils.network_utils": {"get_ip": None},
    "vllm.distributed": {},
    "vllm.distributed.weight_transfer": {},
    "vllm.distributed.weight_transfer.nccl_common": {"trainer_init": None},
    "vllm.distributed.weight_transfer.packed_tensor": {"packed_nccl_broadcast_producer": None},
}


def install() -> None:
    """Before anything looks for vllm."""
    for name, values in MODULES.items():
        module = ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        module.__path__ = []
        vars(module).update(values)
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)
