"""Figures of every ranking method at several sizes of the pool, and their paired differences.

At a size, a query is asked among its right tools and as many others as are missing: the same others
for every query.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from msgspec import to_builtins

from agentlite.core.records import Step
from agentlite.retrieval.queries import Query
from agentlite.retrieval.rankers import Scores, fused
from agentlite.retrieval.tool_pool import ToolPool
from agentlite.scoring.metrics.confidence import paired_differences
from agentlite.scoring.metrics.ranking import QueryRanking, summaries, value

FUSED = "hybrid"


class QueryRanks(NamedTuple):
    """The ranks of each query's right tools by method, at a size of the pool."""

    size: int
    by_method: dict[str, list[QueryRanking]]


def ranks(
    queries: Sequence[Query],
    pool: ToolPool,
    scores: Mapping[str, Scores],
    sizes: Sequence[int],
    seed: int,
    fuse: tuple[str, str],
) -> Iterator[QueryRanks]:
    """`scores`: of each name, by method; `fuse`: the two that make the hybrid. Sizes beyond the
    pool are the pool.
    """
    import numpy

    others = list(range(len(pool.names)))
    random.Random(seed).shuffle(others)
    for size in sorted({min(size, len(others)) for size in (*sizes, len(others))}):
        by_method: dict[str, list[QueryRanking]] = {name: [] for name in (*scores, FUSED)}
        for number, query in enumerate(queries):
            # the columns that the query is asked among, the right ones first
            right = [pool.names[name] for name in query.names if name in pool.names]
            wrong = (place for place in others if place not in right)
            here = [*right, *islice(wrong, max(0, size - len(right)))]
            own = {name: table[number][here] for name, table in scores.items()}
            own[FUSED] = fused(*(own[name][None, :] for name in fuse))[0]
            for name, row in own.items():
                # a tie counts against the right tools
                rest = numpy.sort(row[len(right) :])
                best = numpy.sort(row[: len(right)])[::-1]
                above = len(rest) - numpy.searchsorted(rest, best, side="left")
                ranked = tuple(int(count) + rank for rank, count in enumerate(above, 1))
                by_method[name].append(QueryRanking(ranked, len(query.names)))
        yield QueryRanks(size, by_method)


def figures(
    queries: Sequence[Query],
    by_size: Sequence[QueryRanks],
    ks: Sequence[int],
    known: set[str],
    seed: int,
) -> dict[str, Any]:
    """By view, size and method: every metric. `known`: names that were right somewhere in
    training.
    """
    return {
        view: {
            str(ranks.size): {
                method: to_builtins(summaries([ranked[place] for place in places], ks, seed))
                for method, ranked in ranks.by_method.items()
            }
            for ranks in by_size
        }
        for view, places in _views(queries, known).items()
    }


def differences(
    queries: Sequence[Query],
    by_size: Sequence[QueryRanks],
    metric: str,
    second: str,
    known: set[str],
    seed: int,
) -> list[dict[str, object]]:
    """What `second` has over every other method, on the same queries, whole records drawn again."""
    compared: list[dict[str, object]] = []
    values: list[tuple[dict[Step, float], dict[Step, float]]] = []
    for view, places in _views(queries, known).items():
        for ranks in by_size:
            own = {
                method: {queries[place].step: value(ranked[place], metric) for place in places}
                for method, ranked in ranks.by_method.items()
            }
            of_size = {"view": view, "tools": ranks.size, "metric": metric}
            for first in own:
                if first != second:
                    compared.append({**of_size, "first": first, "second": second})
                    values.append((own[first], own[second]))
    return [
        {**names, **to_builtins(difference)}
        for names, difference in zip(compared, paired_differences(values, seed), strict=True)
    ]


def _views(queries: Sequence[Query], known: set[str]) -> dict[str, list[int]]:
    """Which queries count: all; those whose right tools were never right in training; those where
    some was; those of a task. Without the views that have none.
    """
    new = [known.isdisjoint(query.names) for query in queries]
    views = {
        "all": [True] * len(new),
        "new tools": new,
        "known tools": [not is_new for is_new in new],
        "tool_retrieval": [query.task == "tool_retrieval" for query in queries],
    }
    return {
        view: [place for place, counts in enumerate(counted) if counts]
        for view, counted in views.items()
        if any(counted)
    }
