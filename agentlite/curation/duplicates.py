"""Records -> the first of each content, and the split that it takes over from its copies."""

from collections.abc import Sequence

from agentlite.curation.split import Traits
from agentlite.records import SPLITS


def first_of_each(records: Sequence[Traits]) -> tuple[list[int], list[str]]:
    """Indices of the first record of each content, in their own order, and the split that each of them bears.

    If copies bear different splits, the one kept goes to test before dev before train: no copy leaks.
    """
    first: dict[str, int] = {}
    splits: dict[str, str] = {}
    for index, record in enumerate(records):
        first.setdefault(record.id, index)
        splits[record.id] = max(splits.get(record.id, ""), record.split, key=_rank)
    return list(first.values()), list(splits.values())


def _rank(split: str) -> int:
    return SPLITS.index(split) if split in SPLITS else -1
