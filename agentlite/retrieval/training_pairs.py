"""Queries and a pool -> training pairs with hard negatives, in batches.

In a batch every other row's tools are negatives too, so that no row's right tool may stand in
another's place.
"""

import random
from collections import defaultdict
from collections.abc import Collection, Sequence
from itertools import chain

from msgspec import Struct, structs

from agentlite.core.records import Tool, canonical, digest
from agentlite.data.curation.traits import normalize
from agentlite.retrieval.rankers import Ranker
from agentlite.retrieval.tool_pool import Query, ToolPool

PAIRS = "pairs.jsonl"
PER_RANKER = 30  # of the likeliest wrong tools
# wrong tools more than are wanted: one that is right for another row of a batch makes room for the
# next
SPARE = 6


class TrainingPair(Struct, frozen=True):
    """A query, the right tool and wrong ones, those that look right first; as it is on disk, for
    people to look at too.

    `tool_indices`: of all these in the pool. `right`: the tools that are expected for an equal
    question anywhere.
    """

    query: str
    tool: str
    negatives: tuple[str, ...]
    tool_indices: tuple[int, ...]
    right: tuple[str, ...]


def find_pairs(
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
    # by ranker and query the indices of the likeliest tools: (rankers, queries, PER_RANKER)
    likeliest = [
        numpy.argsort(-ranker(texts), axis=1, kind="stable")[:, :PER_RANKER].tolist()
        for ranker in rankers
    ]
    right: dict[str, set[str]] = defaultdict(set)  # what is expected for a question, wherever asked
    for query in queries:
        right[normalize(query.text)].update(query.names)
    twins: dict[str, set[str]] = defaultdict(set)  # names of tools that differ in nothing else
    for tool in tools:
        twins[_content(tool)].add(tool.name)
    pairs = []
    for number, query in enumerate(queries):
        names = right[normalize(query.text)]
        by_turns = [*chain(*zip(*(by_query[number] for by_query in likeliest), strict=True))]
        for index in query.tool_indices:
            # the whole pool, from a start that differs by question and is the same in every run
            start = random.Random(digest(f"{seed} {query.text} {index}")).randrange(len(tools))
            indices, barred = [index], names | twins[_content(tools[index])]
            for other in chain(by_turns, range(start, len(tools)), range(start)):
                if len(indices) > (count and count + SPARE):  # the first is the right tool
                    break
                if tools[other].name not in barred:
                    barred.add(tools[other].name)
                    indices.append(other)
            name, *wrong = (tools[index].name for index in indices)
            pairs.append(TrainingPair(query.text, name, (*wrong,), (*indices,), (*sorted(names),)))
    return pairs


def make_batches(
    pairs: Sequence[TrainingPair], size: int, steps: int, count: int, seed: int
) -> list[TrainingPair]:
    """The pairs of `steps` batches of `size`, one after the other, with `count` wrong tools each:
    epoch after epoch in a new order, each pair as soon as no tool of its batch is right for it, and
    its own for no other one.

    Where too few go together, as where most questions want one tool, a batch is filled with what
    comes next.
    """
    chance = random.Random(seed)
    queue: list[int] = []
    rows: list[TrainingPair] = []
    for _ in range(steps):
        while len(queue) < 4 * size:
            epoch = list(range(len(pairs)))
            chance.shuffle(epoch)
            queue += epoch
        batch: list[int] = []
        right, tools = set[str](), set[str]()
        for index in dict.fromkeys(queue):  # one may wait twice, from two epochs
            if len(batch) == size:
                break
            pair = pairs[index]
            if pair.tool not in right and tools.isdisjoint(pair.right):
                batch.append(index)
                right.update(pair.right)
                tools.add(pair.tool)
        if len(batch) < size:
            batch += [index for index in queue if index not in batch][: size - len(batch)]
        for index in batch:
            queue.remove(index)
        # after a batch was filled up, `right` would lack what came last
        right = {name for index in batch for name in pairs[index].right}
        rows += [with_wrong_tools(pairs[index], count, right) for index in batch]
    return rows


def with_wrong_tools(pair: TrainingPair, count: int, barred: Collection[str] = ()) -> TrainingPair:
    """With as many wrong tools as are wanted, none of a name that is barred; the next best where
    there are too few.
    """
    right, *indices = pair.tool_indices
    wrong = zip(pair.negatives, indices, strict=True)
    # stable: within the free and within the barred ones the likeliest stay first
    chosen = sorted(wrong, key=lambda tool: tool[0] in barred)[:count]
    names, indices = [name for name, _ in chosen], [index for _, index in chosen]
    return structs.replace(pair, negatives=(*names,), tool_indices=(right, *indices))


def _content(tool: Tool) -> str:
    return canonical([normalize(tool.description), tool.parameters])
