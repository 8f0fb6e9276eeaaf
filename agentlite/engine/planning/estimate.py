"""A command's settings, a model's shape and the data -> the memory and disk it needs."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from agentlite.config.settings import InMemory
from agentlite.core.errors import UserError
from agentlite.engine.planning.gpus import Machine
from agentlite.engine.planning.memory import (
    GIB,
    OPTIMIZER,
    REGIMES,
    SMALL_CARD,
    Load,
    Memory,
    cached_columns,
    fixed_bytes,
    fixed_terms,
    host_bytes,
    memory,
    rows_at_once,
    vllm_total,
)
from agentlite.engine.planning.model_shape import Shape, shape_of
from agentlite.workspace import stage_folder

VLLM_SHARE = 0.3  # of the card, where `trl` does not say another: TRL's default
LEAST_CACHE = 512  # tokens beside the longest row: Unsloth rounds a cache down to 256
LEAST_OFFLOADED = 512  # of max_length: below, Unsloth leaves checkpoints on the GPU
CHECKPOINTS = 3  # the newest two, and the best


class Needed(Struct, frozen=True):
    """GiB by term at the moment of the largest need, their total, the GiB there are (`of`), and
    whether the total fits with 8 % to spare.
    """

    terms: dict[str, float]
    total: float
    moment: str
    moments: dict[str, float]
    of: float
    fits: bool


class Planned(Struct, frozen=True):
    """What one set of settings needs: memory in GiB, disk in GB."""

    bits: int
    batch_size: int
    length: int
    length_from: str
    gib: Needed
    disk_gb: dict[str, float]
    vllm: dict[str, float]  # of an engine that shares the weights: its share of the card, its cache
    host_gib: float  # of activations that wait in host memory
    sampled: dict[str, int]  # answers that are sampled together, and how many the card has room for


def estimate(settings: Any, shape: Shape, machine: Machine, longest: int = 0) -> Memory:
    """`longest`: tokens of the longest row, prompt and answer together; 0: unknown. A share of the
    card that is set for vLLM is left out. With Unsloth that share is planned, unless `trl` sets it.
    """
    load = load_of(settings, shape, machine.gpu, longest, machine.whole)
    share = (_share_set(settings) or 0.0) if machine.gpu else 0.0
    return memory(load, max(0.0, machine.capacity - share * machine.whole))


def needed(planned: Memory) -> Needed:
    def in_gib(terms: Mapping[str, float]) -> dict[str, float]:
        return {name: round(value / GIB, 2) for name, value in terms.items()}

    return Needed(
        in_gib(planned.terms),
        round(planned.total / GIB, 2),
        planned.moment,
        in_gib(planned.moments),
        round(planned.capacity / GIB, 2),
        planned.fits,
    )


def plan(settings: Any, shape: Shape, machine: Machine, longest: int = 0) -> Planned:
    """`longest`: see `estimate`."""
    estimated = estimate(settings, shape, machine, longest)
    load = estimated.load
    of_data = longest and load.length < settings.max_length
    vllm = {"share": vllm_share(load, machine.whole), "cached_tokens": load.cached}
    return Planned(
        load.bits,
        load.rows if settings.in_memory(machine.gpu).packed else settings.batch_size,
        load.length,
        settings.data if of_data else "max_length",
        needed(estimated),
        _disk(load) if load.rows else {},
        vllm if load.vllm and not load.standby else {},  # with standby Unsloth chooses the share
        round(host_bytes(load) / GIB, 2),
        {"together": load.sampled, "room": load.room} if load.room else {},
    )


def load_of(
    settings: Any, shape: Shape, gpu: bool, longest: int = 0, card: float = SMALL_CARD
) -> Load:
    """What is in memory under `settings`. `longest`: see `estimate`. `card`: its bytes, by which
    rows are sampled together.
    """
    regime, passed = REGIMES[settings.engine if gpu else "cpu"], getattr(settings, "trl", {})
    if passed.get("gradient_checkpointing") is False:
        regime = regime._replace(checkpoints="none")
    elif regime.checkpoints == "offloaded" and settings.max_length < LEAST_OFFLOADED:
        regime = regime._replace(checkpoints="kept")
    optim = passed.get("optim", "adamw_8bit" if gpu else "adamw_torch")
    bits = 4 if settings.load_in_4bit else 8 if settings.load_in_8bit else 16 if gpu else 32
    held: InMemory = settings.in_memory(gpu)
    longest_row = min(settings.max_length, longest or settings.max_length)
    load = Load(
        shape,
        regime,
        bits,
        getattr(settings, "lora_r", 0),
        getattr(settings, "lora_target_modules", ()),
        optim if optim in OPTIMIZER else "adamw_torch",
        getattr(settings, "full", False),
        held.reference,
        held.rows,
        settings.max_length if held.packed else longest_row,
    )
    if not held.samples:
        return load
    answers, new_tokens = held.prompts * held.samples, settings.max_new_tokens
    if gpu and getattr(settings, "vllm", False):
        if _share_set(settings) is not None:
            return load._replace(in_share=settings.engine == "unsloth")
        # the cache of an engine that shares the weights holds all answers of a step, each prompt
        # once, and one row of max_length in any case: a shorter one Unsloth would not let it read
        load = _cached(load, held.prompts, answers, new_tokens)
        cached = max(load.cached, settings.max_length + LEAST_CACHE)
        standby = "standby" in settings.vllm_levers
        return load._replace(vllm=True, cached=cached, standby=standby)
    # as engine.local_sampler works: a prompt is in the cache once, however many answers it gets;
    # but with Unsloth on a GPU every answer has a row
    if gpu and settings.engine == "unsloth":
        fixed = fixed_bytes(load) if load.rows else 0.0
        prompt = max(1, load.length - new_tokens)
        room = rows_at_once(shape, card, prompt, new_tokens, held.samples, fixed)
        load = load._replace(room=room)
    samples = _cached(load, held.prompts, answers, new_tokens, load.room)
    if not held.greedy:
        return samples
    # a batch of answers without samples is decoded as it is
    greedy = _cached(load, held.prompts, held.prompts, new_tokens, load.room and held.prompts)
    return max(greedy, samples, key=lambda load: memory(load).total)


def _cached(load: Load, prompts: int, answers: int, new_tokens: int, rows: int = 0) -> Load:
    """`rows`: at most so many answers are extended together, each in a row; 0: all, of which those
    to a prompt share its columns.
    """
    prompt, new = max(1, load.length - new_tokens), min(load.length, new_tokens)
    if not rows:
        read = prompts * prompt
        return load._replace(sampled=answers, prompted=read, cached=read + answers * new)
    together = min(rows, answers)
    # side by side those to a prompt are cut once at each end
    read = min(prompts, together * prompts // answers + 2, together) * prompt
    cached = read + together * cached_columns(prompt, new_tokens)
    return load._replace(sampled=together, prompted=read, cached=cached)


def _share_set(settings: Any) -> float | None:
    if not getattr(settings, "vllm", False):
        return None
    share = settings.trl.get("vllm_gpu_memory_utilization")
    return VLLM_SHARE if share is None and settings.engine == "hf" else share


def vllm_share(load: Load, total: float) -> float:
    """The share of a card of `total` bytes that vLLM gets where it shares the weights, in
    hundredths."""
    return math.ceil(100 * vllm_total(load) / total) / 100


def kept_in_training(settings: Any, model: Any, teacher: int = 0) -> float:
    """The bytes of a GPU that are in use in every moment of a training; 0 for a model whose memory
    cannot be planned. `teacher`: the parameters of a model beside it.
    """
    try:
        shape = shape_of(model.config.to_dict(), model.name_or_path)
    except UserError:
        return 0.0
    return fixed_bytes(load_of(settings, shape._replace(teacher=teacher), True))


def longest_row(settings: Any, run: Path) -> int:
    """The tokens of the longest row of the finished prep that the command reads, or that its pairs
    came from, by stats.json; 0: unknown. Where answers are sampled, their tokens are added. The
    rollouts of an environment are as long as max_length lets them be: nothing is known of them
    before.
    """
    if getattr(settings, "env", "") or not hasattr(settings, "data"):
        return 0
    folder = stage_folder.find_stage(settings.data, run)
    stored = stage_folder.stored_settings(settings.data, run)
    new_tokens = getattr(settings, "max_new_tokens", 0)
    if came_from := stored.get("data"):
        # pairs name their prep as it is called in the workspace that they are in
        folder = stage_folder.find_stage(str(came_from), folder.parent)
        new_tokens = stored.get("max_new_tokens", 0)
    prepared = stage_folder.read(folder).trusted()
    is_prep = prepared.plan is not None and prepared.plan.command == "prep"
    if not is_prep or not prepared.done or not (folder / "stats.json").exists():
        return 0
    longest = json.loads((folder / "stats.json").read_bytes()).get("length", {}).get("100%")
    return int(longest + new_tokens) if longest else 0


def _disk(load: Load) -> dict[str, float]:
    """GB by file; `merged` is the whole model in 16 bit, written only by `export --merged`."""
    fixed, merged = fixed_terms(load), 2.0 * load.shape.parameters
    result = merged if load.full else fixed["adapter"]
    written = {
        "checkpoints": CHECKPOINTS * (result + fixed["optimizer"]),
        "model" if load.full else "adapter": result,
        "merged": merged,
    }
    return {name: round(value / 1e9, 3) for name, value in written.items()}
