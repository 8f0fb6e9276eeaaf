"""A pool and its vectors -> index/ of a stage's folder, and back; a query -> the tools it brings."""

import json
import random
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.errors import UserError
from agentlite.records import Tool, plain
from agentlite.retrieval.pool import Pool
from agentlite.retrieval.rankers import Scores, by_name
from agentlite.rows import read_rows, replacing, write_rows

TOOLS, VECTORS = "index/tools.jsonl", "index/vectors.npy"


class Index(NamedTuple):
    """`vectors`: one of length 1 for each entry of the pool, float32."""

    pool: Pool
    vectors: Scores


def write(index: Index, folder: Path) -> list[str]:
    """The files that were written."""
    import numpy

    (folder / TOOLS).parent.mkdir(exist_ok=True)
    write_rows(folder / TOOLS, ({"name": entry.tool.name, "description": entry.tool.description,
                                 "parameters": plain(entry.tool.parameters), "category": entry.category}
                                for entry in index.pool.entries))  # fmt: skip
    with replacing(folder / VECTORS) as file:
        numpy.save(file, index.vectors.astype("float32"), allow_pickle=False)
    return [TOOLS, VECTORS]


def read(folder: Path) -> Index:
    """Raises UserError for vectors that are not those of the tools."""
    import numpy

    pool = Pool()
    for row in read_rows(folder / TOOLS):
        pool.add(Tool(row["name"], row["description"], json.loads(row["parameters"])), row["category"])
    vectors = numpy.load(folder / VECTORS, allow_pickle=False)
    if len(vectors) != len(pool.entries):
        raise UserError(f"has {len(vectors)} vectors for {len(pool.entries)} tools.", "Run `agentlite retriever` again "
                        "with --force.", place=str(folder / VECTORS))  # fmt: skip
    return Index(pool, vectors)


def likeliest(scores: Scores, pool: Pool, k: int) -> list[int]:
    """The entries of the `k` likeliest names, each the likeliest of its name. `scores`: a row a question, of every
    entry; of several questions each has its first tool before any has its second.
    """
    import numpy

    names = by_name(scores, pool.owners, len(pool.names))
    best = numpy.argsort(-names, axis=1, kind="stable")[:, :k]
    order = dict.fromkeys(int(name) for rank in best.T for name in rank)
    owners = numpy.asarray(pool.owners)
    return [_best_of(name, owners, scores) for name in list(order)[:k]]


def _best_of(name: int, owners: Any, scores: Scores) -> int:
    own = (owners == name).nonzero()[0]
    return int(own[scores[:, own].max(axis=0).argmax()])


def unlikely(scores: Scores, pool: Pool, count: int, seed: str) -> list[int]:
    """Entries of that many names, drawn from the less likely half: tools that hardly do what is asked."""
    import numpy

    names = by_name(scores, pool.owners, len(pool.names)).max(axis=0)
    half = [int(name) for name in numpy.argsort(-names, kind="stable")[len(names) // 2 :]]
    drawn = random.Random(seed).sample(half, min(count, len(half)))
    owners = numpy.asarray(pool.owners)
    return [_best_of(name, owners, scores) for name in drawn]
