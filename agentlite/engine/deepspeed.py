"""--full, --deepspeed and the number of processes -> DeepSpeed's configuration, or why not."""

import importlib.util
import json
import os
import shlex
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

from agentlite.config.gpu_profiles import gpu_has_bf16
from agentlite.config.pipeline import STAGES
from agentlite.config.resolve import find_file
from agentlite.config.settings import TrainerSettings, default
from agentlite.core import distributed
from agentlite.core.errors import UserError
from agentlite.engine import on_gpu
from agentlite.workspace.digests import file_digest
from agentlite.workspace.model_source import Source

TOGETHER = tuple(name for name, stage in STAGES.items() if stage.torchrun)


class Mistake(NamedTuple):
    """A setting that does not go with another one, and the nearest that does."""

    key: str
    problem: str
    fix: str


def inputs(settings: TrainerSettings) -> dict[str, str]:
    """What a plan keeps of it: with another file or another number of processes a checkpoint cannot
    be read.
    """
    if not settings.deepspeed:
        return {}
    read(settings.deepspeed)
    return {
        "deepspeed": file_digest(find_file(settings.deepspeed)),
        "processes": str(distributed.count()),
    }


def inherited(command: str, settings: TrainerSettings) -> dict[str, tuple[Any, str]]:
    """All weights want a smaller learning rate than an adapter: a tenth of its default."""
    return (
        {"learning_rate": (default(command, "learning_rate") / 10, "--full")}
        if settings.full
        else {}
    )


def read(name: str) -> dict[str, Any]:
    """The JSON, of the user's or shipped. Raises UserError 2."""
    path = find_file(name)
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(
            f"cannot be read: {error.strerror}.",
            "Shipped: deepspeed/zero2.json, zero3.json, zero2_offload.json, zero3_offload.json.",
            location=str(path),
        ) from error
    except ValueError as error:
        raise UserError(f"no JSON: {error}.", location=str(path)) from error
    if not isinstance(content, dict):
        raise UserError("must hold a JSON object.", location=str(path))
    return content


def refuse_unfit(command: str, settings: TrainerSettings, source: Source) -> None:
    """Raises UserError 2 for what does not go together, with the nearest that does."""
    for found in (_of_full, _of_one_process, _of_deepspeed):
        for mistake in found(command, settings, source):
            raise UserError(mistake.problem, mistake.fix, location=f"{command}.{mistake.key}")


def _of_full(command: str, settings: TrainerSettings, source: Source) -> Iterator[Mistake]:
    if not settings.full:
        return
    if bits := _bits(settings):
        yield Mistake(
            "full",
            f"weights in {bits} bit cannot be trained.",
            f"Add --load-in-{bits}bit false; or leave --full out: an adapter can be.",
        )
    if source.adapter:
        yield Mistake(
            "full",
            f"{source.name} is an adapter, not a whole model.",
            f"Start from a whole one: --model {shlex.quote(source.base)}, or a stage trained with "
            "--full.",
        )
    if not settings.deepspeed and gpu_has_bf16() is False:
        yield Mistake(
            "full",
            "this card has no bfloat16, and weights in float16 cannot be trained by themselves.",
            "Leave --full out: an adapter can be trained on them.",
        )


def _of_one_process(command: str, settings: TrainerSettings, source: Source) -> Iterator[Mistake]:
    if distributed.count() > 1 and not settings.deepspeed:
        yield Mistake(
            "deepspeed",
            f"this is one of {distributed.count()} processes, and no DeepSpeed configuration "
            "says how they share the work.",
            "Add --engine hf --deepspeed deepspeed/zero2.json, or start it without torchrun.",
        )


def _of_deepspeed(command: str, settings: TrainerSettings, source: Source) -> Iterator[Mistake]:
    if not settings.deepspeed:
        return
    config = read(settings.deepspeed)
    if command not in TOGETHER:
        yield Mistake(
            "deepspeed",
            f"{command} runs in one process.",
            f"Leave it out: {' and '.join(TOGETHER)} take it.",
        )
    if settings.engine != "hf":
        yield Mistake(
            "deepspeed", f"needs the engine hf, not {settings.engine}.", "Add --engine hf."
        )
    if bits := _bits(settings):
        yield Mistake(
            "deepspeed",
            f"weights in {bits} bit cannot be divided among processes.",
            f"Add --load-in-{bits}bit false.",
        )
    if importlib.util.find_spec("deepspeed") is None:
        yield Mistake(
            "deepspeed",
            "the package is not installed.",
            "Run `pip install 'agentlite[deepspeed]'`.",
        )
    if "WORLD_SIZE" not in os.environ:
        yield Mistake(
            "deepspeed",
            "needs a launcher, and this process has none.",
            f"Start torchrun --nproc_per_node 2 -m -- agentlite {command} ... (1: one card).",
        )
    if (
        _part(config, "zero_optimization").get("stage") == 3
        and getattr(settings, "segment_weights", "none") != "none"
    ):
        yield Mistake(
            "segment_weights",
            "ZeRO-3 loses a part of the gradients of tokens with weights.",
            "Take --deepspeed deepspeed/zero2.json.",
        )


def _bits(settings: TrainerSettings) -> int:
    return 4 if settings.load_in_4bit else 8 if settings.load_in_8bit else 0


def _part(config: dict[str, object], name: str) -> dict[str, object]:
    part = config.get(name)
    return part if isinstance(part, dict) else {}


def trainer_config(name: str) -> dict[str, object] | None:
    """The configuration as transformers takes it; None without one. Joins the processes on a
    CPU.
    """
    if not name:
        return None
    config = read(name)
    # warnings of DeepSpeed's own calls
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
    if not on_gpu():
        import deepspeed

        # it would be compiled otherwise, and gloo does without it
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        # accelerate does this with CUDA only
        deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    return config
