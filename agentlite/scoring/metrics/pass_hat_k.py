"""How many of the answers drawn at a step were right -> pass^k: the chance that k of them, drawn
again, all are.
"""

from collections.abc import Mapping, Sequence
from math import comb
from typing import Any

from msgspec import to_builtins

from agentlite.scoring.metrics.confidence import summary


def pass_hat(right: int, drawn: int, k: int) -> float:
    """tau-bench's estimate at one step: C(right, k) / C(drawn, k). Raises ValueError if fewer than
    k were drawn.
    """
    if k > drawn:
        raise ValueError(f"{k} of {drawn}")
    return comb(right, k) / comb(drawn, k)


def passes(right: Mapping[Any, Sequence[bool]], seed: int) -> dict[str, Any]:
    """`pass^1`, `pass^2`, ... over the steps, up to as many as were drawn at each. `right`: by
    step, of each answer.
    """
    most = min(map(len, right.values()), default=0)
    return {
        f"pass^{k}": to_builtins(
            summary([pass_hat(sum(one), len(one), k) for one in right.values()], seed)
        )
        for k in range(1, most + 1)
    }
