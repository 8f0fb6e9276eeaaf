"""Ranking metrics at every rank that a right tool can have, by a calculation made another way."""

from itertools import combinations
from math import log

import pytest

from agentlite.scoring.metrics.confidence import wilson
from agentlite.scoring.metrics.ranking import QueryRanking, headline, summaries, value, values

CASES = [
    QueryRanking(ranks, expected)
    for expected in (1, 2, 3)
    for found in range(expected + 1)
    for ranks in combinations(range(1, 6), found)
]


def reference(one: QueryRanking, k: int) -> dict[str, float]:
    """By a list of which of the first places hold a right tool."""
    right = [place in one.ranks for place in range(1, 7)]
    top = right[:k]
    gain = sum(log(2) / log(place + 1) for place, hit in enumerate(top, 1) if hit)
    ideal = sum(log(2) / log(place + 1) for place in range(1, k + 1) if place <= one.expected)
    precisions = [sum(right[:n]) / n for n in range(1, 7) if right[n - 1]]
    return {
        f"recall@{k}": sum(top) / one.expected,
        f"precision@{k}": sum(top) / k,
        f"ndcg@{k}": gain / ideal,
        f"comp@{k}": float(sum(top) == one.expected),
        f"hit@{k}": float(any(top)),
        "mrr": next((1 / n for n in range(1, 7) if right[n - 1]), 0.0),
        "map": sum(precisions) / one.expected,
    }


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_every_metric_is_that_of_its_definition(k):
    for one in CASES:
        expected = reference(one, k)
        assert values(one, (k,)) == pytest.approx(expected), one
        assert {name: value(one, name) for name in expected} == pytest.approx(expected)


def test_a_mean_has_wilsons_interval_where_all_is_0_or_1_and_else_the_bootstraps():
    ranked = [QueryRanking((1, 2), 2)] * 6 + [QueryRanking((2, 7), 2)] * 2 + [QueryRanking((), 2)]
    found = summaries(ranked, (1, 2), seed=0)
    hit, recall = found["hit@2"], found["recall@2"]
    assert (hit.mean, hit.count, hit.interval) == (8 / 9, 9, "wilson")
    assert (hit.low, hit.high) == wilson(8, 9)
    assert (recall.mean, recall.count, recall.interval) == (7 / 9, 9, "bootstrap")
    assert recall.std == pytest.approx(
        ((6 * (2 / 9) ** 2 + 2 * (5 / 18) ** 2 + (7 / 9) ** 2) / 8) ** 0.5
    )
    assert 0.5 < recall.low < recall.mean < recall.high <= 1
    assert summaries(ranked[6:7], (2,), 0)["recall@2"].std is None


@pytest.mark.parametrize(
    ("ks", "k"), [((1, 5, 10), 5), ((1, 3, 10), 3), ((1, 20), 1), ((9, 20), 9), ((3, 7), 3)]
)
def test_the_headline_is_recall_at_the_k_nearest_to_5(ks, k):
    names = [f"{name}@{k}" for k in ks for name in ("recall", "hit")]
    assert headline(names) == [f"recall@{k}", f"comp@{k}", f"ndcg@{k}", "mrr", "map"]
