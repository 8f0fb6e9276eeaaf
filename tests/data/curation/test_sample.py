"""A limit: how many of each source, and in which order."""

import pytest

from agentlite.core.records import Message, Record
from agentlite.data.curation.sample import sample


def records(**counts: int) -> list[Record]:
    return [
        Record(messages=(Message("user", f"{source} {number}"),), source=source)
        for number in range(max(counts.values()))
        for source, count in counts.items()
        if number < count
    ]


@pytest.mark.parametrize("limit", range(1, 13))
def test_a_limit_is_met_exactly_and_the_first_sources_by_name_have_what_is_left(limit: int) -> None:
    for given in (records(a=4, b=4, c=4), records(c=4, b=4, a=4)):
        found = sample(given, limit, 0)
        assert found == sorted({*found}) and len(found) == limit
        sources = [given[index].source for index in found]
        share, more = divmod(limit, 3)
        assert [sources.count(name) for name in "abc"] == [share + (n < more) for n in range(3)]


def test_the_same_are_chosen_in_every_order_and_others_by_another_seed() -> None:
    given = records(a=9, b=9)
    chosen = [{given[index].id for index in sample(given, 7, seed)} for seed in range(3)]
    assert chosen[0] != chosen[1] != chosen[2] != chosen[0]
    assert chosen[1] == {given[::-1][index].id for index in sample(given[::-1], 7, 1)}
    assert sample(given, None, 0) == sample(given, 18, 0) == [*range(18)]
