"""Which wrong tools a question is learned with, in which order, and what a batch holds."""

import numpy
from support.samples import WEATHER

from agentlite.core.records import Step, Tool
from agentlite.retrieval.tool_pool import Query, ToolPool
from agentlite.retrieval.training_pairs import TrainingPair, find_pairs, make_batches


def pool_of(*names):
    pool = ToolPool()
    for name in names:
        pool.add(Tool(name, f"does {name}", WEATHER.parameters))
    return pool


def query(text, *names, pool):
    return Query(Step(text, 1), text, names, tuple(pool.names[name] for name in names))


def ranking(*order):
    """A ranker that has these entries foremost, whatever is asked."""

    def ranker(texts):
        scores = numpy.zeros((len(texts), 50))
        for worth, entry in enumerate(reversed(order), 1):
            scores[:, entry] = worth
        return scores

    return ranker


MANY = [f"t{n}" for n in range(50)]


def test_wrong_tools_are_taken_by_turns_from_each_ranker_and_then_from_anywhere():
    pool = pool_of(*MANY)
    asked = [query("what now", "t0", pool=pool)]
    rankers = [ranking(0, 1, 2, 3, 4), ranking(1, 0, 11, 12, 13)]
    (pair,) = find_pairs(asked, pool, rankers, 1, seed=0)
    # 0 is right, and 1 is taken once: one is wanted and six are to spare
    assert pair.tool_indices == (0, 1, 2, 11, 3, 12, 4, 13)
    assert (pair.query, pair.tool, pair.right) == ("what now", "t0", ("t0",))
    assert pair.negatives == ("t1", "t2", "t11", "t3", "t12", "t4", "t13")
    (alone,) = find_pairs(asked, pool, [], 2, seed=0)
    assert len(set(alone.tool_indices)) == 9
    assert find_pairs(asked, pool, [], 2, 0) == [alone] != find_pairs(asked, pool, [], 2, 1)


def test_every_pair_comes_once_before_any_comes_again_and_each_epoch_has_an_order_of_its_own():
    found = [TrainingPair(f"q{n}", f"t{n}", (), (n,), (f"t{n}",)) for n in range(50)]
    rows = make_batches(found, 5, 20, 0, seed=0)
    first, second = rows[:50], rows[50:]
    # nothing here keeps two apart, so that an epoch ends before the next begins
    assert {row.tool for row in first} == {row.tool for row in second} == {*MANY}
    assert len(rows) == 100 and first != second and first != found
    assert make_batches(found, 5, 20, 0, seed=0) == rows != make_batches(found, 5, 20, 0, seed=1)


def test_what_is_right_for_an_equal_question_is_never_wrong():
    pool = pool_of(*MANY)
    asked = [query("How wet?", "t0", pool=pool), query("how wet", "t1", "t2", pool=pool)]
    found = find_pairs(asked, pool, [ranking(0, 1, 2, 3)], 3, seed=0)
    assert [pair.tool for pair in found] == ["t0", "t1", "t2"]
    assert all(pair.right == ("t0", "t1", "t2") and pair.negatives[0] == "t3" for pair in found)
