"""Ranks of the right tools -> Recall, COMP and NDCG at k, MRR and MAP.

ToolRet's and SAGE's definitions: COMP@k, all right tools are among the first k.
"""

from collections.abc import Callable, Iterable
from math import log2
from typing import NamedTuple


class QueryRanking(NamedTuple):
    """The ranks of a query's right tools, from 1, in rising order; `expected`: how many there are,
    found or not.
    """

    ranks: tuple[int, ...]
    expected: int


def metrics(k: int) -> dict[str, Callable[[QueryRanking], float]]:
    """By name, the main one first."""

    def within(query: QueryRanking) -> list[int]:
        return [rank for rank in query.ranks if rank <= k]

    def best_gain(query: QueryRanking) -> float:
        return _gain(range(1, min(query.expected, k) + 1))

    return {
        f"recall@{k}": lambda query: len(within(query)) / query.expected,
        f"comp@{k}": lambda query: float(len(within(query)) == query.expected),
        f"ndcg@{k}": lambda query: _gain(within(query)) / best_gain(query),
        "mrr": lambda query: 1 / query.ranks[0] if query.ranks else 0.0,
        "map": lambda query: (
            sum(number / rank for number, rank in enumerate(query.ranks, 1)) / query.expected
        ),
    }


def _gain(ranks: Iterable[int]) -> float:
    return sum(1 / log2(rank + 1) for rank in ranks)
