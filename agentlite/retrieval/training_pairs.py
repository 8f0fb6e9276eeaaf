"""Queries and a pool -> training pairs with hard negatives, in batches.

In a batch every other row's tools are negatives too, so that no row's right tool may stand in
another's place.
"""

import random
import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from itertools import chain

from msgspec import Struct, structs

from agentlite.core.records import Tool, canonical, digest
from agentlite.retrieval.rankers import Ranker
from agentlite.retrieval.tool_pool import Query, ToolPool

PAIRS = "pairs.jsonl"
LOOKED_AT = 30  # of the likeliest wrong tools of each ranker
# wrong tools more than are wanted: one that is right for another row of a batch makes room for the
# next
SPARE = 6


class TrainingPair(Struct, frozen=True):
    """A query, the right tool and wrong ones, those that look right first; as it is on disk, for
    people to look at too.

    `tool_indices`: the places of all these in the pool. `right`: the tools that are expected for
    an equal question anywhere.
    """

    query: str
    tool: str
    negatives: tuple[str, ...]
    tool_indices: tuple[int, ...]
    right: tuple[str, ...]


def pairs(
    queries: Sequence[Query], pool: ToolPool, rankers: Sequence[Ranker], count: int, seed: int
) -> list[TrainingPair]:
    """A pair for each expected tool, with `count` wrong tools and some to spare, none if `count` is
    0: by turns the likeliest of each ranker, then any, from somewhere on. Never one that is
    expected for an equal question, or that is the same under another name; of a name no second one.
    """
    import numpy

    if not queries:
        return []
    tools, texts = pool.tools, [query.text for query in queries]
    # by ranker and query the places of the likeliest tools: (rankers, queries, LOOKED_AT)
    likeliest = [
        numpy.argsort(-ranker(texts), axis=1, kind="stable")[:, :LOOKED_AT].tolist()
        for ranker in rankers
    ]
    right: dict[str, set[str]] = defaultdict(set)  # what is expected for a question, wherever asked
    for query in queries:
        right[normal(query.text)].update(query.names)
    twins: dict[str, set[str]] = defaultdict(set)  # names of tools that differ in nothing else
    for tool in tools:
        twins[_content(tool)].add(tool.name)
    found = []
    for number, query in enumerate(queries):
        names = right[normal(query.text)]
        by_turns = [*chain(*zip(*(one[number] for one in likeliest), strict=True))]
        for place in query.tool_indices:
            # the whole pool, from a place that differs by question and is the same in every run
            start = random.Random(digest(f"{seed} {query.text} {place}")).randrange(len(tools))
            taken, barred = [place], names | twins[_content(tools[place])]
            for other in chain(by_turns, range(start, len(tools)), range(start)):
                if len(taken) > (count and count + SPARE):  # the first one taken is the right one
                    break
                if tools[other].name not in barred:
                    barred.add(tools[other].name)
                    taken.append(other)
            own, *wrong = (tools[at].name for at in taken)
            found.append(TrainingPair(query.text, own, (*wrong,), (*taken,), (*sorted(names),)))
    return found


def batches(
    found: Sequence[TrainingPair], size: int, steps: int, count: int, seed: int
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
        taken: list[int] = []
        right, tools = set[str](), set[str]()
        for index in dict.fromkeys(waiting):  # one may wait twice, from two epochs
            if len(taken) == size:
                break
            pair = found[index]
            if pair.tool not in right and tools.isdisjoint(pair.right):
                taken.append(index)
                right.update(pair.right)
                tools.add(pair.tool)
        if len(taken) < size:
            taken += [index for index in waiting if index not in taken][: size - len(taken)]
        for index in taken:
            waiting.remove(index)
        # after a batch was filled up, `right` would lack what came last
        right = {name for index in taken for name in found[index].right}
        rows += [with_wrong(found[index], count, right) for index in taken]
    return rows


def with_wrong(pair: TrainingPair, count: int, barred: Collection[str] = ()) -> TrainingPair:
    """With as many wrong tools as are wanted, none of a name that is barred; the next best where
    there are too few.
    """
    own, *places = pair.tool_indices
    wrong = zip(pair.negatives, places, strict=True)
    # stable: within the free and within the barred ones the likeliest stay first
    kept = sorted(wrong, key=lambda tool: tool[0] in barred)[:count]
    names, places = [name for name, _ in kept], [place for _, place in kept]
    return structs.replace(pair, negatives=(*names,), tool_indices=(own, *places))


def normal(text: str) -> str:
    return re.sub(r"[\W_]+", "", text.casefold())


def _content(tool: Tool) -> str:
    return canonical([normal(tool.description), tool.parameters])
