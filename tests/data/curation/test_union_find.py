"""What is tied to the same is in one group, whatever the order of the ties."""

from hypothesis import given
from hypothesis import strategies as st

from agentlite.data.curation.union_find import members, tie


def reachable(count: int, pairs: list[tuple[int, int]]) -> list[list[int]]:
    """The groups, found by going along the ties again and again."""
    label = [*range(count)]
    for _ in range(count):
        for one, other in pairs:
            label[one] = label[other] = min(label[one], label[other])
    return [
        [index for index in range(count) if label[index] == first] for first in sorted({*label})
    ]


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=12))
def test_groups_are_what_can_be_reached_by_ties(pairs: list[tuple[int, int]]) -> None:
    parents = list(range(9))
    tie(parents, pairs)
    assert members(parents) == reachable(9, pairs)
