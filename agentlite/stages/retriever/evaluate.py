"""Evaluate the retriever: figures and rankings of every ranking method.

At a size of the pool, a query is asked among its right tools and as many others as are missing: the
same others for every query.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import to_builtins

from agentlite.config.settings import RetrieverSettings
from agentlite.core import console
from agentlite.core.records import Step
from agentlite.core.row_files import write_json, write_rows
from agentlite.engine import sentence_encoder
from agentlite.retrieval.rankers import Ranker, Scores, bm25, by_name, by_vectors, likeliest
from agentlite.retrieval.tool_pool import Query, ToolPool
from agentlite.scoring.metrics.confidence import paired_differences
from agentlite.scoring.metrics.ranking import QueryRanking, headline, summaries, value
from agentlite.workspace.model_source import Source

TUNED, UNTRAINED = "tuned", "untrained"
SHOWN = 10  # tools per question in rankings.jsonl


class PoolEncoder:
    """A model and its vectors of the pool, both loaded when they are first needed."""

    def __init__(self, source: Source, max_length: int, pool: ToolPool):
        self.source, self.max_length, self.pool = source, max_length, pool

    @cached_property
    def model(self) -> Any:
        return sentence_encoder.load(self.source, self.max_length)

    @cached_property
    def vectors(self) -> Scores:
        model, texts = self.model, self.pool.texts
        with console.waiting(f"{self.source.name}: reading {len(texts)} tools"):
            return sentence_encoder.embed(model, texts)

    def embed(self, texts: Sequence[str]) -> Scores:
        return sentence_encoder.embed(self.model, texts)

    @property
    def ranker(self) -> Ranker:
        return by_vectors(self.vectors, self.embed)


class QueryRanks(NamedTuple):
    """The ranks of each query's right tools by method, at a size of the pool."""

    size: int
    by_method: dict[str, list[QueryRanking]]


def measure(
    folder: Path,
    settings: RetrieverSettings,
    by_split: Mapping[str, Sequence[Query]],
    untrained: PoolEncoder,
    tuned: PoolEncoder | None,
) -> dict[str, Any]:
    """Every ranking method on the questions of test: writes metrics.json and rankings.jsonl.
    Returns the key figures; none where test has no question.
    """
    queries, pool, seed = by_split["test"], untrained.pool, settings.seed
    if not queries:
        console.notice(
            "retriever: no question in test needs a tool: nothing is measured. Prepare with --test "
            "0.2"
        )
        return {}
    known = {name for query in by_split["train"] for name in query.names}
    rankers = {"bm25": bm25(pool.texts), UNTRAINED: untrained.ranker}
    if tuned:
        rankers[TUNED] = tuned.ranker
    best = TUNED if tuned else UNTRAINED
    with console.waiting(
        f"retriever: ranking {len(pool.tools)} tools for {len(queries)} questions"
    ):
        texts = [query.text for query in queries]
        entries = {name: ranker(texts) for name, ranker in rankers.items()}
        scores = {
            name: by_name(table, pool.owners, len(pool.names)) for name, table in entries.items()
        }
        by_size = list(ranks(queries, pool, scores, settings.sizes, seed))
    with console.waiting("retriever: measuring"):
        measured = figures(queries, by_size, settings.top, known, seed)
        shown = headline(measured["all"][str(by_size[0].size)][best])
        gains = differences(queries, by_size, shown[0], best, seed)
    methods = [*by_size[0].by_method]
    write_json(
        folder / "metrics.json", {"methods": methods, "ranking": measured, "differences": gains}
    )
    ranked = zip(queries, by_size[-1].by_method[best], entries[best], strict=True)
    rankings = [
        {
            **query.step._asdict(),
            "question": query.text,
            "right": query.names,
            "ranks": ranking.ranks,
            "retrieved": [pool.tools[entry].name for entry in likeliest(row[None], pool, SHOWN)],
        }
        for query, ranking, row in ranked
    ]
    write_rows(folder / "rankings.jsonl", rankings)
    return {"ranking": _short(measured, shown), "differences": gains}


def ranks(
    queries: Sequence[Query],
    pool: ToolPool,
    scores: Mapping[str, Scores],
    sizes: Sequence[int],
    seed: int,
) -> Iterator[QueryRanks]:
    """`scores`: of each name, by method. Sizes beyond the pool are the pool."""
    import numpy

    others = list(range(len(pool.names)))
    random.Random(seed).shuffle(others)
    for size in sorted({min(size, len(others)) for size in (*sizes, len(others))}):
        by_method: dict[str, list[QueryRanking]] = {name: [] for name in scores}
        for number, query in enumerate(queries):
            # the columns that the query is asked among, the right ones first
            right = [pool.names[name] for name in query.names if name in pool.names]
            wrong = (place for place in others if place not in right)
            here = [*right, *islice(wrong, max(0, size - len(right)))]
            for name, table in scores.items():
                row = table[number][here]
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
            str(size): {
                method: to_builtins(summaries([ranked[place] for place in places], ks, seed))
                for method, ranked in by_method.items()
            }
            for size, by_method in by_size
        }
        for view, places in _views(queries, known).items()
    }


def differences(
    queries: Sequence[Query],
    by_size: Sequence[QueryRanks],
    metric: str,
    second: str,
    seed: int,
) -> list[dict[str, object]]:
    """What `second` has over every other method, on the same queries, whole records drawn again."""
    compared: list[dict[str, object]] = []
    values: list[tuple[dict[Step, float], dict[Step, float]]] = []
    steps = [query.step for query in queries]
    for size, by_method in by_size:
        own = {
            method: {step: value(one, metric) for step, one in zip(steps, ranked, strict=True)}
            for method, ranked in by_method.items()
        }
        for first in own:
            if first != second:
                compared.append({"tools": size, "metric": metric, "first": first, "second": second})
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


def _short(figures: Mapping[str, Any], shown: Sequence[str]) -> dict[str, object]:
    """The key figures of each method; metrics.json has the rest."""
    return {
        view: {
            size: {
                method: {
                    name: {key: one[name][key] for key in ("mean", "low", "high", "count")}
                    for name in shown
                }
                for method, one in methods.items()
            }
            for size, methods in sizes.items()
        }
        for view, sizes in figures.items()
    }
