"""Settings of a trainer that cannot work together, here or anywhere, each with the nearest that do.

Asked before a library is loaded.
"""

import importlib.util
import os
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from agentlite.config.gpu_profiles import card, gpu_has_bf16
from agentlite.config.settings import GrpoSettings, SftSettings, TrainerSettings
from agentlite.core import distributed
from agentlite.core.errors import UserError
from agentlite.engine import deepspeed
from agentlite.workspace.model_source import Source

EMBEDDINGS = {"all", "embed_tokens", "lm_head"}  # of lora_target_modules
NOT_SERVED = ("use_dora", "modules_to_save", "bias")  # fields of PEFT that vLLM's kernels lack


class Mistake(NamedTuple):
    """A setting that does not go with another one, and what to do."""

    key: str
    problem: str
    fix: str


def refuse_unfit(command: str, settings: TrainerSettings, source: Source) -> None:
    """Raises UserError 2 for the first mistake."""
    _refuse(command, _of_full(settings, source))
    _refuse(command, _of_deepspeed(command, settings))
    refuse_embeddings(command, settings)
    if isinstance(settings, SftSettings) and settings.packing:
        _refuse(command, _of_packing(settings))
    if isinstance(settings, GrpoSettings) and settings.vllm:
        _refuse(command, _of_vllm(settings))


def refuse_embeddings(command: str, settings: TrainerSettings) -> None:
    """Raises UserError 2 for an adapter on the embeddings with Unsloth, which would train them
    whole, on a CPU too: another model than the engine hf makes, and on a GPU gigabytes more.
    """
    if settings.full or settings.engine != "unsloth":
        return
    if on_embeddings := EMBEDDINGS & set(settings.lora_target_modules):
        mistake = Mistake(
            "lora_target_modules",
            f"{min(on_embeddings)} puts an adapter on the embeddings, and Unsloth has none there: "
            "it would train them whole.",
            "Add --engine hf, or leave them out: all-linear.",
        )
        _refuse(command, iter([mistake]))


def _refuse(command: str, mistakes: Iterator[Mistake]) -> None:
    for key, problem, fix in mistakes:
        raise UserError(problem, fix, location=f"{command}.{key}")


def _of_full(settings: TrainerSettings, source: Source) -> Iterator[Mistake]:
    if not settings.full:
        return
    if bits := _bits(settings):
        problem = f"weights in {bits} bit cannot be trained."
        fix = f"Add --load-in-{bits}bit false; or leave --full out: an adapter can be."
        yield Mistake("full", problem, fix)
    if source.adapter:
        problem = f"{source.name} is an adapter, not a whole model."
        whole = f"--model {shlex.quote(source.base)}"
        fix = f"Start from a whole one: {whole}, or a stage trained with --full."
        yield Mistake("full", problem, fix)
    if not settings.deepspeed and gpu_has_bf16() is False:
        problem = (
            "this card has no bfloat16, and weights in float16 cannot be trained by themselves."
        )
        yield Mistake("full", problem, "Leave --full out: an adapter can be trained on them.")


def _of_deepspeed(command: str, settings: TrainerSettings) -> Iterator[Mistake]:
    if not settings.deepspeed:
        if distributed.count() > 1:
            problem = f"this is one of {distributed.count()} processes, and no DeepSpeed "
            problem += "configuration says how they share the work."
            fix = "Add --engine hf --deepspeed deepspeed/zero2.json, or start it without torchrun."
            yield Mistake("deepspeed", problem, fix)
        return
    zero = deepspeed.read(settings.deepspeed).get("zero_optimization")
    if command not in deepspeed.TOGETHER:
        fix = f"Leave it out: {' and '.join(deepspeed.TOGETHER)} take it."
        yield Mistake("deepspeed", f"{command} runs in one process.", fix)
    if settings.engine != "hf":
        problem = f"needs the engine hf, not {settings.engine}."
        yield Mistake("deepspeed", problem, "Add --engine hf.")
    if bits := _bits(settings):
        problem = f"weights in {bits} bit cannot be divided among processes."
        yield Mistake("deepspeed", problem, f"Add --load-in-{bits}bit false.")
    if importlib.util.find_spec("deepspeed") is None:
        fix = "Run `pip install 'agentlite[deepspeed]'`."
        yield Mistake("deepspeed", "the package is not installed.", fix)
    if "WORLD_SIZE" not in os.environ:
        problem = "needs a launcher, and this process has none."
        start = f"torchrun --nproc_per_node 2 -m -- agentlite {command} ..."
        yield Mistake("deepspeed", problem, f"Start {start} (1: one card).")
    weighted = getattr(settings, "segment_weights", "none") != "none"
    if weighted and isinstance(zero, dict) and zero.get("stage") == 3:
        problem = "ZeRO-3 loses a part of the gradients of tokens with weights."
        yield Mistake("segment_weights", problem, "Take --deepspeed deepspeed/zero2.json.")


def _of_packing(settings: SftSettings) -> Iterator[Mistake]:
    if settings.segment_weights != "none":
        problem = "the tokens of packed rows cannot have weights."
        yield Mistake("segment_weights", problem, "Leave --packing out.")
    if settings.order != "shuffled":
        yield Mistake("order", "packed rows have no order.", "Leave --packing out.")


def _of_vllm(settings: GrpoSettings) -> Iterator[Mistake]:
    if importlib.util.find_spec("vllm") is None:
        fix = "VLLM=1 bash scripts/setup.sh, with a driver from 580 on; or leave --vllm out."
        yield Mistake("vllm", "vLLM is not installed.", fix)
    if card() is None:
        yield Mistake("vllm", "vLLM needs a CUDA GPU, and none is found.", "Leave --vllm out.")
    if settings.load_in_8bit:
        problem = "vLLM has no 8-bit weights of this kind."
        yield Mistake("vllm", problem, "Take --load-in-4bit true, or leave --vllm out.")
    if settings.load_in_4bit and importlib.util.find_spec("vllm_bnb_plugin") is None:
        problem = (
            "for 4-bit weights vLLM needs the package vllm-bnb-plugin, which is not installed."
        )
        fix = "pip install vllm-bnb-plugin; or --load-in-4bit false, or leave --vllm out."
        yield Mistake("vllm", problem, fix)
    if settings.engine != "unsloth":
        return
    # vLLM is given the adapter itself, and would refuse it at the first answer, or leave parts of
    # it out
    if settings.full:
        problem = "with Unsloth vLLM is given an adapter, and full trains all weights."
        yield Mistake("full", problem, "Add --engine hf, or leave --vllm out.")
    for name in NOT_SERVED:
        if settings.peft.get(name) not in (None, False, "none", [], ()):
            problem = "vLLM applies plain LoRA and would leave this out."
            fix = "Leave it out, or --vllm; or add --engine hf."
            yield Mistake(f"peft.{name}", problem, fix)


def _bits(settings: TrainerSettings) -> int:
    return 4 if settings.load_in_4bit else 8 if settings.load_in_8bit else 0
