"""Rankers: queries -> a score for every entry of the pool, by words or by vectors."""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

Scores = Any  # NDArray of float32, a row a query, a column an entry
Ranker = Callable[[Sequence[str]], Scores]
Embed = Callable[[Sequence[str]], Scores]  # texts -> vectors of length 1, a row each

WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+|[^\W_a-zA-Z0-9]+")
HAN = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
)  # written without blanks: pairs of characters


def words(text: str) -> list[str]:
    """Lower-cased; names in snake and camel case are parted."""
    found: list[str] = []
    for word in WORD.findall(text):
        lower = word.lower()
        pairs = HAN.search(word) and len(word) > 1
        found += [lower[i : i + 2] for i in range(len(lower) - 1)] if pairs else [lower]
    return found


def bm25(texts: Sequence[str]) -> Ranker:
    """Okapi BM25 in Lucene's form, k1 1.5 and b .75."""
    import bm25s

    index = bm25s.BM25()
    index.index([words(text) or [""] for text in texts], show_progress=False)

    def scores(queries: Sequence[str]) -> Scores:
        import numpy

        found = [
            index.get_scores(query_words)
            if (query_words := words(query))
            else numpy.zeros(len(texts))
            for query in queries
        ]
        return numpy.array(found, numpy.float32)

    return scores


def by_vectors(vectors: Scores, embed: Embed) -> Ranker:
    """The cosine of the query's vector and each entry's."""
    return lambda queries: embed(queries) @ vectors.T


def by_name(scores: Scores, owners: Sequence[int], count: int) -> Scores:
    """The best score of the entries of each name: a row a query, a column a name."""
    import numpy

    found: NDArray[Any] = numpy.full((count, len(scores)), -numpy.inf, scores.dtype)
    numpy.maximum.at(found, numpy.asarray(owners), scores.T)
    return found.T
