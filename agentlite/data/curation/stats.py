"""Statistics of a data set: sources, tasks, lengths and tools; the script of a text."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from agentlite.data.curation.coreset import Wording
from agentlite.data.curation.traits import Traits

Number = TypeVar("Number", int, float)
QUANTILES = (0.5, 0.9, 0.99, 1.0)
# the first that a text holds: Japanese is also written with Han characters, all of them with Latin
# names
SCRIPTS = {
    "Kana": re.compile("[\u3040-\u30ff]"),
    "Hangul": re.compile("[\uac00-\ud7af]"),
    "Han": re.compile("[\u3400-\u9fff]"),
    "Cyrillic": re.compile("[\u0400-\u04ff]"),
    "Arabic": re.compile("[\u0600-\u06ff]"),
    "Devanagari": re.compile("[\u0900-\u097f]"),
    "Latin": re.compile("[A-Za-z\u00c0-\u024f]"),
}
MOST = 10


class Sized(NamedTuple):
    """The measures of a record: the tokens of its training rows, all, trained, of the longest row
    and of the longest answer; its assistant turns; the names of the tools on offer, and of those
    expected, call by call; the figures of its words.
    """

    tokens: int
    trained: int
    longest: int
    longest_answer: int
    turns: int
    offered: tuple[str, ...]
    called: tuple[str, ...]
    wording: Wording


def statistics(measured: Sequence[tuple[Traits, Sized]]) -> dict[str, object]:
    """Counts, largest first; `length`: tokens of the longest row of a record, by quantile."""
    records, sizes = [one for one, _ in measured], [size for _, size in measured]
    called = Counter(name for size in sizes for name in size.called)
    tokens, trained = sum(size.tokens for size in sizes), sum(size.trained for size in sizes)
    return {
        "by_source": dict(Counter(record.source for record in records).most_common()),
        "by_task": dict(Counter(record.task for record in records).most_common()),
        "turns": quantiles([size.turns for size in sizes]),
        "length": quantiles([size.longest for size in sizes]),
        "longest_answer": max((size.longest_answer for size in sizes), default=0),
        "tokens": {
            "all": tokens,
            "trained": trained,
            "trained_share": round(trained / tokens, 4) if tokens else 0.0,
        },
        "tools": {
            "offered": len({name for size in sizes for name in size.offered}),
            "called": len(called),
            "calls": called.total(),
            "most_called": dict(called.most_common(MOST)),
            "offered_at_once": quantiles([len(size.offered) for size in sizes]),
        },
    }


def script_of(text: str) -> str:
    """What may be told of a language without guessing."""
    return next((name for name, letters in SCRIPTS.items() if letters.search(text)), "other")


def quantiles(values: Sequence[Number]) -> dict[str, Number]:
    """The smallest value that so many of the records do not exceed, to 4 decimals."""
    ordered = sorted(values)
    return {
        f"{share:.0%}": round(ordered[max(0, -int(-share * len(ordered) // 1) - 1)], 4)
        for share in QUANTILES
        if ordered
    }
