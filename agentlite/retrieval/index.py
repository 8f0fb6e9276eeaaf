"""The index on disk, a pool and its vectors; and scores -> the likeliest tools."""

import json
import random
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from agentlite.core.records import Tool, plain
from agentlite.core.row_files import read_rows, replacing, write_rows
from agentlite.retrieval.rankers import Scores
from agentlite.retrieval.tool_pool import ToolPool

TOOLS, VECTORS = "index/tools.jsonl", "index/vectors.npy"


class ToolIndex(NamedTuple):
    """`vectors`: one of length 1 for each entry of the pool, float32."""

    pool: ToolPool
    vectors: Scores


def write(index: ToolIndex, folder: Path) -> list[str]:
    """The files that were written."""
    import numpy

    (folder / TOOLS).parent.mkdir(exist_ok=True)
    write_rows(
        folder / TOOLS,
        (
            {
                "name": entry.tool.name,
                "description": entry.tool.description,
                "parameters": plain(entry.tool.parameters),
                "returns": plain(entry.tool.returns),
                "category": entry.category,
            }
            for entry in index.pool.entries
        ),
    )
    with replacing(folder / VECTORS) as file:
        numpy.save(file, index.vectors.astype("float32"), allow_pickle=False)
    return [TOOLS, VECTORS]


def read(folder: Path) -> ToolIndex:
    import numpy

    pool = ToolPool()
    for row in read_rows(folder / TOOLS):
        parameters, returns = json.loads(row["parameters"]), json.loads(row["returns"])
        pool.add(Tool(row["name"], row["description"], parameters, returns), row["category"])
    vectors = numpy.load(folder / VECTORS, allow_pickle=False)
    return ToolIndex(pool, vectors)


def likeliest(scores: Scores, pool: ToolPool, k: int) -> list[int]:
    """The entries of the `k` likeliest names, each the likeliest of its name. `scores`: a row a
    question, of every entry; of several questions each has its first tool before any has its
    second.
    """
    by_question = [_first_of_names(row, pool, k) for row in scores]
    by_turns = (one for turn in zip_longest(*by_question) for one in turn if one is not None)
    found: dict[int, int] = {}  # name -> entry
    for entry in by_turns:
        found.setdefault(pool.owners[entry], entry)
    return list(found.values())[:k]


def _first_of_names(row: Scores, pool: ToolPool, k: int) -> list[int]:
    """Equal ones come in their order, on any machine."""
    import numpy

    found: dict[int, int] = {}  # name -> its likeliest entry
    for entry in map(int, numpy.argsort(-row, kind="stable")):
        found.setdefault(pool.owners[entry], entry)
        if len(found) == k:
            break
    return list(found.values())


def unlikely(scores: Scores, pool: ToolPool, count: int, seed: str) -> list[int]:
    """Entries of that many names, drawn from the less likely half: tools that hardly do what is
    asked.
    """
    order = _first_of_names(scores.max(axis=0), pool, len(pool.names))
    half = order[len(order) // 2 :]
    return random.Random(seed).sample(half, min(count, len(half)))
