"""What is shown of a retriever's figures, from figures made by hand."""

import io
from typing import Any

from agentlite.report import retrieval_tables

MS = {"bm25": 0.12345, "tuned": 12.0}


def row(count: int, recall: float) -> dict[str, Any]:
    names = ("recall@1", "recall@5", "recall@20", "comp@5", "ndcg@5", "mrr", "map")
    return {name: {"mean": recall if "recall@5" in name else 0.5, "count": count} for name in names}


def view(count: int) -> dict[str, Any]:
    """Two sizes of the pool, two methods."""
    return {
        "10": {"bm25": row(count, 0.4), "tuned": row(count, 0.9)},
        "200": {"bm25": row(count, 0.125), "tuned": row(count, 0.75)},
    }


def difference(first: str, view: str = "all", beyond_noise: bool = True) -> dict[str, Any]:
    return {
        "view": view,
        "tools": 200,
        "metric": "recall@5",
        "first": first,
        "second": "tuned",
        "mean": 0.625,
        "low": -0.01,
        "high": 0.7,
        "beyond_noise": beyond_noise,
    }


FIGURES: dict[str, Any] = {
    "ranking": {"all": view(8), "new tools": view(8), "known tools": view(3)},
    "differences": [
        difference("bm25"),
        difference("hybrid"),
        difference("untrained", beyond_noise=False),
        difference("bm25", "known tools"),
    ],
    "latency_ms": MS,
    "names": 200,
}


def test_a_terminal_shows_means_in_percent_gains_in_words_and_the_time_of_a_question() -> None:
    stream = io.StringIO()
    retrieval_tables.show(FIGURES, stream)
    out = stream.getvalue()
    cells = [line.split() for line in out.splitlines()]
    assert ["recall@5", "recall@5", "comp@5", "ndcg@5", "mrr", "map"] in cells  # and below: of 10
    assert ["bm25", "40.0", "12.5", "50.0", "50.0", "50.0", "50.0"] in cells
    assert ["tuned", "90.0", "75.0", "50.0", "50.0", "50.0", "50.0"] in cells
    assert "never right in training (8), in %\n" in out
    assert "Questions with a tool that was right in training (3), in %\n" in out
    assert "recall@5 of 200: tuned +62.5 [-1.0, +70.0] over bm25\n" in out
    assert "recall@5 of 200: tuned +62.5 [-1.0, +70.0] over untrained, within noise\n" in out
    assert out.endswith("ms a question: bm25 0.123, tuned 12\n")
