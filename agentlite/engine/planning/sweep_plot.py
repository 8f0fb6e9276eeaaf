"""An SVG plot of memory against context length, for 4-bit and 16-bit weights."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from msgspec.structs import replace

from agentlite.engine.planning.estimate import load_of
from agentlite.engine.planning.memory import GIB, fits, memory
from agentlite.engine.planning.model_shape import Shape
from agentlite.engine.planning.suggest_fit import largest

CARDS = (12, 16, 24, 80)  # GiB
SHORTEST, LONGEST = 256, 1 << 17
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 460, 56, 20, 74, 52
STYLE = """
  .ground { fill: #fff } .grid { stroke: #e4e4e0; stroke-width: 1 } .card { stroke: #9a9a94; stroke-dasharray: 5 4 }
  text { font: 12px system-ui, sans-serif; fill: #55554f } .title { font-size: 15px; font-weight: 600; fill: #1c1c1a }
  .curve { fill: none; stroke-width: 2.5; stroke-linejoin: round }
  .bits4 { stroke: #0b6e99 } .bits16 { stroke: #b4540a }
  .dot4 { fill: #0b6e99 } .dot16 { fill: #b4540a } text.dot4, text.dot16 { font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #161614 } .grid { stroke: #2e2e2a } .card { stroke: #77776f } text { fill: #a8a89f }
    .title { fill: #f0f0ea } .bits4 { stroke: #58b7e0 } .bits16 { stroke: #f0a35e }
    .dot4 { fill: #58b7e0 } .dot16 { fill: #f0a35e }
  }
"""  # noqa: E501  (verbatim text)


class Curve(NamedTuple):
    """GiB at each length; `reached`: the longest row that fits each card, with the margin, and its
    GiB.
    """

    bits: int
    points: list[tuple[int, float]]
    reached: list[tuple[int, float]]


class PlotScales(NamedTuple):
    """Tokens from SHORTEST to `longest` across, GiB from `lowest` to `highest` upwards, both
    logarithmic.
    """

    longest: int
    lowest: float
    highest: float

    def across(self, tokens: float) -> float:
        share = math.log(tokens / SHORTEST) / math.log(self.longest / SHORTEST)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def up(self, gib: float) -> float:
        share = math.log(gib / self.lowest) / math.log(self.highest / self.lowest)
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)


def sweep(command: str, settings: Any, shape: Shape, model: str) -> str:
    """One row in a micro-batch, weights of 4 and 16 bit, on a GPU."""
    longest = max(2 * SHORTEST, min(LONGEST, shape.max_positions))
    alone = replace(settings, load_in_8bit=False, batch_size=1)
    curves = [
        _curve(command, replace(alone, load_in_4bit=quantised), shape, longest)
        for quantised in (True, False)
    ]
    heights = [gib for curve in curves for _, gib in curve.points]
    scales = PlotScales(longest, min(heights) / 1.25, max(CARDS[-1], *heights) * 1.15)
    title = escape(
        f"{command}: {model}, {settings.engine}, one row in a micro-batch", {'"': "&quot;"}
    )
    lines = [line for curve in curves for line in _curve_lines(curve, scales)]
    plot = "\n".join([*_axes(scales), *_cards(scales), *lines])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" '
        f'role="img" aria-label="{title}">\n<style>{STYLE}</style>\n'
        f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}"/>\n'
        f'<text class="title" x="{LEFT}" y="28">{title}</text>\n{_legend()}\n{plot}\n</svg>\n'
    )


def _curve(command: str, settings: Any, shape: Shape, longest: int) -> Curve:
    def gib(tokens: int) -> float:
        load = load_of(command, replace(settings, max_length=tokens), shape, gpu=True)
        return memory(load).total / GIB

    lengths = [round(2 ** (step / 4)) for step in range(32, int(4 * math.log2(longest)) + 1)]
    ends = [largest(functools.partial(_fits, gib, card), longest) for card in CARDS]
    reached = [(tokens, gib(tokens)) for tokens in ends if SHORTEST <= tokens < longest]
    return Curve(
        4 if settings.load_in_4bit else 16, [(tokens, gib(tokens)) for tokens in lengths], reached
    )


def _fits(gib: Callable[[int], float], card: int, tokens: int) -> bool:
    return fits(gib(tokens), card)


def _axes(scales: PlotScales) -> list[str]:
    ticks = []
    for power in range(int(math.log2(SHORTEST)), int(math.log2(scales.longest)) + 1):
        x = scales.across(2**power)
        ticks.append(f'<path class="grid" d="M{x} {TOP}V{HEIGHT - BOTTOM}"/>')
        ticks.append(
            f'<text x="{x}" y="{HEIGHT - BOTTOM + 18}" '
            f'text-anchor="middle">{_tokens(2**power)}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    return [
        *ticks,
        f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">tokens in a row</text>',
    ]


def _cards(scales: PlotScales) -> list[str]:
    return [
        f'<path class="card" d="M{LEFT} {scales.up(card)}H{WIDTH - RIGHT}"/>'
        f'<text x="{LEFT - 8}" y="{scales.up(card) + 4}" text-anchor="end">{card} GB</text>'
        for card in CARDS
        if card > scales.lowest
    ]


def _curve_lines(curve: Curve, scales: PlotScales) -> list[str]:
    """The curve of 16 bit lies above that of 4 bit: its numbers are written above it."""
    side, anchor, down = (-8, "end", -6) if curve.bits == 16 else (8, "start", 14)
    line = "L".join(f"{scales.across(tokens)} {scales.up(gib)}" for tokens, gib in curve.points)
    dots = [
        f'<circle class="dot{curve.bits}" cx="{scales.across(tokens)}" cy="{scales.up(gib)}" '
        'r="4"/>'
        f'<text class="dot{curve.bits}" x="{scales.across(tokens) + side}" '
        f'y="{scales.up(gib) + down}" '
        f'text-anchor="{anchor}">{_tokens(tokens)}</text>'
        for tokens, gib in curve.reached
    ]
    return [f'<path class="curve bits{curve.bits}" d="M{line}"/>', *dots]


def _legend() -> str:
    lines = [
        (
            f'<path class="curve bits{bits}" d="M{x} 48h22"/><text x="{x + 30}" y="52">{bits}-bit '
            "weights</text>"
        )
        for x, bits in ((LEFT, 4), (LEFT + 130, 16))
    ]
    note = "dots: longest row that fits, 8 % left free; calculated"
    return "".join([*lines, f'<text x="{WIDTH - RIGHT}" y="52" text-anchor="end">{note}</text>'])


def _tokens(tokens: int) -> str:
    return (
        f"{tokens / 1024:.0f}k"
        if tokens >= 10240
        else f"{tokens / 1024:.2g}k"
        if tokens >= 1024
        else str(tokens)
    )
