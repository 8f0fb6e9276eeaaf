"""Settings of a trainer that cannot work together, here or anywhere, each with the nearest that do.

Asked before a library is loaded.
"""

import importlib.util
import json
import math
import os
import shlex
from collections.abc import Iterable
from itertools import chain

from agentlite.config.settings import DistillSettings, DpoSettings, GrpoSettings, TrainerSettings
from agentlite.config.this_machine import find_gpu
from agentlite.core import distributed
from agentlite.core.errors import UserError, install_fix
from agentlite.engine import processes
from agentlite.workspace.lookup import Source

EMBEDDINGS = {"all", "embed_tokens", "lm_head"}  # of lora_target_modules
SMOOTHED_LOSSES = ("sigmoid", "robust", "exo_pair")  # losses of DPO with label smoothing
# what PPO has no part of, each with the value that leaves it alone
GROUP_ONLY = {
    "env": "",
    "vllm": False,
    "rest_epochs": None,
    "full": False,
    "loss_type": "dapo",
    "scale_rewards": "group",
}
EITHER = "Leave one of the two out."
SUFFIX_FIX = "pip install arctic-inference, or leave the lever suffix out"
FOUR_BIT_FIX = "pip install vllm-bnb-plugin, or set load_in_4bit to false"
# fields of PEFT that vLLM's kernels lack
UNSERVED_FIELDS = ("use_dora", "modules_to_save", "trainable_token_indices", "bias")


# Whether it is so, the setting, what it does not go with, and what to do. A table says all of its
# texts at once, so they must be sayable also where nothing is wrong.
Case = tuple[object, str, str, str]


def refuse(command: str, *tables: Iterable[Case]) -> None:
    """Raises UserError 2 for the first case that is so."""
    for is_wrong, key, problem, fix in chain(*tables):
        if is_wrong:
            raise UserError(problem, fix, location=f"{command}.{key}")


def training_cases(command: str, settings: TrainerSettings, source: Source) -> list[Case]:
    """What no trainer can do."""
    adapter = source.adapter if getattr(settings, "vllm", False) else None
    config = json.loads((adapter / "adapter_config.json").read_bytes()) if adapter else {}
    return [
        *_full_cases(settings, source),
        *_deepspeed_cases(command, settings),
        *embedding_cases(settings),
        (
            config.get("trainable_token_indices"),
            "vllm",
            f"{source.name} holds rows of the embeddings, and vLLM takes only layers.",
            f"Start from the merged model: agentlite export {shlex.quote(source.name)} --merged "
            "FOLDER; or leave --vllm out.",
        ),
    ]


def _full_cases(settings: TrainerSettings, source: Source) -> list[Case]:
    full = settings.full
    return [
        (
            full and (settings.load_in_4bit or settings.load_in_8bit),
            "full",
            "weights in 4 or 8 bit cannot be trained.",
            "Set load_in_4bit and load_in_8bit to false; or leave --full out: an adapter can be.",
        ),
        (
            full and source.adapter,
            "full",
            f"{source.name} is an adapter, not a whole model.",
            f"Start from a whole one: --model {shlex.quote(source.base)}, or a stage trained with "
            "--full.",
        ),
        (
            full and not settings.deepspeed and (gpu := find_gpu()) and not gpu.bf16,
            "full",
            "this card has no bfloat16, and weights in float16 cannot be trained.",
            "Leave --full out: an adapter can be trained on them.",
        ),
    ]


def _deepspeed_cases(command: str, settings: TrainerSettings) -> list[Case]:
    if not settings.deepspeed:
        return [
            (
                distributed.world_size() > 1,
                "deepspeed",
                f"this is one of {distributed.world_size()} processes, and no DeepSpeed "
                "configuration says how they share the work.",
                "Add --engine hf --deepspeed deepspeed/zero2.json, or start it without torchrun.",
            )
        ]
    processes.read_deepspeed(settings.deepspeed)
    return [
        (
            command not in processes.TORCHRUN_STAGES,
            "deepspeed",
            f"{command} runs in one process.",
            f"Leave it out: {' and '.join(processes.TORCHRUN_STAGES)} take it.",
        ),
        (
            settings.engine != "hf",
            "deepspeed",
            f"needs the engine hf, not {settings.engine}.",
            "Add --engine hf.",
        ),
        (
            settings.load_in_4bit or settings.load_in_8bit,
            "deepspeed",
            "weights in 4 or 8 bit cannot be divided among processes.",
            "Set load_in_4bit and load_in_8bit to false.",
        ),
        (
            importlib.util.find_spec("deepspeed") is None,
            "deepspeed",
            "the package is not installed.",
            install_fix("pip install 'agentlite[deepspeed]'"),
        ),
        (
            "WORLD_SIZE" not in os.environ,
            "deepspeed",
            "needs a launcher, and this process has none.",
            f"Start torchrun --nproc_per_node 2 -m -- agentlite {command} ... (1: one card).",
        ),
    ]


def embedding_cases(settings: TrainerSettings) -> list[Case]:
    """Of an adapter on the embeddings with Unsloth, which would train them whole, on a CPU too:
    another model than the engine hf makes, and on a GPU gigabytes more.
    """
    on_embeddings = EMBEDDINGS & {*settings.lora_target_modules}
    return [
        (
            on_embeddings and not settings.full and settings.engine == "unsloth",
            "lora_target_modules",
            f"{min(on_embeddings, default='')} puts an adapter on the embeddings, and Unsloth has "
            "none there: it would train them whole.",
            "Add --engine hf, or leave them out: sft trains the rows of untrained marks anyway.",
        )
    ]


def loss_cases(settings: DpoSettings) -> list[Case]:
    return [
        (
            settings.label_smoothing and settings.loss_type not in SMOOTHED_LOSSES,
            "label_smoothing",
            f"{settings.loss_type} has no label smoothing.",
            "Leave it out, or take --loss-type sigmoid.",
        )
    ]


def sampling_cases(settings: GrpoSettings | DistillSettings) -> list[Case]:
    """A step is whole groups, an answer leaves room for its prompt, a judge has recorded ones."""
    if isinstance(settings, DistillSettings) and not settings.uses_samples:
        return []
    answers = settings.batch_size * settings.gradient_accumulation
    sizes = [str(size) for size in range(2, answers + 1) if answers % size == 0]
    return [
        (
            isinstance(settings, GrpoSettings) and answers % settings.group_size,
            "group_size",
            f"a step holds {answers} answers (batch_size x gradient_accumulation), no whole groups "
            "of it.",
            f"Take one of {', '.join(sizes)}." if sizes else "Raise --batch-size.",
        ),
        (
            settings.max_new_tokens >= settings.max_length,
            "max_new_tokens",
            f"leaves no room for a prompt: max_length is {settings.max_length}.",
            "Lower it, or raise --max-length.",
        ),
        (
            isinstance(settings, GrpoSettings) and settings.env and settings.judge,
            "judge",
            "is for recorded prompts, and --env has none.",
            EITHER,
        ),
    ]


def ppo_cases(settings: GrpoSettings) -> list[Case]:
    """A round is whole steps, and nothing compares the answers of a group."""
    if settings.advantage != "value":
        return []
    answers = settings.batch_size * settings.gradient_accumulation
    rows = math.lcm(answers, settings.group_size)
    nearest = max(1, round(settings.rollouts / rows)) * rows
    problem = "does not go with --advantage value."
    return [
        *((getattr(settings, key) != off, key, problem, EITHER) for key, off in GROUP_ONLY.items()),
        (
            settings.rollouts % rows,
            "rollouts",
            f"a round of {settings.rollouts} answers is not whole steps of {answers} and whole "
            f"groups of {settings.group_size}.",
            f"Take a multiple of {rows}, such as {nearest}.",
        ),
    ]


def vllm_cases(settings: GrpoSettings) -> list[Case]:
    with_unsloth = settings.engine == "unsloth"
    levers_case = (
        settings.vllm_levers and not (settings.vllm and with_unsloth),
        "vllm_levers",
        "is for --vllm with Unsloth.",
        "Leave it out, or add --vllm.",
    )
    if not settings.vllm:
        return [levers_case]
    fixes = {
        "vllm": "VLLM=1 bash scripts/setup.sh, with a driver from 580 on",
        **({"arctic_inference": SUFFIX_FIX} if "suffix" in settings.vllm_levers else {}),
        **({"vllm_bnb_plugin": FOUR_BIT_FIX} if settings.load_in_4bit else {}),
    }
    return [
        levers_case,
        *(
            (
                importlib.util.find_spec(package) is None,
                "vllm",
                f"{package} is not installed.",
                f"{fix}; or leave --vllm out.",
            )
            for package, fix in fixes.items()
        ),
        (not find_gpu(), "vllm", "vLLM needs a CUDA GPU, and none is found.", "Leave --vllm out."),
        (
            settings.load_in_8bit,
            "vllm",
            "vLLM has no 8-bit weights of this kind.",
            "Take --load-in-4bit true, or leave --vllm out.",
        ),
        # Unsloth hands vLLM the adapter itself, which would be refused at the first answer, or
        # applied without these parts of it.
        (
            with_unsloth and settings.full,
            "full",
            "with Unsloth vLLM is given an adapter, and full trains all weights.",
            "Add --engine hf, or leave --vllm out.",
        ),
        *(
            (
                with_unsloth and settings.peft.get(name) not in (None, False, "none", [], ()),
                f"peft.{name}",
                "vLLM applies plain LoRA and would leave this out.",
                "Leave it out, or --vllm; or add --engine hf.",
            )
            for name in UNSERVED_FIELDS
        ),
    ]
