"""Records -> train, dev and test, with records that ask the same kept on one side."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from math import sqrt
from typing import NamedTuple

from agentlite.config.settings import PrepSettings
from agentlite.core.errors import UserError
from agentlite.core.records import SPLITS, digest
from agentlite.data.curation.minhash import near_pairs
from agentlite.data.curation.traits import TELLING, Traits


class SplitResult(NamedTuple):
    """The split of each record; which cannot stay on theirs; the number of groups; what to tell the
    user. Records are named by their index.

    `splits`: "" for one that is torn: it calls tools of two sides. `crossing`: with a record of the
    same group that stays, on another side.
    """

    splits: dict[int, str]
    crossing: dict[int, int]
    groups: int
    notes: list[str]


# what ties records of one group: by the name it has in --split-by, and equal records always
TIES: dict[str, Callable[[Traits], Iterable[Hashable]]] = {
    "id": lambda record: [record.id],
    # Equal user turns that are long enough to ask something: "yes, please" and "Hi!" tie nothing,
    # unless they are all that is said.
    "query": lambda record: record.queries,
    "near": lambda record: [record.query],  # and near ones, see `_groups`
    # variants to each other and to the record they were made from
    "parent": lambda record: record.parents,
    "tools": lambda record: record.tools,
    "calls": lambda record: [record.calls] if record.value_bytes >= TELLING else [],
}


def assign_splits(records: Mapping[int, Traits], settings: PrepSettings) -> SplitResult:
    """A side for each record: the one its row names, or else by a hash of its query, or of its
    tools where `split_by` names them.

    No side depends on other records. What does is whether a record stays: of a group that is tied
    by the keys in `split_by` and reaches over two sides, only one side does (one that a row names,
    test before dev before train; else the one with most records).
    """
    dev, test, by = settings.dev, settings.test, settings.split_by
    if dev + test > 1:
        raise UserError(
            f"dev {dev} and test {test} are not shares of one whole.", "Their sum is at most 1."
        )
    shares = {"test": test, "dev": dev, "train": 1.0 - dev - test}
    splits = {
        index: record.split or _side(record, shares, settings.seed, "tools" in by)
        for index, record in records.items()
    }
    # a record whose tools fall on two sides is left out before any tie: it would tie both together
    one_sided = {index: record for index, record in records.items() if splits[index]}
    groups = _groups(one_sided, by)
    crossing = _crossing_records(groups, records, splits)
    counts = Counter(splits[index] for index in one_sided if index not in crossing)
    notes = []
    if records and (missed := _missed_splits(counts, shares)):
        key = "tools" if "tools" in by else "query"
        notes.append(
            f"{missed}: sides go by a hash of each record's own {key}, unless its row "
            "names its `split`, and what is tied to another side is left out (give rows a `split` "
            "of their own, or another --seed)"
        )
    return SplitResult(splits, crossing, len(groups), notes)


def _side(record: Traits, shares: Mapping[str, float], seed: int, by_tools: bool) -> str:
    """The side of a record, by nothing but itself; "" if its tools are of two sides."""
    keys = (by_tools and record.tools) or (record.query or record.id,)
    sides = {split_of(key, shares, seed) for key in keys}
    return sides.pop() if len(sides) == 1 else ""


def split_of(key: str, shares: Mapping[str, float], seed: int) -> str:
    """The split of a key. The test's share of all hashes comes first, so that with a larger dev
    nothing of it moves.
    """
    position = int(digest(f"{seed} {key}"), 16) / 2**64
    if position < shares["test"]:
        return "test"
    return "dev" if position < shares["test"] + shares["dev"] else "train"


def _missed_splits(counts: Counter[str], shares: Mapping[str, float]) -> str:
    """The splits that are empty, and those that are smaller or larger by more than half of what was
    asked for, and by more than chance makes them: two standard deviations of a binomial count.
    """
    total = counts.total()
    empty = [side for side in SPLITS if shares[side] > 0 and not counts[side]]
    misses = [f"no record fell on {' and '.join(empty)}"] if empty else []
    for side in SPLITS:
        share, wanted, count = shares[side], shares[side] * total, counts[side]
        bound = max(wanted / 2, 2 * sqrt(wanted * (1 - share)))
        if count and share and abs(count - wanted) > bound:
            misses.append(f"{side} has {count} of {total} records, and {wanted:.0f} were asked for")
    return "; ".join(misses)


def _groups(records: Mapping[int, Traits], by: Sequence[str]) -> list[list[int]]:
    """What is tied to the same is tied together. At first each is alone."""
    groups = {index: [index] for index in records}

    def tie(first: int, second: int) -> None:
        small, large = sorted((groups[first], groups[second]), key=len)
        if small is not large:
            # the smaller group moves: n log n steps in all, whatever the order of the ties
            large += small
            groups.update(dict.fromkeys(small, large))

    for name in ("id", *by):
        first: dict[Hashable, int] = {}
        for index, record in records.items():
            for key in filter(None, TIES[name](record)):
                tie(first.setdefault(key, index), index)
    if "near" in by:
        owners = {record.query: index for index, record in records.items()}
        # by text, not by file: which near texts are compared depends on their order
        texts = sorted(filter(None, owners))
        indices = [owners[text] for text in texts]
        # tied ones need no comparison: it would change nothing
        for number, other in near_pairs(
            range(len(texts)),
            texts.__getitem__,
            may_match=lambda number, other: groups[indices[number]] is not groups[indices[other]],
        ):
            tie(indices[other], indices[number])
    return [sorted(group) for group in {id(group): group for group in groups.values()}.values()]


def _crossing_records(
    groups: Iterable[Sequence[int]], records: Mapping[int, Traits], splits: Mapping[int, str]
) -> dict[int, int]:
    """The records of each group that do not stay, each with the first of its group that does."""
    crossing: dict[int, int] = {}
    for group in groups:
        counts = Counter(splits[index] for index in group)
        if len(counts) == 1:
            continue
        stated = {records[index].split for index in group} - {""}
        # max takes the first of equal counts: test before dev before train
        order = ("test", "dev", "train")
        largest = max(order, key=lambda side: counts[side])
        kept_side = next((side for side in order if side in stated), largest)
        first = next(index for index in group if splits[index] == kept_side)
        crossing |= {index: first for index in group if splits[index] != kept_side}
    return crossing
