"""The machine that is planned for: the GPU that was named, or what this machine has."""

import os
import re
from pathlib import Path
from typing import NamedTuple

from agentlite.config import gpu_profiles
from agentlite.config.gpu_profiles import CPU, PROFILES
from agentlite.core.errors import UserError
from agentlite.engine.planning.memory import GIB
from agentlite.engine.planning.time_and_disk import CARDS, GpuSpeed

LIMIT = Path("/sys/fs/cgroup/memory.max")


class Machine(NamedTuple):
    """`capacity` in bytes: of the card, or of the host without a card. `bf16`: whether the card
    computes in bfloat16."""

    gpu: bool
    card: GpuSpeed
    capacity: float
    name: str = ""
    bf16: bool = True


def machine_of(profile: str, fit: str = "") -> Machine:
    """The memory that `fit` names (12GB), else the card of a profile, else what is free here."""
    if fit:
        return with_memory(gigabytes(fit))
    if profile in PROFILES:
        return with_memory(CARDS[profile].memory)
    card = None if profile == CPU else gpu_profiles.card()
    if not card:
        return Machine(False, CARDS["cpu"], _host_bytes())
    return Machine(True, speed_of(card.name, card.total), card.free * GIB, card.name, card.bf16)


def with_memory(gib: float) -> Machine:
    """A card of `gib` GiB with the speed of the largest known card that has no more, or of the
    smallest; drivers report a little less than is sold.
    """
    known = [card for card in CARDS.values() if card.memory]
    smaller = [card for card in known if card.memory <= gib + 0.5]
    card = max(smaller or known[:1], key=lambda card: card.memory)
    return Machine(True, card, gib * GIB)


def speed_of(name: str, gib: float) -> GpuSpeed:
    """By the card's name, as its driver has it; by its memory where the name is not known."""
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    known = [key for key in CARDS if words.issuperset(key.removeprefix("rtx").split())]
    return CARDS[max(known, key=len)] if known else with_memory(gib).card


def gigabytes(text: str) -> float:
    """`12GB`, `12 GiB` or `12` as GiB: a card sold with 12 GB has 12 GiB. Raises UserError 2."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:GB|GiB|G)?", text.strip(), flags=re.IGNORECASE)
    if not match or float(match[1]) == 0:
        raise UserError(f"'{text}' is not a size.", "Write it as 12GB.", location="--fit")
    return float(match[1])


def _host_bytes() -> float:
    """The memory of the machine, or as much of it as a container may have."""
    physical = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    limit = LIMIT.read_text(encoding="ascii").strip() if LIMIT.exists() else ""
    return min(physical, float(limit)) if limit.isdigit() else physical
