"""Figures of rankings at several sizes of the pool: what the seed decides, and what it does not."""

import numpy
import pytest

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


@pytest.mark.parametrize("of", ["figures", "differences"])
def test_an_interval_depends_on_the_seed_and_its_mean_does_not(of: str) -> None:
    found = ranked(0)

    def measured(seed: int) -> dict[str, float]:
        if of == "figures":
            all_figures = evaluate.figures(ASKED, found, (3,), set(), seed)
            figure: dict[str, float] = all_figures["all"][str(COUNT)]["words"]["mrr"]
            return figure
        rows = evaluate.differences(ASKED, found, "mrr", "words", set(), seed)
        (row,) = (row for row in rows if row["view"] == "all" and row["first"] == "vectors")
        return {name: float(str(row[name])) for name in ("mean", "low", "high")}

    assert different([measured(seed)["mean"] for seed in SEEDS]) == 1
    assert different([(measured(seed)["low"], measured(seed)["high"]) for seed in SEEDS]) > 1
    assert measured(1) == measured(1)


def test_a_difference_is_what_the_second_method_has_over_the_first_on_each_size() -> None:
    found = ranked(0, 5)
    rows = evaluate.differences(ASKED, found, "mrr", "words", set(), 0)
    for size in (5, COUNT):
        (one,) = (one for one in found if one.size == size)
        means = {
            name: numpy.mean([1 / ranking.ranks[0] for ranking in rankings])
            for name, rankings in one.by_method.items()
        }
        for first in ("vectors", "hybrid"):
            (row,) = (
                row
                for row in rows
                if (row["view"], row["tools"], row["first"]) == ("all", size, first)
            )
            assert row["mean"] == pytest.approx(means["words"] - means[first])
