"""`--profile auto`: the precision and the micro-batch of a command, for this model on this card."""

from collections.abc import Iterator, Set
from typing import Any, NamedTuple

from msgspec.structs import replace

from agentlite.config.resolve import Resolved
from agentlite.engine.planning.estimate import Estimate, estimate
from agentlite.engine.planning.gpus import Machine
from agentlite.engine.planning.memory import GIB, MARGIN
from agentlite.engine.planning.model_shape import Shape

# 16 bit is taken only with this share to spare, for one row: no published run needed 20 % more than
# is planned for it. A micro-batch that is too large is halved; a precision stays.
CAUTION = 0.2
CHOSEN = ("load_in_4bit", "batch_size", "gradient_accumulation", "batch_tokens")


class AutoSettings(NamedTuple):
    """The settings that nobody set, and why they are so."""

    values: dict[str, Any]
    reason: str


class _Option(NamedTuple):
    """A precision and a micro-batch, and what they are planned to take."""

    values: dict[str, Any]
    estimate: Estimate

    @property
    def gib(self) -> float:
        return self.estimate.memory.total / GIB


def set_already(resolved: Resolved) -> set[str]:
    """Those of `CHOSEN` that the user or an earlier stage has set."""
    return {key for key in CHOSEN if key in resolved.origin and resolved.was_set(key)}


def keys_to_choose(resolved: Resolved) -> set[str]:
    """The settings that `auto_settings` would choose; the others stay as they are."""
    fixed = set_already(resolved)
    return {"load_in_4bit", *next(_micro_batches(resolved.settings, fixed))} - fixed


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
    quantised = [False, True]
    if "load_in_4bit" in fixed or settings.load_in_8bit:
        quantised = [settings.load_in_4bit]
    elif trained_in_4bit:
        quantised = [True]

    def options(in_4bit: bool) -> list[_Option]:
        """From the largest micro-batch to the smallest."""
        every = [
            {"load_in_4bit": in_4bit, **micro_batch}
            for micro_batch in _micro_batches(settings, fixed)
        ]
        return [
            _Option(values, estimate(replace(settings, **values), shape, machine, longest))
            for values in every
        ]

    chosen = options(quantised[0])
    most_precise = chosen[-1]
    if len(quantised) > 1 and not most_precise.estimate.fits(CAUTION):
        chosen = options(True)
    # where sampling alone is too much, a smaller micro-batch would not help
    least = next(option for option in chosen if option.gib <= chosen[-1].gib)
    best = next((option for option in chosen if option.estimate.fits()), least)
    return AutoSettings(best.values, _why(best, most_precise, settings, machine))


def _micro_batches(settings: Any, fixed: Set[str]) -> Iterator[dict[str, int]]:
    """From the largest to the smallest. Where a part of a micro-batch is fixed, only that one."""
    packed = settings.in_memory(True).packed
    rows, unit = ("batch_tokens", settings.max_length) if packed else ("batch_size", 1)
    if {rows, "gradient_accumulation"} & fixed:
        yield {}
    elif not hasattr(settings, "gradient_accumulation"):  # answers are the same in any batches
        size = settings.batch_size
        while size:
            yield {rows: size}
            size //= 2
    else:
        step = max(1, getattr(settings, rows) * settings.gradient_accumulation // unit)
        for size in range(step, 0, -1):
            if step % size == 0:
                yield {rows: size * unit, "gradient_accumulation": step // size}


def _why(best: _Option, most_precise: _Option, settings: Any, machine: Machine) -> str:
    """One line: `best` is what was chosen, `most_precise` what would be, with one row."""
    chosen = replace(settings, **best.values)
    rows = "batch_tokens" if chosen.in_memory(True).packed else "batch_size"
    batch = f"{rows} {getattr(chosen, rows)}"
    if hasattr(chosen, "gradient_accumulation"):
        batch += f" x {chosen.gradient_accumulation}"
    name = f" free on {machine.name}" if machine.name else ""
    bits, free = best.estimate.load.bits, f"{best.estimate.capacity / GIB:.1f} GiB{name}"
    parts = [f"{bits} bit and {batch} take {best.gib:.1f} of {free}, calculated"]
    if bits < most_precise.estimate.load.bits:
        precise = most_precise.estimate.load.bits
        parts.append(f"{precise} bit would take {most_precise.gib:.1f} or more")
    if not best.estimate.fits():
        parts.append(f"this leaves less than {MARGIN:.0%} free: take a smaller model or max_length")
    if not machine.bf16:
        parts.append("float16, as the card has no bfloat16")
    return "; ".join(parts)
