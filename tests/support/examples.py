"""How much of a sweep runs: a quick run tries fewer examples and a sample of the cases, and only a
run with --all every pair of two lists, and whatever takes many minutes.
"""

import os
from collections.abc import Sequence
from itertools import product
from typing import TypeVar

First = TypeVar("First")
Second = TypeVar("Second")

QUICK = bool(os.environ.get("AGENTLITE_TEST_QUICK"))
ALL = bool(os.environ.get("AGENTLITE_TEST_ALL"))


def examples(whole: int) -> int:
    """The number for this run; `whole` is that of a whole one."""
    return max(5, whole // 4) if QUICK else whole


def every(step: int, cases: Sequence[First]) -> list[First]:
    """All cases; in a quick run each `step`-th of them."""
    return list(cases[:: step if QUICK else 1])


def pairs(
    step: int, first: Sequence[First], second: Sequence[Second]
) -> list[tuple[First, Second]]:
    """All pairs with --all; otherwise one of `step`, spread so that each value of either side takes
    part where the other side has `step` values or more.
    """
    return [
        (one, other)
        for (row, one), (column, other) in product(enumerate(first), enumerate(second))
        if ALL or (row + column) % step == 0
    ]
