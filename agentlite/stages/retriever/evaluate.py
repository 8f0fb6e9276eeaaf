"""Evaluate the retriever: figures, rankings and latency of every ranking method."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from agentlite.config.settings import RetrieverSettings
from agentlite.core import console
from agentlite.core.row_files import Row, write_json, write_rows
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
        self._model: Any = None
        self._vectors: Scores = None

    @property
    def vectors(self) -> Scores:
        if self._vectors is None:
            self._vectors = self.embed(self.pool.texts, f"{self.source.name}: tools read:")
        return self._vectors

    def embed(self, texts: Sequence[str], title: str = "") -> Scores:
        from agentlite.engine import sentence_encoder

        if self._model is None:
            self._model = sentence_encoder.load(self.source, self.max_length)
        if not title:
            return sentence_encoder.embed(self._model, texts)
        with console.progress(title, len(texts)) as advance:
            return sentence_encoder.embed(self._model, texts, advance)

    @property
    def ranker(self) -> Ranker:
        return by_vectors(self.vectors, self.embed)


def measure(
    folder: Path,
    settings: RetrieverSettings,
    by_split: Mapping[str, Sequence[Query]],
    untrained: Encoder,
    tuned: Encoder,
) -> dict[str, Any]:
    """Every ranking method on the questions of test: writes metrics.json and rankings.jsonl.
    Returns the key figures; none where test has no question. Without training `tuned` is
    `untrained`.
    """
    queries, pool = by_split["test"], untrained.pool
    if not queries:
        console.notice(
            "retriever: no question in test needs a tool: nothing is measured. Prepare with --test "
            "0.2"
        )
        return {}
    known = {name for query in by_split["train"] for name in query.names}
    rankers = {name: make(pool.texts) for name, make in BY_WORDS.items()} | {
        UNTRAINED: untrained.ranker
    }
    rankers |= {TUNED: tuned.ranker} if tuned is not untrained else {}
    best = TUNED if TUNED in rankers else UNTRAINED
    with console.waiting(
        f"retriever: ranking {len(pool.entries)} tools for {len(queries)} questions"
    ):
        texts = [query.text for query in queries]
        entries = {name: ranker(texts) for name, ranker in rankers.items()}
        scores = {name: by_name(one, pool.owners, len(pool.names)) for name, one in entries.items()}
        found = list(
            evaluate.ranks(queries, pool, scores, settings.sizes, settings.seed, (best, "bm25"))
        )
    with console.waiting("retriever: measuring"):
        figures = evaluate.figures(queries, found, settings.top, known, settings.seed)
        shown = headline(figures["all"][str(found[0].size)][best])
        compared = evaluate.differences(queries, found, shown[0], best, known, settings.seed)
        latency = _latency(texts, pool, rankers, tuned if best == TUNED else untrained)
    write_json(
        folder / "metrics.json",
        {
            "methods": [*found[0].by_method],
            "ranking": figures,
            "differences": compared,
            "latency_ms": latency,
        },
    )
    write_rows(folder / "rankings.jsonl", _rankings(queries, pool, entries[best], found[-1], best))
    return {"ranking": _short(figures, shown), "differences": compared, "latency_ms": latency}


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


def _rankings(
    queries: Sequence[Query], pool: ToolPool, scores: Scores, found: evaluate.QueryRanks, best: str
) -> list[Row]:
    """The top tools of the best ranker for each question, for people to look at."""
    rows = []
    for number, query in enumerate(queries):
        retrieved = index.likeliest(scores[number : number + 1], pool, SHOWN)
        rows.append(
            {
                **query.step._asdict(),
                "question": query.text,
                "right": query.names,
                "ranks": found.by_method[best][number].ranks,
                "retrieved": [pool.entries[entry].tool.name for entry in retrieved],
            }
        )
    return rows


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
    for name, measured in timed.items():
        milliseconds = []
        for number in range(len(some)):
            started = time.perf_counter()
            measured(number)
            milliseconds.append(1000 * (time.perf_counter() - started))
        medians[name] = round(median(milliseconds), 3)
    return medians
