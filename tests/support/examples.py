"""How much of a sweep runs: a seeded sample of fixed size, and all of it with --all."""

import os
import random
from collections.abc import Sequence
from typing import TypeVar

Case = TypeVar("Case")

QUICK = bool(os.environ.get("AGENTLITE_TEST_QUICK"))
ALL = bool(os.environ.get("AGENTLITE_TEST_ALL"))


def examples(whole: int) -> int:
    """The number for this run; `whole` is that of a run with --all."""
    return whole if ALL else max(5, whole // (4 if QUICK else 2))


def sample(number: int, cases: Sequence[Case]) -> list[Case]:
    """So many of the cases, always the same ones and in their order; all of them with --all."""
    if ALL or number >= len(cases):
        return list(cases)
    return [cases[index] for index in sorted(random.Random(7).sample(range(len(cases)), number))]
