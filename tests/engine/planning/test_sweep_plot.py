"""The curves of memory against length: where they end, and which cards they reach."""

import math
import re
from typing import Any

import pytest

from agentlite.config import resolve
from agentlite.engine.planning import sweep_plot
from agentlite.engine.planning.memory import fits
from agentlite.engine.planning.model_shape import Shape, find_shape
from agentlite.engine.planning.sweep_plot import CARDS, LONGEST, SHORTEST, sweep

SEVEN, SMALL = find_shape("Qwen/Qwen2.5-7B-Instruct"), find_shape("smollm2-135m")


def settings_of(**changed: Any) -> Any:
    return resolve.resolve("sft", resolve.Given(changed, profile="rtx4090")).settings


@pytest.mark.parametrize(
    ("tokens", "label"),
    [(256, "256"), (1023, "1023"), (1024, "1k"), (1536, "1.5k"), (10240, "10k"), (131072, "128k")],
)
def test_lengths_are_written_in_units_of_1024(tokens: int, label: str) -> None:
    assert sweep_plot._tokens(tokens) == label


@pytest.mark.parametrize("shape", [SEVEN, SMALL], ids=["seven", "small"])
@pytest.mark.parametrize("bits", [4, 16])
def test_a_dot_stands_at_the_longest_row_that_fits_a_card_inside_of_the_picture(
    shape: Shape, bits: int
) -> None:
    settings = settings_of(load_in_4bit=bits == 4, batch_size=1)
    curve = sweep_plot._curve("sft", settings, shape, 8192)
    assert curve.bits == bits
    lengths = [tokens for tokens, _ in curve.points]
    assert (lengths[0], lengths[-1]) == (SHORTEST, 8192) and lengths == sorted(lengths)
    by_length = dict(curve.points)
    expected = []
    for card in CARDS:
        held = [tokens for tokens in lengths if fits(by_length[tokens], card)]
        if held and held[-1] < 8192:
            expected.append((card, held[-1]))
    assert len(curve.reached) == len(expected)
    for (tokens, gib), (card, held) in zip(curve.reached, expected, strict=True):
        assert held <= tokens <= held * 2**0.25 + 1 and fits(gib, card)


def test_the_picture_is_of_one_row_whatever_the_settings_have() -> None:
    plain = sweep("sft", settings_of(batch_size=1), SEVEN, "m")
    many = settings_of(batch_size=16, load_in_4bit=False, load_in_8bit=True)
    assert sweep("sft", many, SEVEN, "m") == plain


@pytest.mark.parametrize(
    ("positions", "longest"), [(100, 512), (4096, 4096), (1 << 20, LONGEST), (2**31, LONGEST)]
)
def test_the_picture_ends_where_the_model_does(positions: int, longest: int) -> None:
    text = sweep("sft", settings_of(), SEVEN._replace(max_positions=positions), "m")
    ticks = re.findall(r'text-anchor="middle">(\d+k?)<', text)
    powers = range(int(math.log2(SHORTEST)), int(math.log2(longest)) + 1)
    assert ticks == [sweep_plot._tokens(2**power) for power in powers]


def test_a_card_below_all_that_is_planned_has_no_line() -> None:
    large = SEVEN._replace(layers=20 * SEVEN.layers)  # its weights alone take more than 24 GiB
    for shape, cards in ((SEVEN, CARDS), (large, CARDS[3:])):
        text = sweep("sft", settings_of(), shape, "m")
        assert re.findall(r'text-anchor="end">(\d+) GB<', text) == [str(card) for card in cards]
