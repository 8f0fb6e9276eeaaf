"""pairs of indices -> groups: what is tied to the same is tied together."""

from collections import defaultdict
from collections.abc import Iterable

Group = list[int]


def tie(parents: list[int], pairs: Iterable[tuple[int, int]]) -> None:
    """Joins the groups of each pair. `parents`: at first every index its own."""
    for one, other in pairs:
        parents[root(parents, other)] = root(parents, one)


def root(parents: list[int], index: int) -> int:
    while parents[index] != index:
        parents[index] = parents[parents[index]]
        index = parents[index]
    return index


def members(parents: list[int]) -> list[Group]:
    groups: dict[int, Group] = defaultdict(list)
    for index in range(len(parents)):
        groups[root(parents, index)].append(index)
    return list(groups.values())
