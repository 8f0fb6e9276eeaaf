"""Records -> the different ones, and each further copy with the record it repeats."""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from agentlite.records import SPLITS, Record


class Duplicate(NamedTuple):
    record: Record
    twin: Record


def drop_duplicates(records: Iterable[Record]) -> tuple[list[Record], list[Duplicate]]:
    """The first record of each content, in their own order, and the copies dropped, each with its twin.

    If copies bear different splits, the one kept goes to test before dev before train: no copy leaks.
    """
    kept: dict[str, Record] = {}
    copies: list[tuple[str, Record]] = []
    for record in records:
        key = record.id
        if key not in kept:
            kept[key] = record
            continue
        copies.append((key, record))
        if _rank(record.split) > _rank(kept[key].split):
            kept[key] = replace(kept[key], split=record.split)
    return list(kept.values()), [Duplicate(record, kept[key]) for key, record in copies]


def _rank(split: str) -> int:
    return SPLITS.index(split) if split in SPLITS else -1
