"""Confidence intervals (Wilson, bootstrap), paired differences and McNemar's test."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import comb, sqrt
from statistics import NormalDist, fmean, quantiles, stdev
from typing import Literal, NamedTuple, TypeVar

from msgspec import Struct

from agentlite.core.records import Step

T = TypeVar("T")
RESAMPLES = 2000
AT_ONCE = 100  # resamples in memory
FEWEST_CHANGED = 6  # five coins fall alike with a chance of 2 * .5**5 > .05: too few to say much


class Interval(NamedTuple):
    """A 95 % interval, unless another confidence is asked for."""

    low: float
    high: float


class Summary(Struct, frozen=True, kw_only=True):
    """The mean of `count` values and its 95 % interval. `std` is the sample's; None where there is
    none.
    """

    mean: float
    std: float | None
    count: int
    low: float
    high: float
    interval: Literal["wilson", "bootstrap"]


class Difference(Struct, frozen=True, kw_only=True):
    """What the second has over the first, on average, on `count` common steps, with its 95 %
    interval.
    """

    mean: float
    low: float
    high: float
    count: int
    beyond_noise: bool


def summary(values: Sequence[float], seed: int) -> Summary:
    """Wilson's interval where all values are 0 or 1, otherwise the bootstrap's. Raises ValueError
    if there are none.
    """
    mean, count = fmean(values), len(values)
    std = stdev(values) if count > 1 else None
    if set(values) <= {0, 1}:
        low, high = wilson(round(sum(values)), count)
        return Summary(mean=mean, std=std, count=count, low=low, high=high, interval="wilson")
    low, high = bootstrap(values, seed)
    return Summary(mean=mean, std=std, count=count, low=low, high=high, interval="bootstrap")


def wilson(successes: int, count: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval of a share (JASA 22, 1927): honest for few cases, and near 0 and
    1.
    """
    if not count:
        return Interval(0.0, 1.0)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, weight = successes / count, 1 + z * z / count
    centre = (share + z * z / (2 * count)) / weight
    reach = z * sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / weight
    # at the ends the formula gives 0 and 1, rounded
    return Interval(
        centre - reach if successes else 0.0, centre + reach if successes < count else 1.0
    )


def bootstrap(values: Sequence[float], seed: int, resamples: int = RESAMPLES) -> Interval:
    """The middle 95 % of the means of as many values drawn again, whatever their order. Raises
    ValueError if none.
    """
    return middle(
        total / len(values)
        for (total,) in redrawn_sums([(value,) for value in values], seed, resamples)
    )


def paired_difference(
    first: Mapping[Step, float], second: Mapping[Step, float], seed: int
) -> Difference:
    """second - first on the steps both have. Raises ValueError if there are none.

    Whole records are drawn again, as the steps of one dialog rise and fall together. Beyond noise:
    the interval leaves out 0, and enough records changed for that to mean anything.
    """
    by_record: dict[str, list[float]] = {}
    for step in sorted(first.keys() & second.keys()):
        by_record.setdefault(step.record_id, []).append(second[step] - first[step])
    if not by_record:
        raise ValueError("no common steps")
    sums = [(sum(changes), len(changes)) for changes in by_record.values()]
    low, high = middle(total / count for total, count in redrawn_sums(sums, seed))
    changed = sum(total != 0 for total, _ in sums)
    return Difference(
        mean=sum(total for total, _ in sums) / sum(count for _, count in sums),
        low=low,
        high=high,
        count=sum(count for _, count in sums),
        beyond_noise=(low > 0 or high < 0) and changed >= FEWEST_CHANGED,
    )


def mcnemar(first: Mapping[Step, float], second: Mapping[Step, float]) -> float | None:
    """The exact p of McNemar's test (Psychometrika 12, 1947): of the steps on which only one of the
    two is right, how likely is a share so far from a half. None unless all values are 0 or 1.
    """
    changes = [second[step] - first[step] for step in first.keys() & second.keys()]
    if not {*first.values(), *second.values()} <= {0, 1}:
        return None
    fewer, changed = min(changes.count(1), changes.count(-1)), changes.count(1) + changes.count(-1)
    return float(min(1.0, 2 * sum(comb(changed, wins) for wins in range(fewer + 1)) / 2**changed))


def redrawn(values: Sequence[T], seed: int, resamples: int = RESAMPLES) -> Iterator[list[T]]:
    """Resamples of the values, with replacement, for an estimate that is not a ratio of sums."""
    generator = random.Random(seed)
    return (generator.choices(values, k=len(values)) for _ in range(resamples))


def redrawn_sums(
    rows: Sequence[tuple[float, ...]], seed: int, resamples: int = RESAMPLES
) -> Iterator[list[float]]:
    """The sum of each column over a resample of the rows, `resamples` times; the order of the rows
    does not matter. Raises ValueError if there are no rows.
    """
    import numpy

    if not rows:
        raise ValueError("nothing to draw from")
    # How often each distinct row is in a resample is multinomial, so a resample costs as much as
    # there are distinct rows: few, as most metrics are 0 or 1. One matrix product, (resamples,
    # distinct rows) @ (distinct rows, columns), gives the sums of many resamples.
    distinct, counts = map(numpy.array, zip(*sorted(Counter(rows).items()), strict=True))
    generator = numpy.random.default_rng(seed)
    for start in range(0, resamples, AT_ONCE):
        times = generator.multinomial(
            len(rows), counts / len(rows), min(AT_ONCE, resamples - start)
        )
        yield from (times @ distinct).tolist()


def middle(estimates: Iterable[float]) -> Interval:
    """The 2.5th and the 97.5th percentile."""
    cuts = quantiles(estimates, n=40, method="inclusive")
    return Interval(cuts[0], cuts[-1])
