"""The bytes of every term of memory, counted by hand from a model's shape."""

from typing import Any

import pytest

from agentlite.engine.planning.memory import (
    Load,
    Regime,
    adapter_parameters,
    fits,
    fixed_terms,
    memory,
)
from agentlite.engine.planning.model_shape import Shape

# Linear layers of a block: queries 10 x 20, keys, values 10 x 4, output 20 x 10, MLP 3 x 10 x 30:
# 200 + 2 * 40 + 200 + 900 = 1380. Three blocks: 4140. Embeddings and head: 2 * 50 * 10 = 1000.
APART = Shape(3, 10, 5, 1, 4, 30, 50, False, 4096)
# Queries 8 x 8, keys and values 8 x 4, output 8 x 8, MLP 3 x 8 x 16: 64 + 64 + 64 + 384 = 576.
# Two blocks: 1152. Embeddings that are the head as well: 100 * 8 = 800.
TIED = Shape(2, 8, 2, 1, 4, 16, 100, True, 4096)
PARAMETERS = {APART: (4140, 1000), TIED: (1152, 800)}
# Inputs and outputs of each linear layer of a block, added up: what a rank of 1 has.
# APART: (10 + 20) + 2 * (10 + 4) + (20 + 10) + 3 * (10 + 30) = 208; TIED: 16 + 24 + 16 + 72 = 128.
ADAPTER = {APART: 3 * 208, TIED: 2 * 128}
# Values of a token in a block: 4 hidden + 3 queries + 2 keys + 5 intermediate.
BLOCK = {APART: 40 + 60 + 8 + 150, TIED: 32 + 24 + 8 + 80}
NF4 = (4 + 1 / 8 + 1 / 512) / 8  # bytes: 4 bits, 8 bits for 64 of them, 32 bits for 64 * 256

OF_VLLM = ("vllm", "kv_cache")
KEPT = Regime("kept", overhead=7, cache_copies=2)
WIDTHS = [(4, 2), (8, 2), (16, 2), (32, 4)]  # bits of the weights, bytes of an activation


def expected_fixed(shape: Shape, bits: int, full: bool, optimizer: str) -> dict[str, float]:
    linear, embeddings = PARAMETERS[shape]
    width = 4 if bits == 32 else 2
    weights = linear * {4: NF4, 8: 1, 16: 2, 32: 4}[bits] + embeddings * width
    adapter = 2 * ADAPTER[shape]  # of rank 2
    trained = linear + embeddings if full else adapter
    return {
        "weights": weights,
        "adapter": 0 if full else 4 * adapter,
        "gradients": trained * (width if full else 4),
        "optimizer": trained * {"adamw_8bit": 2, "adamw_torch": 8}[optimizer],
        "reference": weights if full else 4 * adapter,
        "teacher": 0,
        "overhead": 7,
    }


@pytest.mark.parametrize("shape", [APART, TIED], ids=["apart", "tied"])
@pytest.mark.parametrize("optimizer", ["adamw_8bit", "adamw_torch"])
@pytest.mark.parametrize("full", [True, False], ids=["full", "lora"])
@pytest.mark.parametrize("bits", [4, 8, 16, 32])
def test_what_stays_from_the_first_step_to_the_last_takes_the_bytes_counted_by_hand(
    shape: Shape, optimizer: str, full: bool, bits: int
) -> None:
    load = Load(
        shape, KEPT, bits, 2, optimizer=optimizer, full=full, reference=True, rows=1, length=5
    )
    found = {name: value for name, value in fixed_terms(load).items() if name not in OF_VLLM}
    assert found == pytest.approx(expected_fixed(shape, bits, full, optimizer))
    assert fixed_terms(load._replace(reference=False))["reference"] == 0
    # sampling alone has no gradients and no moments
    idle = fixed_terms(load._replace(rows=0, cached=10))
    assert (idle["gradients"], idle["optimizer"]) == (0, 0)


@pytest.mark.parametrize(("bits", "width"), WIDTHS)
@pytest.mark.parametrize(
    ("checkpoints", "excess"), [("offloaded", 1.0), ("kept", 1.0), ("none", 1.0), ("none", 1.5)]
)
def test_the_moments_of_a_step_take_the_bytes_counted_by_hand(
    checkpoints: Any, excess: float, bits: int, width: int
) -> None:
    """Two rows of five tokens: 10 tokens, hidden states of 10 values, three blocks."""
    regime = Regime(checkpoints, overhead=7, excess=excess)
    load = Load(APART, regime, bits, 2, rows=2, length=5)
    block, unpacked = 10 * width * BLOCK[APART], 2 * 10 * 30 if bits < 16 else 0
    inputs = 10 * 10 * width
    waiting = {"offloaded": 2 * inputs, "kept": 3 * inputs, "none": 3 * block * excess}
    again = 0 if checkpoints == "none" else block
    logits = 4 * 10 * 10 + 4 * 10 * 50  # in float32: hidden states' gradient, and all positions
    fixed = sum(expected_fixed(APART, bits, False, "adamw_8bit").values()) - 8 * 3 * 208
    moments = memory(load).moments
    assert {name: total - fixed for name, total in moments.items()} == pytest.approx(
        {
            "backward": waiting[checkpoints] + unpacked + again,
            "loss": waiting[checkpoints] + logits,
        }
    )


@pytest.mark.parametrize(("bits", "width"), WIDTHS)
@pytest.mark.parametrize("copies", [1, 2])
def test_sampling_takes_the_bytes_counted_by_hand(bits: int, width: int, copies: int) -> None:
    """7 tokens of prompts, 4 answers, 19 tokens in the cache; keys and values of 4 in 3 blocks."""
    load = Load(APART, KEPT._replace(cache_copies=copies), bits, sampled=4, cached=19, prompted=7)
    found = memory(load)
    assert (found.moment, [*found.moments]) == ("sampling", ["sampling"])
    unpacked = 600 if bits < 16 else 0
    assert found.terms["activations"] == unpacked + 7 * width * (2 * 10 + 3 * 30) + 2 * 4 * 4 * 50
    assert found.terms["kv_cache"] == 19 * (2 * 3 * 4 * width) * copies
    weights = expected_fixed(APART, bits, False, "adamw_8bit")["weights"]
    assert found.terms["weights"] == pytest.approx(weights)
    assert found.total == pytest.approx(sum(found.terms.values()))


@pytest.mark.parametrize(
    ("targets", "parameters"),
    [
        (("q_proj",), 3 * 30),
        (("k_proj", "down_proj"), 3 * (14 + 40)),
        (("all-linear",), 3 * 208),
        (("all",), 3 * 208 + 60),
        (("embed_tokens",), 60),
        (("v_proj", "v_proj"), 3 * 14),
    ],
)
def test_an_adapter_has_the_layers_that_are_named_each_once(
    targets: tuple[str, ...], parameters: int
) -> None:
    assert adapter_parameters(APART, 4, targets) == 4 * parameters
    assert adapter_parameters(APART, 0, targets) == 0


def test_a_total_fits_with_8_percent_to_spare() -> None:
    assert fits(100, 108) and fits(0, 0) and not fits(100, 107.9)
