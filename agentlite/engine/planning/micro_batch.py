"""The micro-batch that fits into the memory of a machine without a GPU."""

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from agentlite.core import distributed
from agentlite.core.errors import UserError
from agentlite.engine.planning.estimate import load_of, whole
from agentlite.engine.planning.gpus import machine_of
from agentlite.engine.planning.memory import fits, memory
from agentlite.engine.planning.model_shape import find_shape, with_teacher
from agentlite.engine.trainer import Schedule


def micro_batch_in_memory(
    command: str, settings: Any, base: str, longest: int, run: Path
) -> Schedule:
    """One step of the settings, in micro-batches that are planned to fit; else in the largest of
    those that need least.

    A GPU says when its memory is full, and then the micro-batch is halved. Without one, the system
    drops every file from memory that it can read again, and the machine stands still for minutes
    before a process is killed. `longest`: tokens of the longest row. `run`: where the teacher is.
    """
    whole_batch = Schedule(1, settings.batch_size, settings.gradient_accumulation)
    machine = machine_of("auto")
    if machine.gpu or distributed.count() > 1:
        return whole_batch
    try:
        shape = with_teacher(find_shape(base), settings, run)
    except UserError:  # nothing can be planned
        return whole_batch

    def total(micro: Schedule) -> float:
        rows = {
            "batch_size": micro.batch_size,
            "gradient_accumulation": micro.gradient_accumulation,
        }
        load = load_of(command, replace(settings, **rows), shape, False, longest, whole(machine))
        return memory(load).total

    sizes = [whole_batch]
    while smaller := sizes[-1].in_smaller():
        sizes.append(smaller)
    # where sampling alone is too much, a smaller micro-batch would not help
    least = next(micro for micro in sizes if total(micro) <= total(sizes[-1]))
    return next((micro for micro in sizes if fits(total(micro), machine.capacity)), least)
