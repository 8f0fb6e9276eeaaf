"""Queries and a pool -> training pairs with hard negatives, in batches.

In a batch every other row's tools are negatives too, so that no row's right tool may stand in
another's place.
"""

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agentlite.core.records import Tool, canonical, digest
from agentlite.core.row_files import Row
from agentlite.retrieval.rankers import Ranker, Scores
from agentlite.retrieval.tool_pool import Query, ToolPool

PAIRS = "pairs.jsonl"
LOOKED_AT = 30  # of the likeliest wrong tools of each ranker
# wrong tools more than are wanted: one that is right for another row of a batch makes room for the
# next
SPARE = 6


class TrainingPair(NamedTuple):
    """A query, the right tool and wrong ones, by their places in the pool, those that look right
    first.

    `right`: the tools that are expected for an equal question anywhere.
    """

    text: str
    tool_index: int
    negatives: tuple[int, ...]
    right: frozenset[str]


def pairs(
    queries: Sequence[Query], pool: ToolPool, rankers: dict[str, Ranker], count: int, seed: int
) -> list[TrainingPair]:
    """A pair for each expected tool, with `count` wrong tools and some to spare, none if `count` is
    0: by turns the likeliest of each ranker, then any. Never one that is expected for an equal
    question, or that is the same under another name.
    """
    if not queries:
        return []
    texts = [query.text for query in queries]
    likely = [_likeliest(ranker(texts)) for ranker in rankers.values()]
    right: dict[str, set[str]] = defaultdict(set)  # what is expected for a question, wherever asked
    for query in queries:
        right[normal(query.text)].update(query.names)
    twins: dict[str, set[str]] = defaultdict(set)  # names of tools that differ in nothing else
    for tool in pool.tools:
        twins[_content(tool)].add(tool.name)
    found = []
    for number, query in enumerate(queries):
        names = right[normal(query.text)]
        for place in query.tool_indices:
            chance = random.Random(digest(f"{seed} {query.text} {place}"))
            rankings = [one[number] for one in likely]
            barred = names | twins[_content(pool.tools[place])]
            negatives = _by_turns(rankings, pool, barred, count + SPARE, chance) if count else ()
            found.append(TrainingPair(query.text, place, negatives, frozenset(names)))
    return found


def batches(
    found: Sequence[TrainingPair], pool: ToolPool, size: int, steps: int, count: int, seed: int
) -> list[TrainingPair]:
    """The pairs of `steps` batches of `size`, one after the other, with `count` wrong tools each:
    epoch after epoch in a new order, each pair as soon as no tool of its batch is right for it, and
    its own for no other one.

    Where too few go together, as where most questions want one tool, a batch is filled with what
    comes next.
    """
    chance = random.Random(seed)
    waiting: list[int] = []
    rows: list[TrainingPair] = []
    for _ in range(steps):
        while len(waiting) < 4 * size:
            epoch = list(range(len(found)))
            chance.shuffle(epoch)
            waiting += epoch
        taken = _that_go_together(waiting, found, pool, size)
        for index in taken:
            waiting.remove(index)
        right = frozenset().union(*(found[index].right for index in taken))
        rows += [with_wrong(found[index], pool, count, right) for index in taken]
    return rows


def with_wrong(
    pair: TrainingPair, pool: ToolPool, count: int, barred: frozenset[str] = frozenset()
) -> TrainingPair:
    """With as many wrong tools as are wanted, none of a name that is barred; the next best where
    there are too few.
    """
    fitting = [place for place in pair.negatives if pool.tools[place].name not in barred]
    rest = (place for place in pair.negatives if place not in fitting)
    return pair._replace(negatives=tuple([*fitting, *rest][:count]))


def to_row(pair: TrainingPair, pool: ToolPool) -> Row:
    """As it is on disk, for people to look at too."""
    names = [pool.tools[place].name for place in (pair.tool_index, *pair.negatives)]
    return {
        "query": pair.text,
        "tool": names[0],
        "negatives": names[1:],
        "tool_indices": [pair.tool_index, *pair.negatives],
        "right": sorted(pair.right),
    }


def from_row(row: Row) -> TrainingPair:
    place, *negatives = row["tool_indices"]
    return TrainingPair(row["query"], place, tuple(negatives), frozenset(row["right"]))


def normal(text: str) -> str:
    return re.sub(r"[\W_]+", "", text.casefold())


def _content(tool: Tool) -> str:
    return canonical([normal(tool.description), tool.parameters])


def _likeliest(scores: Scores) -> list[list[int]]:
    import numpy

    order = numpy.argsort(-scores, axis=1, kind="stable")[:, :LOOKED_AT]
    return [list(map(int, row)) for row in order]


def _by_turns(
    rankings: Sequence[Sequence[int]],
    pool: ToolPool,
    barred: set[str],
    count: int,
    chance: random.Random,
) -> tuple[int, ...]:
    """From each ranking in turn its first that may be taken, then any, from somewhere on; of a name
    no second one.
    """
    taken: list[int] = []
    names = set(barred)

    def take_from(places: Iterable[int]) -> bool:
        for place in places:
            name = pool.tools[place].name
            if name not in names:
                taken.append(place)
                names.add(name)
                return True
        return False

    left = [iter(ranking) for ranking in rankings]
    while left and len(taken) < count:
        left = [places for places in left if len(taken) == count or take_from(places)]
    size = len(pool.tools)
    start = chance.randrange(size)
    rest = (place % size for place in range(start, start + size))
    while len(taken) < count and take_from(rest):
        pass
    return tuple(taken)


def _that_go_together(
    waiting: Sequence[int], found: Sequence[TrainingPair], pool: ToolPool, size: int
) -> list[int]:
    taken: list[int] = []
    right: set[str] = set()
    names: set[str] = set()
    for index in dict.fromkeys(waiting):
        name = pool.tools[found[index].tool_index].name
        if name not in right and names.isdisjoint(found[index].right):
            taken.append(index)
            right |= found[index].right
            names.add(name)
        if len(taken) == size:
            return taken
    rest = [index for index in waiting if index not in taken]
    return [*taken, *rest[: size - len(taken)]]
