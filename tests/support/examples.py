"""How much of a sweep runs: a seeded sample of fixed size, and all of it with --all; and what a
call costs.
"""

import os
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

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


def cost(call: Callable[[], object]) -> int:
    """The functions that a call enters, which no other process changes, as it does seconds."""
    entered = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal entered
        entered += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered
