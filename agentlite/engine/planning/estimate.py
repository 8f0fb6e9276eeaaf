"""A command's settings, a model's shape and the data -> the memory, time and disk it needs."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from agentlite.config.settings import InMemory
from agentlite.core.errors import UserError
from agentlite.engine.planning.gpus import GpuSpeed, Machine
from agentlite.engine.planning.memory import (
    GIB,
    OPTIMIZER_BYTES,
    REGIMES,
    SMALL_CARD,
    Load,
    Memory,
    fixed_bytes,
    fixed_terms,
    host_bytes,
    memory,
    row_columns,
    rows_at_once,
    vllm_total,
)
from agentlite.engine.planning.model_shape import Shape, shape_of
from agentlite.workspace import lookup

VLLM_SHARE = 0.3  # of the card, where `trl` does not say another: TRL's default
LEAST_CACHE = 512  # tokens beside the longest row: Unsloth rounds a cache down to 256
LEAST_OFFLOADED = 512  # of max_length: below, Unsloth leaves checkpoints on the GPU
# per token, with transformers' generate on an A100, for any size (Qwen2.5's speed benchmark)
HOST_SECONDS = 0.025
CHECKPOINTS = 3  # the newest two, and the best


class RowLengths(NamedTuple):
    """How many rows a stage has, the tokens of the longest and their mean; 0: unknown."""

    rows: int = 0
    longest: int = 0
    mean: float = 0.0


class MemoryNeed(Struct, frozen=True):
    """GiB by term at the moment of the largest need, their total, the GiB there are (`of`), and
    whether the total fits with 8 % to spare.
    """

    terms: dict[str, float]
    total: float
    moment: str
    moments: dict[str, float]
    of: float
    fits: bool


class ResourcePlan(Struct, frozen=True):
    """What one set of settings needs: memory in GiB, disk in GB, time in seconds and hours."""

    bits: int
    batch_size: int
    length: int
    length_from: str
    gib: MemoryNeed
    time: dict[str, float]
    disk_gb: dict[str, float]
    vllm: dict[str, float]  # of an engine that shares the weights: its share of the card, its cache
    host_gib: float  # of activations that wait in host memory
    sampled: dict[str, int]  # answers that are sampled together, and how many the card has room for


def estimate(settings: Any, shape: Shape, machine: Machine, longest: int = 0) -> Memory:
    """`longest`: tokens of the longest row, prompt and answer together; 0: unknown. A share of the
    card that is set for vLLM is left out. With Unsloth that share is planned, unless `trl` sets it.
    """
    load = load_of(settings, shape, machine.gpu, longest, machine.card_bytes)
    share = (_share_set(settings) or 0.0) if machine.gpu else 0.0
    return memory(load, max(0.0, machine.capacity - share * machine.card_bytes))


def memory_need(memory: Memory) -> MemoryNeed:
    def in_gib(terms: Mapping[str, float]) -> dict[str, float]:
        return {name: round(value / GIB, 2) for name, value in terms.items()}

    return MemoryNeed(
        in_gib(memory.terms),
        round(memory.total / GIB, 2),
        memory.moment,
        in_gib(memory.moments),
        round(memory.capacity / GIB, 2),
        memory.fits,
    )


def plan(settings: Any, shape: Shape, machine: Machine, data: RowLengths) -> ResourcePlan:
    memory = estimate(settings, shape, machine, data.longest)
    load = memory.load
    is_from_data = data.longest and load.length < settings.max_length
    vllm = {"share": vllm_share(load, machine.card_bytes), "cached_tokens": load.cached_columns}
    return ResourcePlan(
        load.bits,
        load.rows if settings.in_memory(machine.gpu).packed else settings.batch_size,
        load.length,
        settings.data if is_from_data else "max_length",
        memory_need(memory),
        _time(settings, load, machine, data),
        _disk_sizes(load) if load.rows else {},
        vllm if load.vllm and not load.standby else {},  # with standby Unsloth chooses the share
        round(host_bytes(load) / GIB, 2),
        {"together": load.sampled_answers, "room": load.room} if load.room else {},
    )


def load_of(
    settings: Any, shape: Shape, gpu: bool, longest: int = 0, card: float = SMALL_CARD
) -> Load:
    """What is in memory under `settings`. `longest`: see `estimate`. `card`: its bytes, by which
    rows are sampled together.
    """
    regime, trl = REGIMES[settings.engine if gpu else "cpu"], getattr(settings, "trl", {})
    if trl.get("gradient_checkpointing") is False:
        regime = regime._replace(checkpoints="none")
    elif regime.checkpoints == "offloaded" and settings.max_length < LEAST_OFFLOADED:
        regime = regime._replace(checkpoints="kept")
    optim = trl.get("optim", "adamw_8bit" if gpu else "adamw_torch")
    bits = 4 if settings.load_in_4bit else 8 if settings.load_in_8bit else 16 if gpu else 32
    in_memory: InMemory = settings.in_memory(gpu)
    longest_row = min(settings.max_length, longest or settings.max_length)
    load = Load(
        shape,
        regime,
        bits,
        getattr(settings, "lora_r", 0),
        getattr(settings, "lora_target_modules", ()),
        optim if optim in OPTIMIZER_BYTES else "adamw_torch",
        getattr(settings, "full", False),
        in_memory.reference,
        in_memory.rows,
        settings.max_length if in_memory.packed else longest_row,
    )
    if not in_memory.samples:
        return load
    prompts, new_tokens = in_memory.prompts, settings.max_new_tokens
    answers = prompts * in_memory.samples
    if gpu and getattr(settings, "vllm", False):
        if _share_set(settings) is not None:
            return load._replace(in_share=settings.engine == "unsloth")
        # the cache of an engine that shares the weights holds all answers of a step, each prompt
        # once, and one row of max_length in any case: a shorter one Unsloth would not let it read
        load = _with_cache(load, prompts, answers, new_tokens)
        columns = max(load.cached_columns, settings.max_length + LEAST_CACHE)
        standby = "standby" in settings.vllm_levers
        return load._replace(vllm=True, cached_columns=columns, standby=standby)
    # as engine.local_sampler works: a prompt is in the cache once, however many answers it gets;
    # but with Unsloth on a GPU every answer has a row
    if gpu and settings.engine == "unsloth":
        fixed = fixed_bytes(load) if load.rows else 0.0
        prompt = max(1, load.length - new_tokens)
        room = rows_at_once(shape, card, prompt, new_tokens, in_memory.samples, fixed)
        load = load._replace(room=room)
    samples = _with_cache(load, prompts, answers, new_tokens, load.room)
    if not in_memory.greedy:
        return samples
    # a batch of answers without samples is decoded as it is
    greedy = _with_cache(load, prompts, prompts, new_tokens, load.room and prompts)
    return max(greedy, samples, key=lambda load: memory(load).total)


def _with_cache(load: Load, prompts: int, answers: int, new_tokens: int, rows: int = 0) -> Load:
    """`rows`: at most so many answers are extended together, each in a row; 0: all, of which those
    to a prompt share its columns.
    """
    prompt, batch = max(1, load.length - new_tokens), answers
    if rows:
        batch = min(rows, answers)
        # Answers to a prompt stand side by side, and a batch may begin and end amid them: 18 of 64
        # answers to 16 prompts may be the last of one, all of four others and the first of a sixth.
        prompts = min(prompts, batch * prompts // answers + 2, batch)
        answer_columns = row_columns(prompt, new_tokens)
    else:
        answer_columns = min(load.length, new_tokens)
    tokens = prompts * prompt
    columns = tokens + batch * answer_columns
    return load._replace(sampled_answers=batch, prompt_tokens=tokens, cached_columns=columns)


def _share_set(settings: Any) -> float | None:
    """The share of the card that settings give to vLLM. None: without vLLM, or where it shares the
    weights with Unsloth, and what it needs is planned.
    """
    if not getattr(settings, "vllm", False):
        return None
    share = settings.trl.get("vllm_gpu_memory_utilization")
    return VLLM_SHARE if share is None and settings.engine == "hf" else share


def vllm_share(load: Load, total: float) -> float:
    """The share of a card of `total` bytes that vLLM gets where it shares the weights, in
    hundredths."""
    return math.ceil(100 * vllm_total(load) / total) / 100


def training_bytes(settings: Any, model: Any, teacher_parameters: int = 0) -> float:
    """The bytes of a GPU that are in use in every moment of a training; 0 for a model whose memory
    cannot be planned. `teacher_parameters`: those of a model beside it.
    """
    try:
        shape = shape_of(model.config.to_dict(), model.name_or_path)
    except UserError:
        return 0.0
    return fixed_bytes(load_of(settings, shape._replace(teacher=teacher_parameters), True))


def data_of(settings: Any, run: Path) -> RowLengths:
    """The rows of the finished prep that the command reads, or that its pairs came from, by
    stats.json. Where answers are sampled, their tokens are added to those of a row. The rollouts
    of an environment are as long as max_length lets them be: nothing is known of them before."""
    if getattr(settings, "env", "") or not hasattr(settings, "data"):
        return RowLengths()
    folder, pairs_folder = lookup.find_stage(settings.data, run), None
    if prep_name := lookup.stored_settings(settings.data, run).get("data"):
        # pairs name their prep as it is called in the workspace that they are in
        folder, pairs_folder = lookup.find_stage(str(prep_name), folder.parent), folder
    prep = lookup.read_stage(folder).trusted()
    is_prep = prep.plan is not None and prep.plan.command == "prep"
    has_stats = is_prep and prep.done and (folder / "stats.json").exists()
    stats = json.loads((folder / "stats.json").read_bytes()) if has_stats else {}
    records = sum(stats.get("by_source", {}).values())
    if not records:
        return RowLengths()
    if hasattr(settings, "split"):  # each turn of the assistant is asked; their mean is not known
        split_records = stats.get(settings.split, records)  # `all`, which eval has
        rows = min(settings.limit or split_records, split_records) * stats["turns"]["50%"]
    else:
        rows = stats["train_rows"]
    new_tokens = getattr(settings, "max_new_tokens", 0)
    if pairs_folder:
        new_tokens = lookup.stored_settings(settings.data, run).get("max_new_tokens", 0)
        if lookup.is_finished(pairs_folder):
            rows = lookup.finished_stage(pairs_folder, "pairs").figures.get("pairs", 0)
    longest = stats["length"]["100%"] + int(new_tokens)
    return RowLengths(rows, longest, stats["tokens"]["all"] / records)


def _time(settings: Any, load: Load, machine: Machine, data: RowLengths) -> dict[str, float]:
    """Seconds per step, and hours if the number of steps is known. The steps of pairs and eval are
    batches. None of them for an environment: how many turns a task takes is not known.
    """
    if getattr(settings, "env", ""):
        return {}
    seconds, rows = 0.0, settings.batch_size
    passes = getattr(settings, "passes", 1)  # an answer of PPO is sampled once for several steps
    if load.rows:
        rows *= settings.gradient_accumulation
        mean = min(data.mean or load.length, load.length)
        tokens = settings.gradient_accumulation * load.rows * mean
        seconds += tokens * operations(load) / _speed(load, machine.card)
    if load.sampled_answers and not load.vllm:  # vLLM's speed was never measured
        in_memory: InMemory = settings.in_memory(machine.gpu)
        # the samples of eval come after a greedy answer to each
        greedy_answers = rows if in_memory.greedy and settings.num_samples else 0
        answers = greedy_answers + (rows if load.rows else rows * in_memory.samples)
        batches = math.ceil(answers / load.sampled_answers)
        batch_seconds = _sampling_seconds(load, machine.card, settings.max_new_tokens)
        seconds += batches * batch_seconds / passes
    total_rows = data.rows * getattr(settings, "group_size", 1) * getattr(settings, "num_epochs", 1)
    steps = getattr(settings, "max_steps", None) or math.ceil(total_rows * passes / rows)
    totals = {"steps": steps, "hours": round(seconds * steps / 3600, 2)} if steps else {}
    return {"seconds_a_step": round(seconds, 2), **totals}


def operations(load: Load) -> float:
    """Floating-point operations per token of a micro-batch: forward, again for checkpoints,
    backward, and the forward of the reference, or of a teacher.
    """
    shape, forward = load.shape, _forward_operations(load)
    attention = 2 * shape.layers * shape.heads * shape.head_dim * load.length
    # frozen weights need no gradient, attention has no weights: its backward pass is whole
    backward = 2 * forward if load.full else forward + attention
    recomputed = forward if load.regime.checkpoints != "none" else 0
    return forward + recomputed + backward + (forward if load.reference else 0) + 2 * shape.teacher


def _forward_operations(load: Load) -> float:
    """Two operations per weight, with the head, and those of causal attention."""
    shape = load.shape
    attention = 2 * shape.layers * shape.heads * shape.head_dim * load.length
    return 2 * (shape.linear + shape.vocab * shape.hidden) + attention


def _speed(load: Load, card: GpuSpeed) -> float:
    """Operations per second. Of a card's peak published runs reach 48 to 74 % with Unsloth from 3B
    on, about 40 % with plain transformers, and 25 to 40 % for small models, whose kernels wait for
    the host."""
    return card.tflops * 1e12 * (0.5 if load.shape.parameters > 2e9 else 0.3)


def _sampling_seconds(load: Load, card: GpuSpeed, new_tokens: int) -> float:
    """For sampling all answers of a batch: reading its prompts, then for each token a pass over the
    weights and the rows of the cache.
    """
    prompt_seconds = load.prompt_tokens * _forward_operations(load) / _speed(load, card)
    # `cached_columns` may count buffers: a pass reads `length` for each answer at the most
    columns = min(load.cached_columns, load.sampled_answers * load.length)
    cache = columns * load.shape.keys_and_values * load.value_bytes
    card_seconds = (fixed_terms(load)["weights"] + cache) / (card.bandwidth * 1e9)
    return prompt_seconds + new_tokens * max(HOST_SECONDS, card_seconds)


def _disk_sizes(load: Load) -> dict[str, float]:
    """GB by file; `merged` is the whole model in 16 bit, written only by `export --merged`."""
    fixed, merged = fixed_terms(load), 2.0 * load.shape.parameters
    result = merged if load.full else fixed["adapter"]
    files = {
        "checkpoints": CHECKPOINTS * (result + fixed["optimizer"]),
        "model" if load.full else "adapter": result,
        "merged": merged,
    }
    return {name: round(value / 1e9, 3) for name, value in files.items()}
