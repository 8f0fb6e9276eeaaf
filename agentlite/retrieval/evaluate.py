"""Figures of every ranking method at several sizes of the pool, and their paired differences.

At a size, a query is asked among its right tools and as many others as are missing: the same others
for every query.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import to_builtins

from agentlite.core.records import Step
from agentlite.retrieval.queries import Query
from agentlite.retrieval.rankers import Scores, fused
from agentlite.retrieval.tool_pool import ToolPool
from agentlite.scoring.metrics.confidence import paired_differences
from agentlite.scoring.metrics.ranking import QueryRanking, summaries, value

FUSED = "hybrid"
VIEWS = ("all", "new tools", "known tools", "tool_retrieval")


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
    others = list(range(len(pool.names)))
    random.Random(seed).shuffle(others)
    for size in sorted({min(size, len(others)) for size in (*sizes, len(others))}):
        found: dict[str, list[QueryRanking]] = {name: [] for name in (*scores, FUSED)}
        for number, query in enumerate(queries):
            right = [pool.names[name] for name in query.names if name in pool.names]
            here = _here(right, others, size)
            own = {name: table[number][here] for name, table in scores.items()}
            own[FUSED] = fused(*(own[name][None, :] for name in fuse))[0]
            for name, row in own.items():
                found[name].append(QueryRanking(tuple(_ranks(row, len(right))), len(query.names)))
        yield QueryRanks(size, found)


def figures(
    queries: Sequence[Query],
    found: Sequence[QueryRanks],
    ks: Sequence[int],
    known: set[str],
    seed: int,
) -> dict[str, Any]:
    """By view, size and method: every metric. `known`: names that were right somewhere in
    training.
    """
    views = {name: places for name in VIEWS if (places := _of_view(name, queries, known))}
    return {
        view: {
            str(one.size): {
                method: to_builtins(summaries([ranked[place] for place in places], ks, seed))
                for method, ranked in one.by_method.items()
            }
            for one in found
        }
        for view, places in views.items()
    }


def differences(
    queries: Sequence[Query],
    found: Sequence[QueryRanks],
    metric: str,
    second: str,
    known: set[str],
    seed: int,
) -> list[dict[str, object]]:
    """What `second` has over every other method, on the same queries, whole records drawn again."""
    compared: list[tuple[dict[str, object], tuple[dict[Step, float], dict[Step, float]]]] = []
    for view in VIEWS:
        places = _of_view(view, queries, known)
        for one in found if places else ():
            own = {
                method: {queries[place].step: value(ranked[place], metric) for place in places}
                for method, ranked in one.by_method.items()
            }
            of_size = {"view": view, "tools": one.size, "metric": metric}
            compared += [
                ({**of_size, "first": first, "second": second}, (own[first], own[second]))
                for first in own
                if first != second
            ]
    found_differences = paired_differences([values for _, values in compared], seed)
    return [
        {**names, **to_builtins(one)}
        for (names, _), one in zip(compared, found_differences, strict=True)
    ]


def _of_view(view: str, queries: Sequence[Query], known: set[str]) -> list[int]:
    """Which queries count: all; those whose right tools were never right in training; those where
    some was.
    """
    new = [known.isdisjoint(query.names) for query in queries]
    holds = {
        "all": [True] * len(new),
        "new tools": new,
        "known tools": [not one for one in new],
        "tool_retrieval": [query.task == "tool_retrieval" for query in queries],
    }
    return [place for place, counts in enumerate(holds[view]) if counts]


def _here(right: Sequence[int], others: Sequence[int], size: int) -> list[int]:
    """The columns a query is asked among: the right ones first."""
    wrong = (place for place in others if place not in right)
    return [*right, *(place for place, _ in zip(wrong, range(size - len(right)), strict=False))]


def _ranks(row: Scores, right: int) -> list[int]:
    """Of the first `right` columns, in rising order. A tie counts against them."""
    import numpy

    wrong = numpy.sort(row[right:])
    own = numpy.sort(row[:right])[::-1]
    above = len(wrong) - numpy.searchsorted(wrong, own, side="left")
    return [int(count) + number for number, count in enumerate(above, 1)]
