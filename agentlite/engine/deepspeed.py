"""--deepspeed and the number of processes -> DeepSpeed's configuration."""

import json
import warnings
from typing import Any

from agentlite.config.pipeline import STAGES
from agentlite.config.resolve import find_file
from agentlite.config.settings import TrainerSettings, default
from agentlite.core import distributed
from agentlite.core.errors import UserError
from agentlite.engine import on_gpu
from agentlite.workspace.digests import file_digest

TOGETHER = tuple(name for name, stage in STAGES.items() if stage.torchrun)


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
