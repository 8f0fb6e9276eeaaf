"""Seconds per step and GB on disk, calculated from operations and published speeds."""

from typing import NamedTuple

from agentlite.engine.planning.memory import Load, adapter, optimizer, weights
from agentlite.engine.planning.model_shape import Shape

# per token, with transformers' generate on an A100, for any size (Qwen2.5's speed benchmark)
HOST_SECONDS = 0.025
CHECKPOINTS = 3  # the newest two, and the best


class GpuSpeed(NamedTuple):
    """By the data sheet: GiB of memory; 10^12 dense operations per second in 16 bit with sums in
    float32; GB per second from memory. `cpu` is two cores, as measured in the demo's sft."""

    memory: float
    tflops: float
    bandwidth: float


# of those with the same memory the first stands for a card whose name is not known
CARDS = {
    "cpu": GpuSpeed(0, 0.3, 20),
    "rtx4060": GpuSpeed(8, 30.2, 272),
    "rtx2070": GpuSpeed(8, 29.9, 448),
    "rtx3070": GpuSpeed(8, 40.6, 448),
    "rtx3080": GpuSpeed(10, 59.5, 760),
    "rtx2080 ti": GpuSpeed(11, 53.8, 616),
    "rtx3060": GpuSpeed(12, 25.6, 360),
    "rtx4070": GpuSpeed(12, 58.3, 504),
    "rtx5070": GpuSpeed(12, 61.7, 672),
    "t4": GpuSpeed(15, 65, 320),
    "rtx4060 ti": GpuSpeed(16, 44.1, 288),
    "rtx5060 ti": GpuSpeed(16, 47.4, 448),
    "rtx4080": GpuSpeed(16, 97.5, 717),
    "rtx5070 ti": GpuSpeed(16, 87.9, 896),
    "rtx5080": GpuSpeed(16, 112.6, 960),
    "rtx4090": GpuSpeed(24, 165.2, 1008),
    "rtx3090": GpuSpeed(24, 71, 936),
    "l4": GpuSpeed(24, 121, 300),
    "a10": GpuSpeed(24, 125, 600),
    "a10g": GpuSpeed(24, 70, 600),
    "rtx5090": GpuSpeed(32, 209.5, 1792),
    "a100 40gb": GpuSpeed(40, 312, 1555),
    "a6000": GpuSpeed(48, 154.8, 768),
    "rtx6000 ada": GpuSpeed(48, 364, 960),
    "l40": GpuSpeed(48, 181, 864),
    "l40s": GpuSpeed(48, 362, 864),
    "a100": GpuSpeed(80, 312, 2039),
    "h100": GpuSpeed(80, 989, 3350),
    "pro 6000": GpuSpeed(96, 503.8, 1792),
    "h200": GpuSpeed(141, 989, 4800),
}


def efficiency(load: Load) -> float:
    """The share of a card's peak that published runs reach: 48 to 74 % with Unsloth from 3B on,
    about 40 % with plain transformers, and 25 to 40 % for small models, whose kernels wait for the
    host."""
    return 0.5 if load.shape.parameters > 2e9 else 0.3


def operations(load: Load) -> float:
    """Floating-point operations per token of a micro-batch: forward, again for checkpoints,
    backward, and the forward of the reference, or of a teacher.
    """
    forward = _forward(load.shape, load.length)
    attention = 2 * load.shape.layers * load.shape.heads * load.shape.head_dim * load.length
    # frozen weights need no gradient, attention has no weights: its backward pass is whole
    backward = 2 * forward if load.full else forward + attention
    again = forward if load.regime.checkpoints != "none" else 0
    taught = 0 if load.shape.teacher_first else 2 * load.shape.teacher
    return forward + again + backward + (forward if load.reference else 0) + taught


def training_seconds(load: Load, card: GpuSpeed, accumulated: int, tokens: float) -> float:
    """For a step of `accumulated` micro-batches whose rows have `tokens` tokens on average."""
    step_tokens = accumulated * load.rows * tokens
    return step_tokens * operations(load) / (card.tflops * 1e12 * efficiency(load))


def sampling_seconds(load: Load, card: GpuSpeed, new_tokens: int) -> float:
    """For sampling all answers of a batch: reading its prompts, then for each token a pass over the
    weights and the cache.
    """
    prompts = (
        load.prompted * _forward(load.shape, load.length) / (card.tflops * 1e12 * efficiency(load))
    )
    cached = (
        2 * load.shape.layers * load.shape.kv_heads * load.shape.head_dim * load.width * load.cached
    )
    return prompts + new_tokens * max(
        HOST_SECONDS, (weights(load) + cached) / (card.bandwidth * 1e9)
    )


def disk(load: Load) -> dict[str, float]:
    """GB by file; `merged` is the whole model in 16 bit, written only by `export --merged`."""
    result = 2 * load.shape.parameters if load.full else adapter(load)
    written = {
        "checkpoints": CHECKPOINTS * (result + optimizer(load)),
        "model" if load.full else "adapter": result,
    }
    return {
        name: round(value / 1e9, 3)
        for name, value in ({**written, "merged": 2.0 * load.shape.parameters}).items()
    }


def _forward(shape: Shape, length: int) -> float:
    """Two operations per weight, with the head, and those of causal attention."""
    return (
        2 * (shape.linear + shape.vocab * shape.hidden)
        + 2 * shape.layers * shape.heads * shape.head_dim * length
    )
