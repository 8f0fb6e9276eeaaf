"""Evaluate the retriever: figures, rankings and latency of every ranking method."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from agentlite.config.settings import RetrieverSettings
from agentlite.core import console
from agentlite.core.row_files import write_json, write_rows
from agentlite.engine import sentence_encoder
from agentlite.retrieval import evaluate, index
from agentlite.retrieval.queries import Query
from agentlite.retrieval.rankers import BY_WORDS, Ranker, Scores, by_name, by_vectors
from agentlite.retrieval.tool_pool import ToolPool
from agentlite.scoring.metrics.ranking import headline
from agentlite.workspace.model_source import Source

TUNED, UNTRAINED = "tuned", "untrained"
TIMED, SHOWN = 50, 10  # questions that are timed; tools per question in rankings.jsonl


class Encoder:
    """A model and its vectors of the pool, both loaded when they are first needed."""

    def __init__(self, source: Source, settings: RetrieverSettings, pool: ToolPool):
        self.source, self.max_length, self.pool = source, settings.max_length, pool

    @cached_property
    def model(self) -> Any:
        return sentence_encoder.load(self.source, self.max_length)

    @cached_property
    def vectors(self) -> Scores:
        model, texts = self.model, self.pool.texts
        with console.progress(f"{self.source.name}: tools read:", len(texts)) as advance:
            return sentence_encoder.embed(model, texts, advance)

    def embed(self, texts: Sequence[str]) -> Scores:
        return sentence_encoder.embed(self.model, texts)

    @property
    def ranker(self) -> Ranker:
        return by_vectors(self.vectors, self.embed)


def measure(
    folder: Path,
    settings: RetrieverSettings,
    by_split: Mapping[str, Sequence[Query]],
    untrained: Encoder,
    tuned: Encoder | None,
) -> dict[str, Any]:
    """Every ranking method on the questions of test: writes metrics.json and rankings.jsonl.
    Returns the key figures; none where test has no question.
    """
    queries, pool = by_split["test"], untrained.pool
    if not queries:
        console.notice(
            "retriever: no question in test needs a tool: nothing is measured. Prepare with --test "
            "0.2"
        )
        return {}
    known = {name for query in by_split["train"] for name in query.names}
    rankers = {name: make(pool.texts) for name, make in BY_WORDS.items()}
    rankers[UNTRAINED] = untrained.ranker
    if tuned:
        rankers[TUNED] = tuned.ranker
    best, encoder = (TUNED, tuned) if tuned else (UNTRAINED, untrained)
    with console.waiting(
        f"retriever: ranking {len(pool.entries)} tools for {len(queries)} questions"
    ):
        texts = [query.text for query in queries]
        entries = {name: ranker(texts) for name, ranker in rankers.items()}
        scores = {
            name: by_name(table, pool.owners, len(pool.names)) for name, table in entries.items()
        }
        by_size = list(
            evaluate.ranks(queries, pool, scores, settings.sizes, settings.seed, (best, "bm25"))
        )
    with console.waiting("retriever: measuring"):
        figures = evaluate.figures(queries, by_size, settings.top, known, settings.seed)
        shown = headline(figures["all"][str(by_size[0].size)][best])
        compared = evaluate.differences(queries, by_size, shown[0], best, known, settings.seed)
        latency = _latency(texts, pool, rankers, encoder)
    others = {"differences": compared, "latency_ms": latency}
    methods = [*by_size[0].by_method]
    write_json(folder / "metrics.json", {"methods": methods, "ranking": figures, **others})
    rankings = [
        {
            **query.step._asdict(),
            "question": query.text,
            "right": query.names,
            "ranks": ranked.ranks,
            "retrieved": [
                pool.entries[entry].tool.name for entry in index.likeliest(row[None], pool, SHOWN)
            ],
        }
        for query, ranked, row in zip(
            queries, by_size[-1].by_method[best], entries[best], strict=True
        )
    ]
    write_rows(folder / "rankings.jsonl", rankings)
    return {"ranking": _short(figures, shown), **others}


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


def _latency(
    texts: Sequence[str], pool: ToolPool, rankers: Mapping[str, Ranker], encoder: Encoder
) -> dict[str, float]:
    """Median milliseconds of one question at a time: encoding it, searching the pool with its
    vector, and BM25.
    """
    some = texts[:TIMED]
    vectors = encoder.embed(some)
    timed: dict[str, Callable[[int], Any]] = {
        "encode": lambda number: encoder.embed(some[number : number + 1]),
        "search": lambda number: index.likeliest(
            vectors[number : number + 1] @ encoder.vectors.T, pool, 5
        ),
        "bm25": lambda number: index.likeliest(rankers["bm25"](some[number : number + 1]), pool, 5),
    }
    medians = {}
    for name, ask in timed.items():
        milliseconds = []
        for number in range(len(some)):
            started = time.perf_counter()
            ask(number)
            milliseconds.append(1000 * (time.perf_counter() - started))
        medians[name] = round(median(milliseconds), 3)
    return medians
