"""Krippendorff's alpha of several raters, with its interval: 1 is agreement, 0 is chance."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import permutations

from agentlite.scoring.metrics.confidence import Summary, bootstrapped, redrawn

Difference = Callable[[float, float, Mapping[float, float]], float]


def alpha(units: Sequence[Sequence[float]], level: str) -> float | None:
    """By what was given to each unit, by however many raters. None where no unit has two, or all
    values are one.

    Krippendorff, Computing Krippendorff's alpha-reliability (2011): observed over expected
    disagreement, both from the pairs of values within a unit.
    """
    pairs: dict[tuple[float, float], float] = defaultdict(float)
    for values in units:
        for pair in permutations(values, 2):
            pairs[pair] += 1 / (len(values) - 1)
    totals: dict[float, float] = defaultdict(float)
    for (first, _), weight in pairs.items():
        totals[first] += weight
    differs = LEVELS[level]
    expected = sum(
        totals[first] * totals[second] * differs(first, second, totals)
        for first in totals
        for second in totals
    )
    if not expected:
        return None
    observed = sum(
        weight * differs(first, second, totals) for (first, second), weight in pairs.items()
    )
    return 1 - (sum(totals.values()) - 1) * observed / expected


def agreement(units: Sequence[Sequence[float]], seed: int) -> dict[str, Summary | None]:
    """Alpha at every level; units are drawn again for its interval. `count`: the units with two
    values or more.
    """
    rated = sorted(sorted(values) for values in units if len(values) > 1)
    return {level: _summary(rated, level, seed) for level in LEVELS}


def _summary(rated: Sequence[Sequence[float]], level: str, seed: int) -> Summary | None:
    value = alpha(rated, level)
    if value is None:
        return None
    resampled = [
        again for units in redrawn(rated, seed) if (again := alpha(units, level)) is not None
    ]
    return bootstrapped(value, resampled if len(resampled) > 1 else [value] * 2, len(rated))


def _ordinal(first: float, second: float, totals: Mapping[float, float]) -> float:
    """By how many values lie from one to the other, half of those at the ends."""
    low, high = sorted((first, second))
    between = sum(times for value, times in totals.items() if low <= value <= high)
    return (between - (totals[first] + totals[second]) / 2) ** 2 if first != second else 0.0


def _interval(first: float, second: float, totals: Mapping[float, float]) -> float:
    return (first - second) ** 2


LEVELS: dict[str, Difference] = {"ordinal": _ordinal, "interval": _interval}
