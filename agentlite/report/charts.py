"""Figures -> small SVG charts of any width: intervals on a scale, and curves."""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple, TypeGuard

from markupsafe import Markup

from agentlite.core.row_files import Row
from agentlite.report.read_run import Json

MOST_POINTS = 240
TOGETHER = (
    ("loss", "dev_loss"),
    ("chosen_reward", "rejected_reward"),
    ("chosen_logp", "rejected_logp"),
)
FIRST = ("loss", "dev_loss", "margin", "accuracy", "reward", "kl")
LAST = ("grad_norm", "learning_rate")
COMPONENT = "reward/"  # begins the names of a reward's components


class Series(NamedTuple):
    """What was logged under a name: (step, mean of the rows up to it), and the last value."""

    name: str
    points: list[tuple[float, float]]
    last: float


class Chart(NamedTuple):
    lines: list[Series]
    low: float
    high: float
    svg: Markup


def interval(
    figure: Json, scale: tuple[float, float], marks: Iterable[float] = (), kind: str = ""
) -> Markup:
    """A dot with its whiskers, and hairlines at `marks`. The dot is a line of length 0 with round
    ends: it stays round however far the chart is stretched.
    """
    left, right, dot = (_share(value, scale) for value in (*_ends(figure), figure["mean"]))
    hairlines = "".join(f'<path class="hair" d="M{_share(mark, scale)} 0v12"/>' for mark in marks)
    return _svg(
        f'{hairlines}<path class="whisker" d="M{left} 6H{right}"/><path class="dot" d="M{dot} '
        '6h0"/>'
        f'<path class="hole" d="M{dot} 6h0"/>',
        12,
        f"interval {kind}",
    )


def charts(rows: Sequence[Row]) -> tuple[list[Chart], list[Chart]]:
    """The curves of a metrics.jsonl: those of training, and those of a reward's components, which
    share one scale.
    """
    names = dict.fromkeys(name for row in rows for name in row if name != "step")
    lines = {name: line for name in names if (line := _line(name, rows)).points}
    components = [name for name in lines if name.startswith(COMPONENT)]
    others = in_order([name for name in lines if name not in components])
    highest = max([1.0, *(value for name in components for _, value in lines[name].points)])
    return (
        [_chart([lines[name] for name in group]) for group in others],
        [
            _chart([lines[name]._replace(name=name.removeprefix(COMPONENT))], 0.0, highest)
            for name in components
        ],
    )


def scale(figures: Sequence[Json], around_zero: bool = False) -> tuple[float, float]:
    """From 0 to 1 if all intervals lie in there, else from the lowest end to the highest."""
    ends = [end for figure in figures for end in _ends(figure)]
    reach = max([0.05, *map(abs, ends)])
    if around_zero:
        return -reach, reach
    return (0.0, 1.0) if all(0 <= end <= 1 for end in ends) else (min(0.0, *ends), reach)


def _ends(figure: Json) -> list[float]:
    """The ends of its interval, or its mean twice."""
    return [figure[end] if end in figure else figure["mean"] for end in ("low", "high")]


def _line(name: str, rows: Sequence[Row]) -> Series:
    points = [(float(row["step"]), float(row[name])) for row in rows if is_number(row.get(name))]
    size = math.ceil(len(points) / MOST_POINTS) or 1
    buckets = [points[start : start + size] for start in range(0, len(points), size)]
    thinned = [(bucket[-1][0], fmean(value for _, value in bucket)) for bucket in buckets]
    return Series(name, thinned, points[-1][1] if points else math.nan)


def is_number(value: object) -> TypeGuard[float]:
    """Whether it can be drawn: a value that diverged further is off every scale."""
    return isinstance(value, int | float) and abs(value) < 1e300  # which nan is not


def in_order(names: Sequence[str]) -> list[list[str]]:
    """Names of curves: those that are read against each other share a chart; those that matter come
    first.
    """
    order = [name for name in FIRST if name in names]
    order += [name for name in names if name not in (*FIRST, *LAST)]
    order += [name for name in LAST if name in names]
    groups: dict[str, list[str]] = {}
    for name in order:
        head = next((group[0] for group in TOGETHER if name in group), name)
        groups.setdefault(head, []).append(name)
    return list(groups.values())


def _chart(lines: list[Series], low: float | None = None, high: float | None = None) -> Chart:
    values = [value for line in lines for _, value in line.points]
    steps = [step for line in lines for step, _ in line.points]
    low, high = min(values) if low is None else low, max(values) if high is None else high
    across, up = (min(steps), max(steps)), (low, high)
    curves = "".join(_curve(line, index, across, up) for index, line in enumerate(lines))
    return Chart(lines, low, high, _svg(curves, 56, "curve"))


def _curve(line: Series, index: int, across: tuple[float, float], up: tuple[float, float]) -> str:
    """Up to three points get dots as well: a single one would not be seen."""
    points = [
        f"{_share(step, across)} {52 - 0.48 * _share(value, up):.2f}" for step, value in line.points
    ]
    dots = "".join(f'<path class="dot" d="M{point}h0"/>' for point in points)
    lines = f'<path d="M{"L".join(points)}"/>'
    return f'<g class="line{index}">{lines}{dots if len(points) <= 3 else ""}</g>'


def _share(value: float, scale: tuple[float, float]) -> float:
    """Its position on the scale, from 1 to 99: that leaves room for half a dot at both ends."""
    low, high = scale
    return round(1 + 98 * ((value - low) / (high - low)), 2) if high > low else 50.0


def _svg(inside: str, height: int, kind: str) -> Markup:
    return Markup(
        f'<svg class="{kind.strip()}" viewBox="0 0 100 {height}" preserveAspectRatio="none" '
        f'aria-hidden="true">{inside}</svg>'
    )
