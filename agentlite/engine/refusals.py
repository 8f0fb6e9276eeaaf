"""Settings of a trainer that cannot work together, here or anywhere, each with the nearest that do.

Asked before a library is loaded.
"""

import importlib.util
import math
import os
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from agentlite.config.gpu_profiles import card, gpu_has_bf16
from agentlite.config.settings import (
    DistillSettings,
    DpoSettings,
    GrpoSettings,
    SftSettings,
    TrainerSettings,
)
from agentlite.core import distributed
from agentlite.core.errors import UserError
from agentlite.engine import deepspeed
from agentlite.workspace.model_source import Source

EMBEDDINGS = {"all", "embed_tokens", "lm_head"}  # of lora_target_modules
SMOOTHED = ("sigmoid", "robust", "exo_pair")  # losses of DPO with label smoothing
# what PPO has no part of, and what GRPO in an environment has not: the values that leave it alone
OF_GROUPS = {
    "env": "",
    "vllm": False,
    "rest_epochs": None,
    "full": False,
    "loss_type": "dapo",
    "scale_rewards": "group",
}
OF_RECORDS = {"skip_solved": False, "order": "shuffled"}
NOT_SERVED = ("use_dora", "modules_to_save", "bias")  # fields of PEFT that vLLM's kernels lack


class Mistake(NamedTuple):
    """A setting that does not go with another one, and what to do."""

    key: str
    problem: str
    fix: str


def refuse_contradictions(command: str, settings: TrainerSettings) -> None:
    """Raises UserError for the first mistake that the settings alone show."""
    if isinstance(settings, DpoSettings):
        _refuse(command, _of_loss(settings))
    if isinstance(settings, GrpoSettings):
        _refuse(command, _of_sampling(settings))
        _refuse(command, _of_ppo(settings) if settings.advantage == "value" else iter(()))
        _refuse(command, _of_environments(settings) if settings.env else iter(()))
    if isinstance(settings, DistillSettings):
        _refuse(command, _of_distillation(settings))


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
        fix = f"Set load_in_{bits}bit to false; or leave --full out: an adapter can be."
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
        yield Mistake("deepspeed", problem, f"Set load_in_{bits}bit to false.")
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


def _of_loss(settings: DpoSettings) -> Iterator[Mistake]:
    loss = settings.loss_type
    if loss == "kto":
        for key in ("reference_free", "sft_weight"):
            if getattr(settings, key):
                fix = "Leave it out, or take another --loss-type."
                yield Mistake(key, "kto has no such option.", fix)
        if settings.batch_size < 2:
            problem = "kto compares a micro-batch's answers with those to other prompts: it needs "
            accumulation = max(1, settings.gradient_accumulation // 2)
            fix = f"Add --batch-size 2 --gradient-accumulation {accumulation}."
            yield Mistake("batch_size", f"{problem}two rows.", fix)
    if settings.label_smoothing and loss not in SMOOTHED:
        fix = "Leave it out, or take --loss-type sigmoid."
        yield Mistake("label_smoothing", f"{loss} has no label smoothing.", fix)
    if loss == "exo_pair" and not settings.label_smoothing:
        problem = "exo_pair takes the logarithm of the label smoothing, which is 0."
        fix = "Add --label-smoothing 0.001, as its paper does."
        yield Mistake("label_smoothing", problem, fix)


def _of_sampling(settings: GrpoSettings | DistillSettings) -> Iterator[Mistake]:
    """A step is whole groups, and an answer leaves room for its prompt."""
    answers = settings.batch_size * settings.gradient_accumulation
    if isinstance(settings, GrpoSettings) and answers % settings.group_size:
        problem = f"a step holds {answers} answers (batch_size x gradient_accumulation), no whole "
        fits = [str(size) for size in range(2, answers + 1) if answers % size == 0]
        yield Mistake("group_size", f"{problem}groups of it.", f"Take one of {', '.join(fits)}.")
    if settings.max_new_tokens >= settings.max_length:
        problem = f"leaves no room for a prompt: max_length is {settings.max_length}."
        yield Mistake("max_new_tokens", problem, "Lower it, or raise --max-length.")


def _of_ppo(settings: GrpoSettings) -> Iterator[Mistake]:
    """A round is whole steps, and nothing compares the answers of a group."""
    for key, usual in OF_GROUPS.items():
        if getattr(settings, key) != usual:
            fix = "Leave one of the two out."
            yield Mistake(key, "does not go with --advantage value.", fix)
    answers = settings.batch_size * settings.gradient_accumulation
    rows = math.lcm(answers, settings.group_size)
    if settings.rollouts % rows:
        problem = f"a round of {settings.rollouts} answers is not whole steps of {answers} and "
        problem += f"whole groups of {settings.group_size}."
        near = max(1, round(settings.rollouts / rows)) * rows
        yield Mistake("rollouts", problem, f"Take a multiple of {rows}, such as {near}.")


def _of_environments(settings: GrpoSettings) -> Iterator[Mistake]:
    for key, usual in OF_RECORDS.items():
        if getattr(settings, key) != usual:
            problem = "is for recorded prompts, and --env has none."
            fix = "Leave one of the two out. Tasks that teach nothing rest (rest_epochs)."
            yield Mistake(key, problem, fix)
    if settings.credit != "trajectory" and settings.scale_rewards in ("batch", "component"):
        problem = f"compares turns within a group, with --credit {settings.credit}."
        yield Mistake("scale_rewards", problem, "Take group or none.")


def _of_distillation(settings: DistillSettings) -> Iterator[Mistake]:
    if settings.samples:
        yield from _of_sampling(settings)
    if settings.top_k and settings.samples:
        problem = "holds the teacher's opinion of recorded answers, and others are sampled."
        fix = "Add --lmbda 0, without --fade and --off-policy teacher; or leave --top-k out."
        yield Mistake("top_k", problem, fix)


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
