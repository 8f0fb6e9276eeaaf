"""The machine that is planned for: the GPU that was named, or what this machine has."""

import os
import re
from pathlib import Path
from typing import NamedTuple

from agentlite.config import this_machine
from agentlite.config.this_machine import CPU, PROFILES
from agentlite.core.errors import UserError
from agentlite.engine.planning.memory import GIB

LIMIT_FILE = Path("/sys/fs/cgroup/memory.max")


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


class Machine(NamedTuple):
    """`capacity` in bytes: of the card, or of the host without a card. `bf16`: whether the card
    computes in bfloat16."""

    gpu: bool
    card: GpuSpeed
    capacity: float
    name: str = ""
    bf16: bool = True

    @property
    def card_bytes(self) -> float:
        """Bytes of the whole card, of which `capacity` may be what is free."""
        return max(self.capacity, self.card.memory * GIB)


def machine_of(profile: str, fit: str = "") -> Machine:
    """The memory that `fit` names (12GB), else the card of a profile, else what is free here."""
    if fit:
        return machine_with_memory(gigabytes(fit))
    if profile in PROFILES:
        return machine_with_memory(CARDS[profile].memory)
    card = None if profile == CPU else this_machine.find_gpu()
    if not card:
        return Machine(False, CARDS["cpu"], _host_memory())
    return Machine(True, speed_of(card.name, card.total), card.free * GIB, card.name, card.bf16)


def machine_with_memory(gib: float) -> Machine:
    """A card of `gib` GiB with the speed of the largest known card that has no more, or of the
    smallest; drivers report a little less than is sold.
    """
    cards = [card for card in CARDS.values() if card.memory]
    smaller = [card for card in cards if card.memory <= gib + 0.5]
    card = max(smaller or cards[:1], key=lambda card: card.memory)
    return Machine(True, card, gib * GIB)


def speed_of(name: str, gib: float) -> GpuSpeed:
    """By the card's name, as its driver has it; by its memory where the name is not known."""
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    names = [key for key in CARDS if words.issuperset(key.removeprefix("rtx").split())]
    return CARDS[max(names, key=len)] if names else machine_with_memory(gib).card


def gigabytes(text: str) -> float:
    """`12GB`, `12 GiB` or `12` as GiB: a card sold with 12 GB has 12 GiB. Raises UserError 2."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:GB|GiB|G)?", text.strip(), flags=re.IGNORECASE)
    if not match or float(match[1]) == 0:
        raise UserError(f"'{text}' is not a size.", "Write it as 12GB.", location="--fit")
    return float(match[1])


def _host_memory() -> float:
    """The memory of the machine, or as much of it as a container may have."""
    physical = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    limit = LIMIT_FILE.read_text(encoding="ascii").strip() if LIMIT_FILE.exists() else ""
    return min(physical, float(limit)) if limit.isdigit() else physical
