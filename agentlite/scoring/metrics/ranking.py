"""Ranks of the right tools -> Recall, Precision, NDCG, COMP and hit at k, MRR and MAP.

ToolRet's and SAGE's definitions: COMP@k, all right tools are among the first k; hit@k, any of them
is.
"""

from collections.abc import Callable, Iterable, Sequence
from math import log2
from typing import NamedTuple

from agentlite.scoring.metrics.confidence import Summary, summary


class QueryRanking(NamedTuple):
    """The ranks of a query's right tools, from 1, in rising order; `expected`: how many there are,
    found or not.
    """

    ranks: tuple[int, ...]
    expected: int


AT_K: dict[str, Callable[[QueryRanking, int], float]] = {
    "recall": lambda query, k: _within(query, k) / query.expected,
    "precision": lambda query, k: _within(query, k) / k,
    "ndcg": lambda query, k: (
        _gain(rank for rank in query.ranks if rank <= k)
        / _gain(range(1, min(query.expected, k) + 1))
    ),
    "comp": lambda query, k: float(_within(query, k) == query.expected),
    "hit": lambda query, k: float(_within(query, k) > 0),
}
OVERALL: dict[str, Callable[[QueryRanking], float]] = {
    "mrr": lambda query: 1 / query.ranks[0] if query.ranks else 0.0,
    "map": lambda query: (
        sum(number / rank for number, rank in enumerate(query.ranks, 1)) / query.expected
    ),
}


def values(query: QueryRanking, ks: Sequence[int]) -> dict[str, float]:
    """Every metric of a query, by name: recall@5, mrr."""
    at = {f"{name}@{k}": measure(query, k) for name, measure in AT_K.items() for k in ks}
    return at | {name: measure(query) for name, measure in OVERALL.items()}


def value(query: QueryRanking, metric: str) -> float:
    name, at, k = metric.partition("@")
    return AT_K[name](query, int(k)) if at else OVERALL[name](query)


def summaries(ranked: Sequence[QueryRanking], ks: Sequence[int], seed: int) -> dict[str, Summary]:
    rows = [values(query, ks) for query in ranked]
    return {name: summary([row[name] for row in rows], seed) for name in rows[0]}


def headline(names: Iterable[str]) -> list[str]:
    """The main figures: recall at the k nearest to 5, and those printed next to it."""
    ks = (int(name.partition("@")[2]) for name in names if name.startswith("recall@"))
    k = min(ks, key=lambda k: abs(k - 5))
    return [f"recall@{k}", f"comp@{k}", f"ndcg@{k}", "mrr", "map"]


def _within(query: QueryRanking, k: int) -> int:
    return sum(rank <= k for rank in query.ranks)


def _gain(ranks: Iterable[int]) -> float:
    return sum(1 / log2(rank + 1) for rank in ranks)
