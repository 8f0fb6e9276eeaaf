"""The machine that is planned for: the GPU that was named, or what this machine has."""

import os
import re
from pathlib import Path
from typing import NamedTuple

from agentlite.config import gpu_profiles
from agentlite.config.gpu_profiles import CPU
from agentlite.core.errors import UserError
from agentlite.engine.planning.memory import GIB

LIMIT = Path("/sys/fs/cgroup/memory.max")
CARDS = {"rtx3060": 12, "t4": 15, "rtx4090": 24, "a100": 80}  # GiB, by the names of profiles


class Machine(NamedTuple):
    """`capacity` in bytes: what is free of the card, or of the host without a card. `whole`: all of
    the card. `bf16`: whether the card computes in bfloat16."""

    gpu: bool
    capacity: float
    whole: float
    name: str = ""
    bf16: bool = True


def machine_of(profile: str, fit: str = "") -> Machine:
    """The memory that `fit` names (12GB), else the card of a profile, else what is free here."""
    if fit:
        return with_memory(gigabytes(fit))
    if profile in CARDS:
        return with_memory(CARDS[profile])
    card = None if profile == CPU else gpu_profiles.card()
    if not card:
        return Machine(False, _host_bytes(), _host_bytes())
    return Machine(True, card.free * GIB, card.total * GIB, card.name, card.bf16)


def with_memory(gib: float) -> Machine:
    """A card of `gib` GiB."""
    return Machine(True, gib * GIB, gib * GIB)


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
