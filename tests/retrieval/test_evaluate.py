"""Figures of rankings at several sizes of the pool: what the seed decides, and what it does not."""

import numpy

from agentlite.core.records import Step, Tool
from agentlite.retrieval import evaluate
from agentlite.retrieval.queries import Query
from agentlite.retrieval.tool_pool import ToolPool

COUNT, SEEDS = 12, range(4)
POOL = ToolPool()
for number in range(COUNT):
    POOL.add(Tool(f"t{number}", f"does {number}"))
ASKED = [
    Query(Step(f"record {number // 2}", 1 + number % 2), "x", (f"t{number}",), (number,), "general")
    for number in range(COUNT)
]
CHANCE = numpy.random.default_rng(0)
SCORES = {name: CHANCE.random((COUNT, COUNT)) for name in ("words", "vectors")}


def ranked(seed: int, *sizes: int) -> list[evaluate.QueryRanks]:
    return list(evaluate.ranks(ASKED, POOL, SCORES, sizes, seed, ("words", "vectors")))


def different(values: list[object]) -> int:
    return len({str(value) for value in values})


def test_another_seed_draws_other_tools_for_a_small_size_and_none_for_the_whole_pool() -> None:
    found = [ranked(seed, 5) for seed in SEEDS]
    assert [[one.size for one in sizes] for sizes in found] == [[5, COUNT]] * len(SEEDS)
    assert different([small for small, _ in found]) == len(SEEDS)
    assert different([whole for _, whole in found]) == 1
    assert different([ranked(0, 5), ranked(0, 5)]) == 1
