"""Figures -> small SVG charts of any width: intervals on a scale, and curves."""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean

from markupsafe import Markup

from agentlite.core.row_files import Row
from agentlite.report.read_run import Json

MOST_POINTS = 240
# curves that are read against each other share a chart
SHARED_CHARTS = (
    ("loss", "dev_loss"),
    ("chosen_reward", "rejected_reward"),
    ("chosen_logp", "rejected_logp"),
)
FIRST_CURVES = ("loss", "dev_loss", "margin", "accuracy", "reward", "kl")
LAST_CURVES = ("grad_norm", "learning_rate")
Scale = tuple[float, float]


def interval(figure: Json, scale: Scale, marks: Iterable[float] = ()) -> Markup:
    """A dot with its whiskers, and hairlines at `marks`. The dot is a line of length 0 with round
    ends: it stays round however far the chart is stretched.
    """
    left, right, dot = (_position(value, scale) for value in (*_ends(figure), figure["mean"]))
    hairlines = "".join(
        f'<path class="hair" d="M{_position(mark, scale)} 0v12"/>' for mark in marks
    )
    return _svg(
        f'{hairlines}<path class="whisker" d="M{left} 6H{right}"/><path class="dot" d="M{dot} '
        '6h0"/>'
        f'<path class="hole" d="M{dot} 6h0"/>',
        12,
        "interval",
    )


def scale(figures: Sequence[Json], around_zero: bool = False) -> Scale:
    """From 0 to 1 if all intervals lie in there, else from the lowest end to the highest."""
    ends = [end for figure in figures for end in _ends(figure)]
    # never 0: where nothing changed the scale would have no length
    reach = max([0.05, *map(abs, ends)])
    if around_zero:
        return -reach, reach
    return (0.0, 1.0) if all(0 <= end <= 1 for end in ends) else (min(0.0, *ends), reach)


def _ends(figure: Json) -> list[float]:
    """The ends of its interval, or its mean twice."""
    return [figure[end] if end in figure else figure["mean"] for end in ("low", "high")]


def charts(rows: Sequence[Row]) -> list[Json]:
    """The curves of a metrics.jsonl, those that matter first."""
    points: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        for name, value in row.items():
            # one that diverged further is off every scale, and nan on none
            if name != "step" and isinstance(value, int | float) and abs(value) < 1e300:
                points.setdefault(name, []).append((float(row["step"]), float(value)))
    others = [name for name in points if name not in (*FIRST_CURVES, *LAST_CURVES)]
    groups: dict[str, list[Json]] = {}
    for name in (name for name in (*FIRST_CURVES, *others, *LAST_CURVES) if name in points):
        chart_names = next((pair for pair in SHARED_CHARTS if name in pair), (name,))
        groups.setdefault(chart_names[0], []).append(_series(name, points[name]))
    return [_chart(group) for group in groups.values()]


def _series(name: str, points: Sequence[tuple[float, float]]) -> Json:
    """What was logged under a name: (step, mean of the rows up to it), and the last value."""
    size = math.ceil(len(points) / MOST_POINTS)
    buckets = (points[start : start + size] for start in range(0, len(points), size))
    means = [(bucket[-1][0], fmean(value for _, value in bucket)) for bucket in buckets]
    return {"name": name, "points": means, "last": points[-1][1]}


def _chart(lines: list[Json]) -> Json:
    """Up to three points get dots as well: a single one would not be seen."""
    values = [value for line in lines for _, value in line["points"]]
    low, high = min(values), max(values)
    steps = [step for line in lines for step, _ in line["points"]]
    step_scale, curves = (min(steps), max(steps)), ""
    for index, line in enumerate(lines):
        # 1 to 99 from left to right; from 51.52 up to 4.48 in a box 56 high: room for half a stroke
        points = [
            f"{_position(step, step_scale)} {52 - 0.48 * _position(value, (low, high)):.2f}"
            for step, value in line["points"]
        ]
        dots = "".join(f'<path class="dot" d="M{point}h0"/>' for point in points)
        path = f'<path d="M{"L".join(points)}"/>'
        curves += f'<g class="line{index}">{path}{dots if len(points) <= 3 else ""}</g>'
    return {"lines": lines, "low": low, "high": high, "svg": _svg(curves, 56, "curve")}


def _position(value: float, scale: Scale) -> float:
    """Where a value lies on the scale, from 1 to 99: that leaves room for half a dot at both
    ends.
    """
    low, high = scale
    return round(1 + 98 * ((value - low) / (high - low)), 2) if high > low else 50.0


def _svg(content: str, height: int, kind: str) -> Markup:
    return Markup(
        f'<svg class="{kind}" viewBox="0 0 100 {height}" preserveAspectRatio="none" '
        f'aria-hidden="true">{content}</svg>'
    )
