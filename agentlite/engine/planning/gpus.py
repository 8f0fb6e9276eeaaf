"""What was asked for, or found here -> the machine that is planned for: a card, and the bytes that
it has.
"""

import os
import re
from pathlib import Path
from typing import NamedTuple

from agentlite.config import hardware
from agentlite.core.errors import UserError
from agentlite.engine.planning.memory import GIB
from agentlite.engine.planning.time_and_disk import CARDS, GpuSpeed

LIMIT = Path("/sys/fs/cgroup/memory.max")


class Machine(NamedTuple):
    """`capacity` in bytes: of the card, or of the host where there is none."""

    gpu: bool
    card: GpuSpeed
    capacity: float


def machine_of(profile: str, fit: str = "") -> Machine:
    """What `fit` names (12GB), else the card that a profile is named for, else what is free
    here.
    """
    if fit:
        return with_memory(gigabytes(fit))
    if profile in CARDS and CARDS[profile].memory:
        return with_memory(CARDS[profile].memory)
    found = None if profile == "cpu" else hardware.card()
    if not found:
        return Machine(False, CARDS["cpu"], _host_bytes())
    return with_memory(found.total)._replace(capacity=found.free * GIB)


def with_memory(gib: float) -> Machine:
    """The speed is that of the largest known card with no more memory; drivers report a little less
    than is sold.
    """
    card = max(
        (card for card in CARDS.values() if card.memory <= gib + 0.5), key=lambda card: card.memory
    )
    return Machine(True, card, gib * GIB)


def gigabytes(text: str) -> float:
    """`12GB`, `12 GiB` or `12` as GiB: a card that is sold with 12 GB has 12 GiB. Raises UserError
    2.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:GB|GiB|G)?", text.strip(), flags=re.IGNORECASE)
    if not found or float(found[1]) == 0:
        raise UserError(f"'{text}' is no memory.", "Write it as 12GB.", location="--fit")
    return float(found[1])


def _host_bytes() -> float:
    """Of the machine, or what a container may have of them."""
    found = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    limit = LIMIT.read_text(encoding="ascii").strip() if LIMIT.exists() else ""
    return min(found, float(limit)) if limit.isdigit() else found
