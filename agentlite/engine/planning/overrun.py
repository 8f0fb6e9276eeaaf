"""A training that took far more of a GPU than was calculated -> a notice."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.engine.planning.estimate import load_of, whole
from agentlite.engine.planning.gpus import machine_of
from agentlite.engine.planning.memory import GIB, memory, overhead
from agentlite.engine.planning.model_shape import find_shape, with_teacher

# PyTorch reserves more than it gives out
RESERVED, SLACK = 1.5, GIB


def notice_overrun(
    command: str, settings: Any, base: str, run: Path, figures: Mapping[str, object]
) -> None:
    """The most that PyTorch reserved, `gpu_gib` of the figures, is held against a plan for rows of
    `max_length`, which no run exceeds. vLLM takes a share of the card by itself, and is left out.
    `run`: where the teacher is.
    """
    gib = figures.get("gpu_gib")
    if not isinstance(gib, float) or getattr(settings, "vllm", False):
        return
    try:
        shape = with_teacher(find_shape(base), settings, run)
    except UserError:  # nothing can be planned
        return
    load = load_of(command, settings, shape, True, 0, whole(machine_of("auto")))
    planned = memory(load).total - overhead(load)
    if gib * GIB > RESERVED * planned + SLACK:
        console.notice(
            f"{command}: the GPU held {gib} GiB, and at most {planned / GIB:.1f} were calculated. "
            "The run is well; please report it, with plan.json and `agentlite doctor`."
        )
