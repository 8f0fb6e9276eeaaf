"""pass^k: the chance that k samples at a step, drawn again, are all right."""

from collections.abc import Mapping, Sequence
from math import comb

from agentlite.core.records import Step
from agentlite.scoring.metrics.confidence import Summary, summary


def pass_hat(right: int, samples: int, k: int) -> float:
    """tau-bench's estimate at one step: C(right, k) / C(samples, k). Raises ValueError where there
    are fewer than k samples.
    """
    if k > samples:
        raise ValueError(f"{k} of {samples}")
    return comb(right, k) / comb(samples, k)


def passes(right: Mapping[Step, Sequence[bool]], seed: int) -> dict[str, Summary]:
    """`pass^1`, `pass^2`, ... over the steps, up to the smallest number of samples at a step.
    `right`: by step, whether each sample is right.
    """
    most = min(map(len, right.values()), default=0)
    return {
        f"pass^{k}": summary(
            [pass_hat(sum(samples), len(samples), k) for samples in right.values()], seed
        )
        for k in range(1, most + 1)
    }
