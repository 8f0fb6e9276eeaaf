"""The GPU of this machine, and the named profile whose memory it has."""

import functools
import os
import subprocess
from typing import Literal, NamedTuple

AUTO = "auto"  # `GPU` and then what the planner chooses by memory; without a GPU `CPU`
GPU, CPU = "gpu", "cpu"
ProfileName = Literal["auto", "cpu", "gpu", "rtx3060", "t4", "rtx4090", "a100"]
PROFILES = {
    "a100": 70,
    "rtx4090": 20,
    "t4": 12.5,
    "rtx3060": 0,
}  # free GB that each needs, the largest first


# of Unsloth on CUDA: without loss, and off unless asked for
SWITCHES = {
    "UNSLOTH_DECODE_CUDA_GRAPHS": "1",  # a decoding step is launched as a whole
}
GRAPHED = ("llama", "qwen3")  # the model_type of those whose decoding has such graphs


# no library reports what is done here; who wants to be counted says so in the environment
PRIVATE = {"HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "UNSLOTH_DISABLE_STATISTICS": "1"}
QUIET = {"HF_HUB_VERBOSITY": "error"}  # it would print each try of a request


class Gpu(NamedTuple):
    """An NVIDIA GPU. `total`, `free`: GB of memory. `capability`: of compute, 7.5 for a T4."""

    name: str
    total: float
    free: float
    capability: float = 8.6

    @property
    def bf16(self) -> bool:
        """Whether it computes in bfloat16, as from Ampere on."""
        return self.capability >= 8


def keep_private() -> None:
    """To be called before a library is imported that would tell others, or the screen."""
    for name, value in {**PRIVATE, **QUIET}.items():
        os.environ.setdefault(name, value)


def has_gpu() -> bool:
    return card() is not None


@functools.cache
def card() -> Gpu | None:
    """The first NVIDIA GPU, or None; asked of its driver, since torch takes seconds to load."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return None
    query = [
        "nvidia-smi",
        "--query-gpu=name,memory.total,memory.free,compute_cap",
        "--format=csv,noheader,nounits",
    ]
    try:
        answer = subprocess.run(
            query, capture_output=True, text=True, timeout=10, check=True
        ).stdout
        name, total, free, capability = answer.splitlines()[0].rsplit(",", 3)
        return Gpu(name.strip(), float(total) / 1024, float(free) / 1024, float(capability))
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        return None


def gpu_has_bf16() -> bool | None:
    """None without a GPU."""
    found = card()
    return found.bf16 if found else None


def profile_for(free: float) -> str:
    """The largest that so many GB are enough for."""
    return next((name for name, least in PROFILES.items() if free >= least), [*PROFILES][-1])
