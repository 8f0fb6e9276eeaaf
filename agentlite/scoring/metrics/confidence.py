"""Confidence intervals (Wilson, bootstrap), and paired differences with their p."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import fsum, sqrt
from statistics import NormalDist, fmean, quantiles, stdev
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from msgspec import Struct

from agentlite.core.records import Step

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

T = TypeVar("T")
Counts = TypeVar("Counts", bound=tuple[int, ...])  # a NamedTuple
RESAMPLES = 2000
BATCH = 100  # resamples in memory
FLIPS = 10_000  # of the signs of changes, where not all that can be are counted
EXACT_SUM = 20_000  # of all changes, up to which they are: an environment's reward may be millions


class Summary(Struct, frozen=True, kw_only=True):
    """The mean of `count` values and its 95 % interval. `std` is the sample's, or None."""

    mean: float
    std: float | None
    count: int
    low: float
    high: float
    interval: Literal["wilson", "bootstrap", "mover"]


class Difference(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the second has over the first, on average, on `count` common steps, with its 95 %
    interval. `p`: see sign_flip_p; `p_holm`: corrected for the figures compared with it.
    `beyond_noise`: that is below .05. `metric`, `first`, `second`: the figure and the models, where
    several are compared.
    """

    mean: float
    low: float
    high: float
    count: int
    p: float
    p_holm: float
    beyond_noise: bool
    metric: str = ""
    first: str = ""
    second: str = ""


def summary(values: Sequence[float], seed: int) -> Summary:
    """Wilson's interval of zeros and ones, else the bootstrap's. Raises ValueError for none."""
    mean, count = fmean(values), len(values)
    std = stdev(values) if count > 1 else None
    if set(values) <= {0, 1}:
        low, high = wilson(round(sum(values)), count)
        return Summary(mean=mean, std=std, count=count, low=low, high=high, interval="wilson")
    sums = resample_sums([(value,) for value in values], seed)
    return bootstrap(mean, (sums[:, 0] / count).tolist(), count, std)


def bootstrap(
    mean: float, estimates: Iterable[float], count: int, std: float | None = None
) -> Summary:
    """With the middle 95 % of the estimates that resamples gave."""
    low, high = percentile_interval(estimates)
    return Summary(mean=mean, std=std, count=count, low=low, high=high, interval="bootstrap")


def ratios(
    rows: Sequence[Counts],
    shares: Mapping[str, Callable[[Counts], tuple[Any, Any]]],
    seed: int,
    count: int | None = None,
) -> dict[str, Summary | None]:
    """Figures of sums: `shares` gives the part and the whole of each, from the sums of the rows, or
    from those of all resamples at once. None where the whole is 0; such resamples are left out.
    `count`: what each figure is of; the whole where it is not given.
    """
    import numpy

    figures: dict[str, Summary | None] = dict.fromkeys(shares)
    if not rows:
        return figures
    counts_type = type(rows[0])
    sums = counts_type(*numpy.array(rows, int).sum(axis=0))
    resampled = counts_type(*resample_sums(rows, seed).T)
    for name, share in shares.items():
        with numpy.errstate(all="ignore"):
            (part, whole), (parts, wholes) = share(sums), share(resampled)
        if whole:
            is_positive = wholes > 0
            estimates = (parts[is_positive] / wholes[is_positive]).tolist()
            size = int(whole) if count is None else count
            figures[name] = bootstrap(float(part / whole), estimates, size)
    return figures


def wilson(successes: int, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share (JASA 22, 1927): honest for few cases, near 0 and 1."""
    z = NormalDist().inv_cdf(0.975)
    share, weight = successes / count, 1 + z * z / count
    centre = (share + z * z / (2 * count)) / weight
    reach = z * sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / weight
    # at the ends the formula gives 0 and 1, rounded
    low = centre - reach if successes else 0.0
    return low, centre + reach if successes < count else 1.0


def weighted_share(parts: Sequence[tuple[float, Sequence[float]]]) -> Summary:
    """A mean of shares by their weights, each the mean of values that are 0 or 1. Its interval is
    put together from Wilson's of each share (MOVER; Zou and Donner, Statist. Med. 27, 2008).
    """
    total = fsum(weight for weight, _ in parts)
    shares = [fmean(values) for _, values in parts]
    mean = fsum(weight * share for (weight, _), share in zip(parts, shares, strict=True)) / total
    below = above = 0.0
    for (weight, values), share in zip(parts, shares, strict=True):
        # the ends of independent intervals add up in squares, as standard deviations do
        low, high = wilson(round(sum(values)), len(values))
        below += (weight / total * (share - low)) ** 2
        above += (weight / total * (high - share)) ** 2
    return Summary(
        mean=mean,
        std=None,
        count=sum(len(values) for _, values in parts),
        low=max(0.0, mean - sqrt(below)),
        high=min(1.0, mean + sqrt(above)),
        interval="mover",
    )


def paired_differences(
    pairs: Sequence[tuple[Mapping[Step, float], Mapping[Step, float]]], seed: int
) -> list[Difference]:
    """second - first of each pair, on the steps both have. Raises ValueError if there are none.

    The pairs are the figures of one comparison: together they call two equal models different in at
    most 5 of 100 comparisons, however many there are (Holm). Whole records are drawn again for the
    interval, and compared for `p`, as the steps of one dialog rise and fall together.
    """
    changes = [_changes_by_record(first, second) for first, second in pairs]
    ps = [sign_flip_p([total for total, _ in sums], seed) for sums in changes]
    differences = []
    for sums, p, adjusted in zip(changes, ps, holm(ps), strict=True):
        totals, steps = resample_sums(sums, seed).T
        low, high = percentile_interval((totals / steps).tolist())
        count = sum(steps for _, steps in sums)
        differences.append(
            Difference(
                mean=sum(total for total, _ in sums) / count,
                low=low,
                high=high,
                count=count,
                p=p,
                p_holm=adjusted,
                beyond_noise=adjusted < 0.05,
            )
        )
    return differences


def _changes_by_record(
    first: Mapping[Step, float], second: Mapping[Step, float]
) -> list[tuple[float, int]]:
    """The sum of the changes of each record, and at how many steps."""
    by_record: dict[str, list[float]] = {}
    for step in sorted(first.keys() & second.keys()):
        by_record.setdefault(step.record_id, []).append(second[step] - first[step])
    if not by_record:
        raise ValueError("no common steps")
    return [(sum(changes), len(changes)) for changes in by_record.values()]


def sign_flip_p(changes: Sequence[float], seed: int) -> float:
    """The p of the sign-flip test (Fisher's randomization test for pairs): if it made no difference
    which of two models gave which answers of a record, how likely is a sum so far from 0?

    Exact where the changes are whole numbers, which those of right and wrong answers are, and at
    most EXACT_SUM in all; with one step a record it is then McNemar's exact test (Psychometrika 12,
    1947). Otherwise of FLIPS random flips, so that it is never below 1 / (FLIPS + 1).
    """
    import numpy

    sizes = Counter(abs(change) for change in changes if change)
    observed = abs(sum(changes)) * (1 - 1e-9)  # sums of floats that are equal may differ a little
    total = sum(size * count for size, count in sizes.items())
    if total <= EXACT_SUM and all(float(size).is_integer() for size in sizes):
        chances = numpy.array([1.0])  # of every sum of changes so far, from the lowest one up
        for size, count in sizes.items():
            spread = numpy.zeros(2 * int(size) * count + 1)
            # with h heads of `count` flips the sum of these changes is size * (2 * h - count)
            spread[:: 2 * int(size)] = _heads(count)
            chances = numpy.convolve(chances, spread)
        sums = numpy.arange(len(chances)) - len(chances) // 2  # the chance of 0 is in the middle
        return float(min(1.0, chances[abs(sums) >= observed].sum()))
    generator = numpy.random.default_rng(seed)
    flipped_sums = numpy.zeros(FLIPS)
    for size, count in sorted(sizes.items()):
        flipped_sums += size * (2.0 * generator.binomial(count, 0.5, FLIPS) - count)
    return float((1 + (abs(flipped_sums) >= observed).sum()) / (1 + FLIPS))


def _heads(count: int) -> list[float]:
    """The chance of 0, 1, ... heads of so many coins. In integers: 2**-1100 is not a float."""
    tosses, outcomes, chances = 1, 2**count, []
    for heads in range(count + 1):
        chances.append(tosses / outcomes)
        tosses = tosses * (count - heads) // (heads + 1)
    return chances


def holm(ps: Sequence[float]) -> list[float]:
    """Each p corrected for the number of them (Holm, Scand. J. Statist. 6, 1979): the smallest
    times their number, the next times one less, and never below one before it.
    """
    adjusted = [1.0] * len(ps)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        highest = max(highest, min(1.0, ps[index] * (len(ps) - rank)))
        adjusted[index] = highest
    return adjusted


def draw_resamples(values: Sequence[T], seed: int, resamples: int = RESAMPLES) -> Iterator[list[T]]:
    """Resamples of the values, with replacement, for an estimate that is not a ratio of sums."""
    generator = random.Random(seed)
    return (generator.choices(values, k=len(values)) for _ in range(resamples))


def resample_sums(
    rows: Sequence[tuple[float, ...]], seed: int, resamples: int = RESAMPLES
) -> "NDArray[numpy.float64]":
    """The sum of each column over resamples of the rows: (resamples, columns). The order of the
    rows does not matter. Raises ValueError if there are no rows.
    """
    import numpy

    # How often each distinct row is in a resample is multinomial, so a resample costs as much as
    # there are distinct rows: few, as most metrics are 0 or 1. One matrix product, (resamples,
    # distinct rows) @ (distinct rows, columns), gives the sums of many resamples.
    distinct, counts = map(numpy.array, zip(*sorted(Counter(rows).items()), strict=True))
    generator = numpy.random.default_rng(seed)
    sums = numpy.empty((resamples, distinct.shape[1]))
    for start in range(0, resamples, BATCH):
        batch = sums[start : start + BATCH]
        batch[:] = generator.multinomial(len(rows), counts / len(rows), len(batch)) @ distinct
    return sums


def percentile_interval(estimates: Iterable[float]) -> tuple[float, float]:
    """The 2.5th and the 97.5th percentile."""
    cuts = quantiles(estimates, n=40, method="inclusive")
    return cuts[0], cuts[-1]
