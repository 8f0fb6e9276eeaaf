"""A command's settings, a model's shape, the data that is there -> what the command needs: memory,
time, disk.
"""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from agentlite.config.settings import (
    DpoSettings,
    EvalSettings,
    GrpoSettings,
    PairsSettings,
    SftSettings,
)
from agentlite.engine.planning.gpus import Machine
from agentlite.engine.planning.memory import GIB, OPTIMIZER, REGIMES, Load, Memory, fits, memory
from agentlite.engine.planning.model_shape import Shape
from agentlite.engine.planning.time_and_disk import disk, sampling_seconds, training_seconds
from agentlite.workspace import run_folder
from agentlite.workspace.lineage import setting_of

LEAST_OFFLOADED = 512  # of max_length: below, Unsloth leaves checkpoints on the GPU


class RowLengths(NamedTuple):
    """Rows of a finished stage: how many, the tokens of the longest and in the mean. 0: not
    known.
    """

    rows: int = 0
    longest: int = 0
    mean: float = 0.0


class Needed(Struct, frozen=True):
    """GiB by term at the moment when most is needed, the total, what there is, and whether 8 % more
    would fit.
    """

    terms: dict[str, float]
    total: float
    moment: str
    moments: dict[str, float]
    of: float
    fits: bool


class Planned(Struct, frozen=True):
    """What one set of settings needs. Disk in GB; time is calculated."""

    bits: int
    batch_size: int
    length: int
    length_from: str
    gib: Needed
    time: dict[str, float]
    disk_gb: dict[str, float]


def plan(command: str, settings: Any, shape: Shape, machine: Machine, data: RowLengths) -> Planned:
    load = load_of(command, settings, shape, machine.gpu, data.longest)
    of_data = data.longest and load.length < settings.max_length
    rows = load.rows if command == "sft" else settings.batch_size
    return Planned(
        load.bits,
        rows,
        load.length,
        settings.data if of_data else "max_length",
        needed(memory(load), machine),
        _time(command, settings, load, machine, data),
        disk(load) if load.rows else {},
    )


def needed(found: Memory, machine: Machine) -> Needed:
    return Needed(
        _gib(found.terms),
        round(found.total / GIB, 2),
        found.moment,
        _gib(found.moments),
        round(machine.capacity / GIB, 2),
        fits(found.total, machine.capacity),
    )


def _gib(parts: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value / GIB, 2) for name, value in parts.items()}


def load_of(command: str, settings: Any, shape: Shape, gpu: bool, longest: int = 0) -> Load:
    """The load that `settings` mean. `longest`: tokens of the longest row, prompt and answer
    together; 0: unknown.
    """
    regime, passed = REGIMES[settings.engine if gpu else "cpu"], getattr(settings, "trl", {})
    if passed.get("gradient_checkpointing") is False:
        regime = regime._replace(checkpoints="none")
    elif regime.checkpoints == "offloaded" and settings.max_length < LEAST_OFFLOADED:
        regime = regime._replace(checkpoints="kept")
    optim = passed.get("optim", "adamw_8bit" if gpu else "adamw_torch")
    bits = 4 if settings.load_in_4bit else 8 if settings.load_in_8bit else 16 if gpu else 32
    load = Load(
        shape,
        regime,
        bits,
        getattr(settings, "lora_r", 0),
        getattr(settings, "lora_target_modules", ()),
        optim if optim in OPTIMIZER else "adamw_torch",
        getattr(settings, "full", False),
        length=min(settings.max_length, longest or settings.max_length),
    )
    return LOADS[command](load, settings, gpu)


def _sft(load: Load, settings: SftSettings, gpu: bool) -> Load:
    """Packed rows are full, and as many as the run takes of them."""
    if settings.packing and gpu:
        return load._replace(rows=settings.packed_rows, length=settings.max_length)
    return load._replace(rows=settings.batch_size)


def _dpo(load: Load, settings: DpoSettings, gpu: bool) -> Load:
    """Chosen and rejected are rows of their own."""
    return load._replace(rows=2 * settings.batch_size, reference=not settings.reference_free)


def _grpo(load: Load, settings: GrpoSettings, gpu: bool) -> Load:
    """Every answer of a step is drawn before the first is learned from."""
    prompts = max(1, settings.batch_size * settings.gradient_accumulation // settings.group_size)
    training = load._replace(rows=settings.batch_size, reference=True)
    return _drawn(training, settings, prompts, settings.group_size, gpu)


def _pairs(load: Load, settings: PairsSettings, gpu: bool) -> Load:
    return _drawn(load, settings, settings.batch_size, settings.num_samples, gpu)


def _eval(load: Load, settings: EvalSettings, gpu: bool) -> Load:
    """The greedy answers; those of `num_samples` besides where they take more."""
    greedy = _cached(load, settings.batch_size, settings.batch_size, settings.max_new_tokens)
    others = _drawn(load, settings, settings.batch_size, max(1, settings.num_samples), gpu)
    return max(greedy, others, key=lambda one: memory(one).total)


LOADS: dict[str, Callable[[Load, Any, bool], Load]] = {
    "sft": _sft,
    "dpo": _dpo,
    "grpo": _grpo,
    "pairs": _pairs,
    "eval": _eval,
}


def _drawn(load: Load, settings: Any, prompts: int, samples: int, gpu: bool) -> Load:
    """As engine.sampling draws: a prompt stands once in the cache, however many answers it gets;
    but Unsloth on a GPU takes one prompt at a time, and reads it for every answer."""
    if gpu and settings.engine == "unsloth":
        return _cached(load, samples, samples, settings.max_new_tokens)
    return _cached(load, prompts, prompts * samples, settings.max_new_tokens)


def _cached(load: Load, prompts: int, answers: int, new_tokens: int) -> Load:
    read = prompts * max(1, load.length - new_tokens)
    return load._replace(
        sampled=answers, prompted=read, cached=read + answers * min(load.length, new_tokens)
    )


def data_of(command: str, settings: Any, run: Path) -> RowLengths:
    """Of the finished prep that is read, or that the pairs came from: what its stats.json says. To
    a row's tokens come those of an answer where one is drawn."""
    pairs = run_folder.find_stage(settings.data, run) if command == "dpo" else None
    folder = run_folder.find_stage(
        str(setting_of(settings.data, "data", run) or "") if pairs else settings.data, run
    )
    prepared = run_folder.read(folder).trusted()
    is_prep = prepared.plan is not None and prepared.plan.command == "prep"
    if not is_prep or not prepared.done or not (folder / "stats.json").exists():
        return RowLengths()
    stats = json.loads((folder / "stats.json").read_bytes())
    records = sum(stats.get("by_source", {}).values())
    if not records:
        return RowLengths()
    drawn = (
        setting_of(settings.data, "max_new_tokens", run)
        if pairs
        else getattr(settings, "max_new_tokens", 0)
    )
    rows = stats["train_rows"] if command == "sft" else stats[getattr(settings, "split", "train")]
    if pairs and run_folder.is_finished(pairs):
        rows = run_folder.finished(pairs, "pairs").figures.get("pairs", 0)
    return RowLengths(
        rows, stats["length"]["100%"] + int(drawn or 0), stats["tokens"]["all"] / records
    )


def _time(
    command: str, settings: Any, load: Load, machine: Machine, data: RowLengths
) -> dict[str, float]:
    """Seconds a step, and hours where it is known how many. The steps of pairs and eval are
    batches.
    """
    seconds, rows = 0.0, settings.batch_size
    if load.rows:
        rows *= settings.gradient_accumulation
        mean = min(data.mean or load.length, load.length)
        seconds += training_seconds(load, machine.card, settings.gradient_accumulation, mean)
    if load.sampled:
        answers = rows * getattr(settings, "num_samples", 1) if command == "pairs" else rows
        batches = math.ceil(answers / load.sampled)
        seconds += batches * sampling_seconds(load, machine.card, settings.max_new_tokens)
    wanted = data.rows * getattr(settings, "group_size", 1) * getattr(settings, "num_epochs", 1)
    steps = getattr(settings, "max_steps", None) or math.ceil(wanted / rows)
    known = {"steps": steps, "hours": round(seconds * steps / 3600, 2)} if steps else {}
    return {"seconds_a_step": round(seconds, 2), **known}
