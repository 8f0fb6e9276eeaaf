"""Rankers: queries -> a score for every tool of the pool, by words or by vectors; the likeliest."""

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from agentlite.retrieval.tool_pool import ToolPool

if TYPE_CHECKING:
    from numpy.typing import NDArray

Scores = Any  # NDArray of float32, a row a query, a column an entry
Ranker = Callable[[Sequence[str]], Scores]

SMALL = "a-zÀ-ÖØ-öø-ɏḀ-ỿ"  # with the Latin letters that have accents, in whatever case
# a change of case ends a word, and so do digits: getWeatherInfo_v2 -> get weather info v 2
WORD = re.compile(rf"[A-Z]?[{SMALL}]+|[A-Z]+(?![{SMALL}])|[0-9]+|[^\W_A-Z0-9{SMALL}]+")
CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")  # no blank ends a word


def words(text: str) -> list[str]:
    """Lower-cased; names in snake and camel case are parted. Of a run of Han, kana or hangul every
    two neighbours are a word, as no blank says where one ends: 天气预报 -> 天气 气预 预报.
    """
    tokens: list[str] = []
    for word in WORD.findall(text):
        lower = word.lower()
        is_run = CJK.search(word) and len(word) > 1
        tokens += [lower[i : i + 2] for i in range(len(lower) - 1)] if is_run else [lower]
    return tokens


def bm25(texts: Sequence[str]) -> Ranker:
    """Okapi BM25 in Lucene's form, k1 1.5 and b .75."""
    import bm25s

    index = bm25s.BM25()
    # it cannot index texts that are all empty, nor be asked without a word
    index.index([words(text) or [""] for text in texts], show_progress=False)

    def scores(queries: Sequence[str]) -> Scores:
        import numpy

        rows = [
            index.get_scores(query_words)
            if (query_words := words(query))
            else numpy.zeros(len(texts))
            for query in queries
        ]
        return numpy.array(rows, numpy.float32)

    return scores


def scores_by_name(scores: Scores, name_indices: Sequence[int], name_count: int) -> Scores:
    """The best score of the entries of each name: (queries, entries) -> (queries, names).
    `name_indices`: of each entry the index of its name.
    """
    import numpy

    best: NDArray[Any] = numpy.full((name_count, len(scores)), -numpy.inf, scores.dtype)
    numpy.maximum.at(best, numpy.asarray(name_indices), scores.T)
    return best.T


def top_entries(scores: Scores, pool: ToolPool, k: int) -> list[int]:
    """The entries of the `k` likeliest names, each the likeliest of its name. `scores`: a row a
    question, of every entry; of several questions each has its first tool before any has its
    second.
    """
    # [a, b] and [c] -> a, c, b: a late question is not crowded out by an early one
    by_question = [_first_of_names(_rank_entries(row), pool, k) for row in scores]
    by_turns = (entry for turn in zip_longest(*by_question) for entry in turn if entry is not None)
    return _first_of_names(by_turns, pool, k)


def _rank_entries(row: Scores) -> Iterator[int]:
    """The likeliest first; equal ones in their order, on any machine."""
    import numpy

    return map(int, numpy.argsort(-row, kind="stable"))


def _first_of_names(entries: Iterable[int], pool: ToolPool, k: int) -> list[int]:
    """The first entry of each name, of `k` names."""
    by_name: dict[int, int] = {}
    for entry in entries:
        if len(by_name) == k:
            break
        by_name.setdefault(pool.name_indices[entry], entry)
    return list(by_name.values())


def draw_unlikely(scores: Scores, pool: ToolPool, count: int, seed: str) -> list[int]:
    """Entries of that many names of the less likely half: tools that hardly do what is asked."""
    ranking = _first_of_names(_rank_entries(scores.max(axis=0)), pool, len(pool.names))
    half = ranking[len(ranking) // 2 :]
    return random.Random(seed).sample(half, min(count, len(half)))
