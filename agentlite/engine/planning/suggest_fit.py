"""The largest micro-batch and the longest rows that fit a machine, as settings to paste; memory
against length; and what a `--dry-run` says.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.engine.planning.estimate import estimate, load_of
from agentlite.engine.planning.gpus import Machine, machine_of
from agentlite.engine.planning.memory import GIB, memory
from agentlite.engine.planning.model_shape import Shape, find_shape, with_teacher

# as many rows fit only where they are not in memory at once: then there is nothing to change
MOST_ROWS = 1 << 12
SHORTEST, LONGEST = 256, 1 << 17  # tokens of a sweep


class FittingRows(Struct, frozen=True):
    """With weights of so many bits: rows of `length` tokens in a micro-batch, and the longest row
    alone; 0: none. `paste` keeps the rows of a step: batch_size times gradient_accumulation."""

    bits: int
    length: int
    batch_size: int
    max_length: int
    paste: str


def dry_run_memory(
    command: str, settings: object, base: str, longest: int, run: Path | None = None
) -> dict[str, object]:
    """GiB by term, or why they are not known. Where the settings do not fit, a notice names the
    nearest that do.

    `longest`: tokens of the longest row, prompt and answer together; 0: unknown. `run`: where the
    teacher is, if the settings name one.
    """
    try:
        shape = with_teacher(find_shape(base), settings, run or Path())
    except UserError as error:
        return {"unknown": error.problem}
    machine = machine_of("auto")
    need = estimate(settings, shape, machine, longest).needed()
    if not need.fits:
        rows = fitting(command, settings, shape, machine, longest)
        paste = next((row.paste for row in rows if row.paste), "")
        console.notice(
            f"{command}: {need.total} GiB are more than is safe in {need.of}; "
            f"{f'what fits: {paste}' if paste else 'take a smaller model'}"
        )
    return {**need.terms, "total": need.total, "of": need.of, "fits": need.fits}


def sweep(settings: Any, shape: Shape) -> str:
    """A table: the GiB that one row in a micro-batch takes on a GPU, by its tokens and by bits."""

    def gib(tokens: int, in_4bit: bool) -> str:
        changes = {"load_in_4bit": in_4bit, "load_in_8bit": False, "batch_size": 1}
        changed = replace(settings, max_length=tokens, **changes)
        return f"{memory(load_of(changed, shape, gpu=True)).total / GIB:10.2f}"

    lengths, longest = [SHORTEST], min(LONGEST, shape.max_positions)
    while 2 * lengths[-1] <= longest:
        lengths.append(2 * lengths[-1])
    rows = [f"{tokens:6} {gib(tokens, True)} {gib(tokens, False)}" for tokens in lengths]
    return "\n".join(["tokens  4-bit GiB 16-bit GiB", *rows])


def fitting(
    command: str, settings: Any, shape: Shape, machine: Machine, longest: int = 0
) -> list[FittingRows]:
    """For weights of 4 and of 16 bit on a GPU, of 32 on a CPU."""

    def fit(bits: int) -> FittingRows:
        precise = replace(settings, load_in_4bit=bits == 4, load_in_8bit=False)

        def holds(**changed: int) -> bool:
            longest_row = 0 if "max_length" in changed else longest
            return estimate(replace(precise, **changed), shape, machine, longest_row).fits()

        length = min(settings.max_length, longest or settings.max_length)
        rows = largest(lambda rows: holds(batch_size=rows), MOST_ROWS)
        rows = settings.batch_size if rows == MOST_ROWS else rows
        tokens = largest(lambda tokens: holds(batch_size=1, max_length=tokens), shape.max_positions)
        near = precise if rows else replace(precise, max_length=tokens)
        paste = _paste(command, near, max(1, rows)) if tokens else ""
        return FittingRows(bits, length, rows, tokens, paste)

    return [fit(bits) for bits in ((4, 16) if machine.gpu else (32,))]


def largest(holds: Callable[[int], bool], most: int) -> int:
    """The largest number up to `most` for which `holds` is true; 0: for none. It must be true for
    every smaller number as well.
    """
    low, high = 0, 1
    while high <= most and holds(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _paste(command: str, settings: Any, rows: int) -> str:
    """The settings that memory depends on; `gradient_accumulation` keeps the rows of a step."""
    pasted: dict[str, Any] = {
        "load_in_4bit": str(settings.load_in_4bit).lower(),
        "max_length": settings.max_length,
        "batch_size": rows,
    }
    if hasattr(settings, "gradient_accumulation"):
        step = settings.batch_size * settings.gradient_accumulation
        pasted["batch_size"] = max(
            size for size in range(1, min(rows, step) + 1) if step % size == 0
        )
        pasted["gradient_accumulation"] = step // pasted["batch_size"]
    return " ".join(f"--set {command}.{key}={value}" for key, value in pasted.items())
