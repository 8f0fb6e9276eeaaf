"""Settings that fit a machine: what `--profile auto` chooses, and what a plan suggests."""

from bisect import bisect_left
from collections.abc import Set
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from agentlite.config.resolve import ResolvedSettings
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.engine.planning.estimate import estimate, memory_need
from agentlite.engine.planning.gpus import Machine, machine_of
from agentlite.engine.planning.memory import GIB, MARGIN, Memory
from agentlite.engine.planning.model_shape import Shape, shape_under

CHOSEN_KEYS = ("load_in_4bit", "batch_size", "gradient_accumulation", "batch_tokens")


class AutoSettings(NamedTuple):
    """The settings that nobody set, and why they are so."""

    values: dict[str, Any]
    reason: str


class FittingRows(Struct, frozen=True):
    """With weights of so many bits: rows of `length` tokens in a micro-batch, and the longest row
    alone; 0: none. `paste` keeps the rows of a step: batch_size times gradient_accumulation."""

    bits: int
    length: int
    batch_size: int
    max_length: int
    paste: str


def fixed_keys(resolved: ResolvedSettings) -> set[str]:
    """Those of `CHOSEN_KEYS` that the user or an earlier stage has set."""
    return {key for key in CHOSEN_KEYS if key in resolved.origin and resolved.was_set(key)}


def auto_settings(
    settings: Any,
    fixed: Set[str],
    shape: Shape,
    machine: Machine,
    longest: int = 0,
    trained_in_4bit: bool = False,
) -> AutoSettings:
    """16 bit before 4 bit where one row fits with `CAUTION`, and then the largest micro-batch that
    fits. A step keeps its rows, and an adapter that was trained in 4 bit stays in it.

    `fixed`: settings that stay as they are. `machine` has a GPU. `longest`: tokens of the longest
    row; 0: unknown.
    """

    def list_options(in_4bit: bool) -> list[tuple[dict[str, Any], Memory]]:
        variant = replace(settings, load_in_4bit=in_4bit)
        batches = _micro_batches(variant, fixed, shape, machine, longest)
        return [({"load_in_4bit": in_4bit, **values}, memory) for values, memory in batches]

    is_set = "load_in_4bit" in fixed or settings.load_in_8bit
    candidates = list_options(settings.load_in_4bit if is_set else trained_in_4bit)
    most_precise = candidates[-1][1]
    if not (is_set or trained_in_4bit or most_precise.fits_for_good):
        candidates = list_options(True)
    # where sampling alone is too much, a smaller micro-batch would not help
    least_total = candidates[-1][1].total
    smallest = next(option for option in candidates if option[1].total <= least_total)
    values, best = next((option for option in candidates if option[1].fits), smallest)

    chosen = replace(settings, **values)
    key = "batch_tokens" if chosen.in_memory(True).packed else "batch_size"
    steps = f" x {chosen.gradient_accumulation}" if hasattr(chosen, "gradient_accumulation") else ""
    bits, free = best.load.bits, f" free on {machine.name}" if machine.name else ""
    precise_bits, precise_gib = most_precise.load.bits, most_precise.total / GIB
    reasons = [
        (
            True,
            f"{bits} bit and {key} {getattr(chosen, key)}{steps} take {best.total / GIB:.1f} of "
            f"{best.capacity / GIB:.1f} GiB{free}, calculated",
        ),
        (bits < precise_bits, f"{precise_bits} bit would take {precise_gib:.1f} or more"),
        (
            not best.fits,
            f"this leaves less than {MARGIN:.0%} free: take a smaller model or max_length",
        ),
        (not machine.bf16, "float16, as the card has no bfloat16"),
    ]
    return AutoSettings(values, "; ".join(reason for is_so, reason in reasons if is_so))


def _micro_batches(
    settings: Any, fixed: Set[str], shape: Shape, machine: Machine, longest: int
) -> list[tuple[dict[str, int], Memory]]:
    """From the largest to the smallest, with what they take. Where a part of a micro-batch is
    fixed, only that one.
    """
    packed = settings.in_memory(True).packed
    key, unit = ("batch_tokens", settings.max_length) if packed else ("batch_size", 1)
    batches: list[dict[str, int]] = []
    if {key, "gradient_accumulation"} & fixed:
        batches = [{}]
    elif not hasattr(settings, "gradient_accumulation"):  # answers are the same in any batches
        batches = [{key: settings.batch_size >> n} for n in range(settings.batch_size.bit_length())]
    else:
        rows = max(1, getattr(settings, key) * settings.gradient_accumulation // unit)
        sizes = (size for size in range(rows, 0, -1) if rows % size == 0)
        batches = [{key: size * unit, "gradient_accumulation": rows // size} for size in sizes]
    return [
        (batch, estimate(replace(settings, **batch), shape, machine, longest)) for batch in batches
    ]


def dry_run_memory(
    command: str, settings: object, base: str, longest: int, run: Path | None = None
) -> dict[str, object]:
    """GiB by term, or why they are not known. Where the settings do not fit, a notice names the
    nearest that do.

    `longest`: tokens of the longest row, prompt and answer together; 0: unknown. `run`: where the
    teacher is, if the settings name one.
    """
    try:
        shape = shape_under(settings, base, run or Path())
    except UserError as error:
        return {"unknown": error.problem}
    machine = machine_of("auto")
    need = memory_need(estimate(settings, shape, machine, longest))
    if not need.fits:
        rows = find_fitting_rows(command, settings, shape, machine, longest)
        paste = next((row.paste for row in rows if row.paste), "")
        console.notice(
            f"{command}: {need.total} GiB are more than is safe in {need.of}; "
            f"{f'what fits: {paste}' if paste else 'take a smaller model'}"
        )
    return {**need.terms, "total": need.total, "of": need.of, "fits": need.fits}


def find_fitting_rows(
    command: str, settings: Any, shape: Shape, machine: Machine, longest: int = 0
) -> list[FittingRows]:
    """For weights of 4 and of 16 bit on a GPU, of 32 on a CPU: the largest micro-batch and the
    longest row that fit.
    """
    fitting_rows = []
    for bits in (4, 16) if machine.gpu else (32,):
        variant = replace(settings, load_in_4bit=bits == 4, load_in_8bit=False)

        def is_too_long(tokens: int, settings: Any = variant) -> bool:
            changed = replace(settings, batch_size=1, max_length=tokens)
            return not estimate(changed, shape, machine).fits

        # Too long is too long for any longer one too, so half of the lengths is left at each look:
        # `tokens` is how many, from 1 on, are not too long, and so the longest of them.
        tokens = bisect_left(range(1, shape.max_positions + 1), True, key=is_too_long)
        micro_batches = _micro_batches(variant, set(), shape, machine, longest)
        largest = next((batch for batch, memory in micro_batches if memory.fits), None)
        values = {
            "load_in_4bit": str(variant.load_in_4bit).lower(),
            "max_length": settings.max_length if largest else tokens,
            **(largest or micro_batches[-1][0]),
        }
        paste = " ".join(f"--set {command}.{key}={value}" for key, value in values.items())
        rows = largest.get("batch_size", settings.batch_size) if largest else 0
        length = min(settings.max_length, longest or settings.max_length)
        fitting_rows.append(FittingRows(bits, length, rows, tokens, paste if tokens else ""))
    return fitting_rows
