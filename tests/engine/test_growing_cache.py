"""A cache that grows in place holds what transformers' own holds, and seldom copies it."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture
def config() -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)


def columns(rows: int, count: int, seed: int) -> Any:
    return torch.randn(rows, 2, count, 8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("counts", [(5, 1, 1), (1,) * 150, (100, 30, 70, 1), (64, 64, 64)])
@pytest.mark.parametrize("selected", [None, 0, 2])
def test_it_holds_the_columns_of_transformers_own_cache(
    config: Any, counts: tuple[int, ...], selected: int | None
) -> None:
    from transformers import DynamicCache

    from agentlite.engine.growing_cache import growing_cache

    ours, theirs, rows = growing_cache(config), DynamicCache(config=config), 4
    for step, count in enumerate(counts):
        for layer in (0, 1):
            keys, values = columns(rows, count, 2 * step), columns(rows, count, 2 * step + 1)
            found = ours.update(keys, values, layer)
            expected = theirs.update(keys, values, layer)
            for one, other in zip(found, expected, strict=True):
                assert torch.equal(one, other)
        assert ours.get_seq_length() == theirs.get_seq_length() == sum(counts[: step + 1])
        if step == selected:
            index = torch.tensor([0, 2, 3])
            ours.batch_select_indices(index)
            theirs.batch_select_indices(index)
            rows = 3
    for one, other in zip(ours.layers, theirs.layers, strict=True):
        assert torch.equal(one.keys, other.keys) and torch.equal(one.values, other.values)
