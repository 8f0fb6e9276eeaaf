"""Ranking metrics at every rank that a right tool can have, by a calculation made another way."""

from itertools import combinations
from math import log

import pytest

from agentlite.stages.retriever import metrics

CASES = [
    (ranks, expected)
    for expected in (1, 2, 3)
    for found in range(expected + 1)
    for ranks in combinations(range(1, 6), found)
]


def reference(ranks: tuple[int, ...], expected: int, k: int) -> dict[str, float]:
    """By a list of which of the first places hold a right tool."""
    right = [place in ranks for place in range(1, 7)]
    top = right[:k]
    gain = sum(log(2) / log(place + 1) for place, hit in enumerate(top, 1) if hit)
    ideal = sum(log(2) / log(place + 1) for place in range(1, k + 1) if place <= expected)
    precisions = [sum(right[:n]) / n for n in range(1, 7) if right[n - 1]]
    return {
        f"recall@{k}": sum(top) / expected,
        f"ndcg@{k}": gain / ideal,
        f"comp@{k}": float(sum(top) == expected),
        "mrr": next((1 / n for n in range(1, 7) if right[n - 1]), 0.0),
        "map": sum(precisions) / expected,
    }


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_every_metric_is_that_of_its_definition(k):
    for one in CASES:
        assert metrics(*one, k) == pytest.approx(reference(*one, k)), one
