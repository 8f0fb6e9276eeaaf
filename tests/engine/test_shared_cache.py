"""Attention in groups gives what transformers' own gives, for every shape, and copies no keys."""

from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.engine.shared_cache import attend

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def case(heads: int, of_key: int, tokens: int, columns: int, rows: int = 3) -> tuple[Any, ...]:
    """Query, key, value and a mask in which every token sees some columns, and not all."""
    draw = torch.Generator().manual_seed(heads * 1000 + tokens * 100 + columns)
    query = torch.randn(rows, heads, tokens, 8, generator=draw)
    key = torch.randn(rows, heads // of_key, columns, 8, generator=draw)
    value = torch.randn(rows, heads // of_key, columns, 8, generator=draw)
    seen = torch.rand(rows, 1, tokens, columns, generator=draw) < 0.6
    seen[..., 0] = True
    mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
    return query, key, value, mask


def by_hand(query: Any, key: Any, value: Any, mask: Any, scaling: float) -> Any:
    """(rows, tokens, heads, size)"""
    of_key = query.shape[1] // key.shape[1]
    heads = []
    for head in range(query.shape[1]):
        scores = query[:, head] @ key[:, head // of_key].transpose(1, 2) * scaling
        if mask is not None:
            scores = scores + mask[:, 0]
        heads.append(scores.softmax(-1) @ value[:, head // of_key])
    return torch.stack(heads, 2)


@pytest.mark.parametrize("of_key", [1, 2, 3, 6])
@pytest.mark.parametrize("tokens", [1, 2, 5])
@pytest.mark.parametrize("columns", [1, 7, 40])
@pytest.mark.parametrize("masked", [True, False])
def test_each_head_reads_the_keys_of_its_group(
    of_key: int, tokens: int, columns: int, masked: bool
) -> None:
    query, key, value, mask = case(6, of_key, tokens, columns)
    module = SimpleNamespace(num_key_value_groups=of_key, is_causal=False, training=False)
    found, weights = attend(module, query, key, value, mask if masked else None, scaling=0.3)
    expected = by_hand(query, key, value, mask if masked else None, 0.3)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert weights is None and found.is_contiguous()
