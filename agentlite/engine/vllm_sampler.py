"""Sampling by vLLM: all answers of a step in one call, each with its own seed and stop strings.

With Unsloth there is one engine in the process: vLLM loads the weights, the trained model is built
around the same tensors, and the adapter is handed over as a file before each call. With plain TRL
vLLM holds a copy of the weights, into which TRL merges the adapter before each step.
"""

import contextlib
import importlib.util
import random
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from agentlite.config.gpu_profiles import card
from agentlite.config.settings import GrpoSettings
from agentlite.config.torch_builds import BUILDS, VLLM_TORCH
from agentlite.core.errors import UserError
from agentlite.engine.decoding import Decoding, ends_of
from agentlite.engine.load import Loaded
from agentlite.engine.local_sampler import Sample, SampleRequest, read

LARGEST_RANK = 512  # of an adapter that vLLM takes
NOT_SERVED = ("use_dora", "modules_to_save", "bias")  # fields of PEFT that its kernels do not have
LEAST_CAPABILITY = next(one.capabilities[0] for one in BUILDS if one.torch == VLLM_TORCH)


def refuse(settings: GrpoSettings) -> None:
    """Raises UserError 2 where vLLM cannot sample: asked before a library is loaded."""
    if not settings.vllm:
        return
    gpu, location = card(), "grpo.vllm"
    if importlib.util.find_spec("vllm") is None:
        raise UserError(
            "vLLM is not installed.",
            "VLLM=1 bash scripts/setup.sh, with a driver from 580 on; or leave --vllm out.",
            location=location,
        )
    if gpu is None:
        raise UserError(
            "vLLM needs a CUDA GPU, and none is found.", "Leave --vllm out.", location=location
        )
    if gpu.capability < LEAST_CAPABILITY:
        raise UserError(
            f"vLLM needs torch {VLLM_TORCH}, for cards of compute capability {LEAST_CAPABILITY} or "
            f"more; {gpu.name} has {gpu.capability}.",
            "Leave --vllm out.",
            location=location,
        )
    if settings.load_in_8bit:
        raise UserError(
            "vLLM has no 8-bit weights of this kind.",
            "Take --load-in-4bit true, or leave --vllm out.",
            location=location,
        )
    if settings.load_in_4bit and importlib.util.find_spec("vllm_bnb_plugin") is None:
        raise UserError(
            "for 4-bit weights vLLM needs the package vllm-bnb-plugin, which is not installed.",
            "pip install vllm-bnb-plugin; or --load-in-4bit false, or leave --vllm out.",
            location=location,
        )
    if settings.engine == "unsloth":
        _refuse_other_than_lora(settings)


def _refuse_other_than_lora(settings: GrpoSettings) -> None:
    """vLLM is given the adapter itself, and would refuse it at the first answer, or leave parts of
    it out."""
    if settings.full:
        raise UserError(
            "with Unsloth vLLM is given an adapter, and full trains all weights.",
            "Add --engine hf, or leave --vllm out.",
            location="grpo.full",
        )
    if settings.lora_r > LARGEST_RANK:
        raise UserError(
            f"vLLM takes adapters up to rank {LARGEST_RANK}.",
            "Lower it, or leave --vllm out.",
            location="grpo.lora_r",
        )
    for name in NOT_SERVED:
        if settings.peft.get(name) not in (None, False, "none", [], ()):
            raise UserError(
                "vLLM applies plain LoRA and would leave this out.",
                "Leave it out, or --vllm; or add --engine hf.",
                location=f"grpo.peft.{name}",
            )


def sample(
    llm: Any, loaded: Loaded, requests: Sequence[SampleRequest], decoding: Decoding
) -> list[Sample]:
    """The samples of every request, by the adapter as it is now, in one call.

    The log-probabilities are those the token was drawn by: at the temperature, after top-p. vLLM
    rounds otherwise in another batch, so a seed gives the same answer only mostly.
    """
    from vllm import SamplingParams

    ends = ends_of(loaded.model, decoding.turn_end)
    wanted = [
        (index, number, seed, request)
        for index, request in enumerate(requests)
        for number, seed in enumerate(request.seeds)
    ]
    parameters = [
        SamplingParams(
            temperature=decoding.temperature,
            top_p=decoding.top_p,
            max_tokens=decoding.max_new_tokens,
            seed=random.Random(seed).getrandbits(31),
            stop=list(request.stops),
            include_stop_str_in_output=True,
            stop_token_ids=sorted(ends),
            skip_special_tokens=False,  # a stop string may be a special token
            logprobs=0,  # of the drawn token alone
        )
        for _, _, seed, request in wanted
    ]
    prompts = [{"prompt_token_ids": list(request.prompt)} for *_, request in wanted]
    with _adapter(llm, loaded.model) as handed:
        outputs = llm.generate(prompts, parameters, use_tqdm=False, **handed)
    samples = []
    for (index, number, _, request), output in zip(wanted, outputs, strict=True):
        ids, likely = output.outputs[0].token_ids, output.outputs[0].logprobs
        one = read(loaded.tokenizer, list(ids), ends, request.stops, (index, number))
        chosen = [place[token].logprob for token, place in zip(one.ids, likely, strict=False)]
        samples.append(one._replace(log_probabilities=tuple(chosen)))
    return samples


@contextlib.contextmanager
def _adapter(llm: Any, model: Any) -> Iterator[dict[str, Any]]:
    """The argument that hands a shared engine the adapter; none where TRL has merged it, or before
    there is one. By a file and not by its tensors: Unsloth would hand over those of every adapter
    of the model, and the reference is one.
    """
    if getattr(model, "vllm_engine", None) is not llm or not hasattr(model, "peft_config"):
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="agentlite-adapter-") as folder:
        model.save_lora(folder, selected_adapters=["default"])
        yield {
            "lora_request": model.load_lora(folder)
        }  # numbered anew: vLLM keeps none by its name
