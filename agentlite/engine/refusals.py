"""Settings of a trainer that cannot work together, here or anywhere, each with the nearest that do.

Asked before a library is loaded.
"""

import importlib.util
import json
import math
import os
import shlex
from collections.abc import Iterator

from agentlite.config.gpu_profiles import card, gpu_has_bf16
from agentlite.config.settings import DistillSettings, DpoSettings, GrpoSettings, TrainerSettings
from agentlite.core import distributed
from agentlite.core.errors import UserError, how
from agentlite.engine import processes
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
SUFFIX = "pip install arctic-inference, or leave the lever suffix out"
FOUR_BIT = "pip install vllm-bnb-plugin, or set load_in_4bit to false"
# fields of PEFT that vLLM's kernels lack
NOT_SERVED = ("use_dora", "modules_to_save", "trainable_token_indices", "bias")


Mistakes = Iterator[tuple[str, str, str]]  # a setting, what it does not go with, and what to do


def refuse(command: str, *mistakes: Mistakes) -> None:
    """Raises UserError 2 for the first mistake."""
    for each in mistakes:
        for key, problem, fix in each:
            raise UserError(problem, fix, location=f"{command}.{key}")


def of_training(command: str, settings: TrainerSettings, source: Source) -> Mistakes:
    """What no trainer can do."""
    yield from _of_full(settings, source)
    yield from _of_deepspeed(command, settings)
    yield from of_embeddings(settings)
    if source.adapter and getattr(settings, "vllm", False):
        config = json.loads((source.adapter / "adapter_config.json").read_bytes())
        if config.get("trainable_token_indices"):
            problem = f"{source.name} holds rows of the embeddings, and vLLM takes only layers."
            merge = f"agentlite export {shlex.quote(source.name)} --merged FOLDER"
            yield "vllm", problem, f"Start from the merged model: {merge}; or leave --vllm out."


def _of_full(settings: TrainerSettings, source: Source) -> Mistakes:
    if not settings.full:
        return
    if settings.load_in_4bit or settings.load_in_8bit:
        fix = "Set load_in_4bit and load_in_8bit to false; or leave --full out: an adapter can be."
        yield "full", "weights in 4 or 8 bit cannot be trained.", fix
    if source.adapter:
        whole = f"--model {shlex.quote(source.base)}"
        fix = f"Start from a whole one: {whole}, or a stage trained with --full."
        yield "full", f"{source.name} is an adapter, not a whole model.", fix
    if not settings.deepspeed and gpu_has_bf16() is False:
        problem = "this card has no bfloat16, and weights in float16 cannot be trained."
        yield "full", problem, "Leave --full out: an adapter can be trained on them."


def _of_deepspeed(command: str, settings: TrainerSettings) -> Mistakes:
    if not settings.deepspeed:
        if distributed.count() > 1:
            problem = f"this is one of {distributed.count()} processes, and no DeepSpeed "
            problem += "configuration says how they share the work."
            fix = "Add --engine hf --deepspeed deepspeed/zero2.json, or start it without torchrun."
            yield "deepspeed", problem, fix
        return
    processes.read_deepspeed(settings.deepspeed)
    if command not in processes.TOGETHER:
        fix = f"Leave it out: {' and '.join(processes.TOGETHER)} take it."
        yield "deepspeed", f"{command} runs in one process.", fix
    if settings.engine != "hf":
        yield "deepspeed", f"needs the engine hf, not {settings.engine}.", "Add --engine hf."
    if settings.load_in_4bit or settings.load_in_8bit:
        problem = "weights in 4 or 8 bit cannot be divided among processes."
        yield "deepspeed", problem, "Set load_in_4bit and load_in_8bit to false."
    if importlib.util.find_spec("deepspeed") is None:
        fix = how("pip install 'agentlite[deepspeed]'")
        yield "deepspeed", "the package is not installed.", fix
    if "WORLD_SIZE" not in os.environ:
        start = f"torchrun --nproc_per_node 2 -m -- agentlite {command} ..."
        problem = "needs a launcher, and this process has none."
        yield "deepspeed", problem, f"Start {start} (1: one card)."


def of_embeddings(settings: TrainerSettings) -> Mistakes:
    """Of an adapter on the embeddings with Unsloth, which would train them whole, on a CPU too:
    another model than the engine hf makes, and on a GPU gigabytes more.
    """
    on_embeddings = EMBEDDINGS & set(settings.lora_target_modules)
    if on_embeddings and not settings.full and settings.engine == "unsloth":
        problem = f"{min(on_embeddings)} puts an adapter on the embeddings, and Unsloth has none "
        problem += "there: it would train them whole."
        fix = "Add --engine hf, or leave them out: sft trains the rows of untrained marks anyway."
        yield "lora_target_modules", problem, fix


def of_loss(settings: DpoSettings) -> Mistakes:
    loss = settings.loss_type
    if settings.label_smoothing and loss not in SMOOTHED:
        fix = "Leave it out, or take --loss-type sigmoid."
        yield "label_smoothing", f"{loss} has no label smoothing.", fix


def of_sampling(settings: GrpoSettings | DistillSettings) -> Mistakes:
    """A step is whole groups, an answer leaves room for its prompt, a judge has recorded ones."""
    if isinstance(settings, DistillSettings) and not settings.samples:
        return
    answers = settings.batch_size * settings.gradient_accumulation
    if isinstance(settings, GrpoSettings) and answers % settings.group_size:
        problem = f"a step holds {answers} answers (batch_size x gradient_accumulation), no whole "
        fits = [str(size) for size in range(2, answers + 1) if answers % size == 0]
        yield "group_size", f"{problem}groups of it.", f"Take one of {', '.join(fits)}."
    if settings.max_new_tokens >= settings.max_length:
        problem = f"leaves no room for a prompt: max_length is {settings.max_length}."
        yield "max_new_tokens", problem, "Lower it, or raise --max-length."
    if isinstance(settings, GrpoSettings) and settings.env and settings.judge:
        problem = "is for recorded prompts, and --env has none."
        yield "judge", problem, "Leave one of the two out."


def of_ppo(settings: GrpoSettings) -> Mistakes:
    """A round is whole steps, and nothing compares the answers of a group."""
    if settings.advantage != "value":
        return
    for key, usual in OF_GROUPS.items():
        if getattr(settings, key) != usual:
            yield key, "does not go with --advantage value.", "Leave one of the two out."
    answers = settings.batch_size * settings.gradient_accumulation
    rows = math.lcm(answers, settings.group_size)
    if settings.rollouts % rows:
        problem = f"a round of {settings.rollouts} answers is not whole steps of {answers} and "
        problem += f"whole groups of {settings.group_size}."
        near = max(1, round(settings.rollouts / rows)) * rows
        yield "rollouts", problem, f"Take a multiple of {rows}, such as {near}."


def of_vllm(settings: GrpoSettings) -> Mistakes:
    if settings.vllm_levers and not (settings.vllm and settings.engine == "unsloth"):
        yield "vllm_levers", "is for --vllm with Unsloth.", "Leave it out, or add --vllm."
    if not settings.vllm:
        return
    needed = {
        "vllm": "VLLM=1 bash scripts/setup.sh, with a driver from 580 on",
        **({"arctic_inference": SUFFIX} if "suffix" in settings.vllm_levers else {}),
        **({"vllm_bnb_plugin": FOUR_BIT} if settings.load_in_4bit else {}),
    }
    for package, command in needed.items():
        if importlib.util.find_spec(package) is None:
            yield "vllm", f"{package} is not installed.", f"{command}; or leave --vllm out."
    if card() is None:
        yield "vllm", "vLLM needs a CUDA GPU, and none is found.", "Leave --vllm out."
    if settings.load_in_8bit:
        problem = "vLLM has no 8-bit weights of this kind."
        yield "vllm", problem, "Take --load-in-4bit true, or leave --vllm out."
    if settings.engine != "unsloth":
        return
    # vLLM is given the adapter itself, and would refuse it at the first answer, or leave parts of
    # it out
    if settings.full:
        problem = "with Unsloth vLLM is given an adapter, and full trains all weights."
        yield "full", problem, "Add --engine hf, or leave --vllm out."
    for name in NOT_SERVED:
        if settings.peft.get(name) not in (None, False, "none", [], ()):
            problem = "vLLM applies plain LoRA and would leave this out."
            yield f"peft.{name}", problem, "Leave it out, or --vllm; or add --engine hf."
