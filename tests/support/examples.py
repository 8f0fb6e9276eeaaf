"""How much of a sweep runs: a part of it, which is another one with each commit, and all of it with
--all. A quick run tries fewer examples, and the same part each time.
"""

import os
import random
import subprocess
from collections.abc import Sequence
from itertools import product
from typing import TypeVar

import pytest
from support.samples import ROOT

First = TypeVar("First")
Second = TypeVar("Second")

QUICK = bool(os.environ.get("AGENTLITE_TEST_QUICK"))
ALL = bool(os.environ.get("AGENTLITE_TEST_ALL"))


def number_of_commit() -> int:
    """A number for the commit that is checked out, as good as random; 0 where no git says it."""
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        return int(done.stdout, 16)
    except (OSError, ValueError):
        return 0


# The same for all workers of a run, also where a commit comes meanwhile.
TURN = int(os.environ.setdefault("AGENTLITE_TEST_TURN", "0" if QUICK else str(number_of_commit())))


def examples(whole: int) -> int:
    """The number for this run; `whole` is that of a run with --all."""
    return whole if ALL else max(5, whole // (4 if QUICK else 2))


def sample(number: int, cases: Sequence[First]) -> list[First]:
    """So many of the cases, always the same ones and in their order; all of them with --all."""
    if ALL or number >= len(cases):
        return list(cases)
    return [cases[index] for index in sorted(random.Random(7).sample(range(len(cases)), number))]


def every(step: int, cases: Sequence[First]) -> list[First]:
    """All cases; in a quick run each `step`-th of them."""
    return list(cases[:: step if QUICK else 1])


def in_turn(step: int, cases: Sequence[First]) -> list[First]:
    """One case of `step`, from another one on with each commit; all with --all."""
    step = min(step, len(cases))
    return list(cases if ALL else cases[TURN % step :: step])


def turn(number: int, of: int) -> pytest.MarkDecorator:
    """Runs a test of minutes with one commit of so many, and always with --all."""
    return pytest.mark.skipif(
        not ALL and TURN % of != number, reason=f"runs with one commit of {of}, and with --all"
    )


def pairs(
    step: int, first: Sequence[First], second: Sequence[Second]
) -> list[tuple[First, Second]]:
    """All pairs with --all; otherwise one of `step`, spread so that each value of either side takes
    part where the other side has `step` values or more.
    """
    return [
        (one, other)
        for (row, one), (column, other) in product(enumerate(first), enumerate(second))
        if ALL or (row + column + TURN) % step == 0
    ]
