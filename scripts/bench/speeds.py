"""What cards compute, by their data sheets, and the operations of a step of training."""

import re
from typing import NamedTuple

from agentlite.engine.planning.memory import Load


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


def speed_of(name: str, gib: float) -> GpuSpeed:
    """By the card's name, as its driver has it; by its memory where the name is not known."""
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    known = [key for key in CARDS if words.issuperset(key.removeprefix("rtx").split())]
    if known:
        return CARDS[max(known, key=len)]
    smaller = [card for card in CARDS.values() if card.memory <= gib + 0.5]
    return max(smaller, key=lambda card: card.memory)


def step_seconds(load: Load, gradient_accumulation: int, card: GpuSpeed) -> float:
    """Without sampling."""
    return gradient_accumulation * load.tokens * operations(load) / _speed(load, card)


def operations(load: Load) -> float:
    """Floating-point operations per token of a micro-batch: forward, again for checkpoints,
    backward, and the forward of the reference, or of a teacher.
    """
    shape, forward = load.shape, _forward(load)
    attention = 2 * shape.layers * shape.heads * shape.head_dim * load.length
    # frozen weights need no gradient, attention has no weights: its backward pass is whole
    backward = 2 * forward if load.full else forward + attention
    again = forward if load.regime.checkpoints != "none" else 0
    return forward + again + backward + (forward if load.reference else 0) + 2 * shape.teacher


def _forward(load: Load) -> float:
    """Two operations per weight, with the head, and those of causal attention."""
    shape = load.shape
    attention = 2 * shape.layers * shape.heads * shape.head_dim * load.length
    return 2 * (shape.linear + shape.vocab * shape.hidden) + attention


def _speed(load: Load, card: GpuSpeed) -> float:
    """Operations per second. Of a card's peak published runs reach 48 to 74 % with Unsloth from 3B
    on, about 40 % with plain transformers, and 25 to 40 % for small models, whose kernels wait for
    the host."""
    return card.tflops * 1e12 * (0.5 if load.shape.parameters > 2e9 else 0.3)
