"""Records -> train, dev and test, with records that ask the same kept on one side."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from math import sqrt
from typing import NamedTuple

from agentlite.core.errors import UserError
from agentlite.core.records import SPLITS, digest
from agentlite.data.curation.minhash import near_ties
from agentlite.data.curation.traits import Traits
from agentlite.data.curation.union_find import Group, members, tie

NEAR = 0.8
TELLING = 16
SEEDS, MANY = (
    100,
    10_000,
)  # seeds that are tried, for as many records at most: among more, it is not bad luck
Pairs = Iterator[tuple[int, int]]


class Shortfall(NamedTuple):
    """How many records a split has, and about how many were asked for."""

    wanted: int
    got: int


class Split(NamedTuple):
    """The split of each record; which cannot stay on theirs, by index; the number of groups; what
    to tell the user.

    `crossing`: with a record of the same group that stays, on another side. `torn`: they call tools
    of two sides. `missed`: the splits whose share is not what was asked for, by half of it and
    beyond chance.
    """

    splits: list[str]
    crossing: dict[int, int]
    torn: list[int]
    groups: int
    missed: dict[str, Shortfall]
    notes: list[str]


def assign_splits(
    records: Sequence[Traits],
    *,
    dev: float,
    test: float,
    seed: int,
    by: Sequence[str],
    of_stages: Collection[int] = (),
) -> Split:
    """A side for each record: the one its row names, or else by a hash of its query, or of its
    tools where `by` names them.

    No side depends on other records. What does is whether a record stays: of a group that is tied
    by the keys in `by` and reaches over two sides, only one side does (a borne one, test before dev
    before train; else the one with most records). `of_stages`: the records of --from, by index.
    """
    if dev + test > 1:
        raise UserError(
            f"dev {dev} and test {test} are not shares of one whole.", "Their sum is at most 1."
        )
    shares = Shares({"test": test, "dev": dev, "train": 1.0 - dev - test}, "tools" in by)
    found = shares.splits(records, seed)
    # a record whose tools fall on two sides is left out before any tie: it would tie both together
    whole = [index for index, side in enumerate(found) if side]
    groups = [
        [whole[place] for place in group]
        for group in _groups([records[index] for index in whole], by)
    ]
    crossing = _all_crossing(groups, records, found)
    counts = Counter(found[index] for index in whole if index not in crossing)
    missed = shares.missed(counts)
    empty = [side for side in SPLITS if shares.of[side] > 0 and not counts[side]]
    notes = []
    if records and (missed or empty):
        why, fix = _why_missed(shares, records, found, groups, crossing, seed, of_stages)
        notes = [f"{_shortfalls(counts, missed, empty)}: {why}{f' ({fix})' if fix else ''}"]
    torn = [index for index, side in enumerate(found) if not side]
    return Split(found, crossing, torn, len(groups), missed, notes)


class Shares(NamedTuple):
    """The share of each split in all hashes: of records' tools if `by_tools`, else of queries."""

    of: Mapping[str, float]
    by_tools: bool

    def splits(self, records: Sequence[Traits], seed: int) -> list[str]:
        """The side of each record, by nothing but itself; "" if its tools are of two sides."""
        splits: dict[tuple[str, ...], str] = {}
        for keys in {self.keys(record) for record in records}:
            fallen = {split_of(key, self.of, seed) for key in keys}
            splits[keys] = fallen.pop() if len(fallen) == 1 else ""
        return [record.split or splits[self.keys(record)] for record in records]

    def keys(self, record: Traits) -> tuple[str, ...]:
        """What is hashed."""
        return (self.by_tools and record.tools) or (record.query or record.id,)

    def missed(self, counts: Mapping[str, int]) -> dict[str, Shortfall]:
        """The splits that are smaller or larger by more than half of what was asked for, and by
        more than chance makes them: two standard deviations of a binomial count.
        """
        total = sum(counts.values())
        found = {
            side: Shortfall(round(self.of[side] * total), counts.get(side, 0)) for side in SPLITS
        }
        return {
            side: one
            for side, one in found.items()
            if self.of[side] > 0
            and abs(one.got - self.of[side] * total)
            > max(self.of[side] * total / 2, 2 * sqrt(self.of[side] * (1 - self.of[side]) * total))
        }


def same_query(records: Sequence[Traits]) -> Pairs:
    """Ties equal user turns that are long enough to ask something: "yes, please" and "Hi!" tie
    nothing, unless they are all that is said.
    """
    yield from _same(record.queries for record in records)


def near_query(records: Sequence[Traits]) -> Pairs:
    """Ties first user turns whose sets of character 5-grams have a Jaccard index of .8 or more.

    MinHash finds the candidates, the exact index decides.
    """
    texts = [record.query for record in records]
    # from the last to the first, so that the first record with a text is the one that stays
    owners = {text: index for index, text in reversed(list(enumerate(texts)))}
    yield from ((owners[text], index) for index, text in enumerate(texts) if text)
    # by text, not by file: which near texts are compared depends on their order
    unique = sorted(filter(None, owners))
    yield from (
        (owners[unique[one]], owners[unique[other]]) for one, other in near_ties(unique, NEAR)
    )


def same_parent(records: Sequence[Traits]) -> Pairs:
    """Ties variants to each other and to the record they were made from."""
    yield from _same(record.parents for record in records)


def same_tools(records: Sequence[Traits]) -> Pairs:
    """Ties records that expect the same tool."""
    yield from _same(record.tools for record in records)


def same_calls(records: Sequence[Traits]) -> Pairs:
    """Ties records that call the same with the same arguments, where these say enough not to meet
    by chance.
    """
    found = (one.keys for one in records)
    yield from _same([keys.calls] if keys.value_bytes >= TELLING else [] for keys in found)


TIES: dict[str, Callable[[Sequence[Traits]], Pairs]] = {
    "query": same_query,
    "near": near_query,
    "parent": same_parent,
    "tools": same_tools,
    "calls": same_calls,
}


def _same(keys: Iterable[Iterable[Hashable]]) -> Pairs:
    first: dict[Hashable, int] = {}
    for index, of_record in enumerate(keys):
        for key in filter(None, of_record):
            # to the first record with the key: n - 1 pairs tie n records (the first to itself)
            yield first.setdefault(key, index), index


def split_of(key: str, fractions: Mapping[str, float], seed: int) -> str:
    """The split of a key. The test's share of all hashes comes first, so that with a larger dev
    nothing of it moves.
    """
    at = int(digest(f"{seed} {key}"), 16) / 2**64
    return (
        "test"
        if at < fractions["test"]
        else "dev"
        if at < fractions["test"] + fractions["dev"]
        else "train"
    )


def _groups(records: Sequence[Traits], by: Sequence[str]) -> list[Group]:
    parents = list(range(len(records)))
    tie(parents, _same([record.id] for record in records))
    for name in by:
        tie(parents, TIES[name](records))
    return members(parents)


def _crossing(group: Group, records: Sequence[Traits], splits: Sequence[str]) -> dict[int, int]:
    """The records of a group that do not stay, each with the first that does."""
    counts = Counter(splits[index] for index in group)
    if len(counts) == 1:
        return {}
    borne = {records[index].split for index in group} - {""}
    order = ("test", "dev", "train")
    # max takes the first of equal counts: test before dev before train
    stays = next((side for side in order if side in borne), "") or max(
        order, key=lambda side: counts[side]
    )
    first = next(index for index in group if splits[index] == stays)
    return {index: first for index in group if splits[index] != stays}


def _all_crossing(
    groups: Sequence[Group], records: Sequence[Traits], found: Sequence[str]
) -> dict[int, int]:
    return {
        index: stays
        for group in groups
        for index, stays in _crossing(group, records, found).items()
    }


def _shortfalls(
    counts: Mapping[str, int], missed: Mapping[str, Shortfall], empty: Sequence[str]
) -> str:
    """Which splits are not as large as they should be."""
    total, parts = sum(counts.values()), []
    if empty:
        parts.append(f"no record fell on {' and '.join(empty)}")
    parts += [
        f"{side} has {one.got} of {total} records, and {one.wanted} were asked for"
        for side, one in missed.items()
        if side not in empty
    ]
    return "; ".join(parts)


def _why_missed(
    shares: Shares,
    records: Sequence[Traits],
    found: Sequence[str],
    groups: Sequence[Group],
    crossing: Mapping[int, int],
    seed: int,
    of_stages: Collection[int],
) -> tuple[str, str]:
    """Why the splits are not as large as they should be: the first cause without which they would
    be, or chance; and what to do about it.
    """
    here = [index for index, side in enumerate(found) if side and index not in crossing]
    free = [index for index in here if not records[index].split]
    if not any(not record.split for record in records):
        return (
            "all records name a split of their own",
            "naming the dialogs beside --from gives dev and test records"
            if of_stages
            else "take `split` out of some rows",
        )
    if len(free) < len(here) and not shares.missed(Counter(found[index] for index in free)):
        return (
            f"{len(here) - len(free)} records name a split of their own",
            "those of --from keep it; larger --dev and --test move more of the others"
            if not set(here).difference(free, of_stages)
            else "take `split` out of those rows",
        )
    other = _fitting_seed(shares, records, groups, seed)
    fix = f"give rows a `split` of their own{other and f', or --seed {other}'}"
    if crossing and not shares.missed(Counter(side for side in found if side)):
        return (
            f"{len(crossing)} records were left out, since others of their group are on another "
            "side (F332)",
            f"{fix}; --split-by query ties fewer records together",
        )
    own = "tools" if shares.by_tools else "query"
    keys = Counter(shares.keys(record) for record in records if not record.split)
    there = f"there are {len(records)} records"
    if len(keys) == 1 < keys.total():
        there = f"{keys.total()} records have the same one"
    elif len(keys) < keys.total():
        there = (
            f"{keys.total()} records have {len(keys)} different ones, one of them "
            f"{keys.most_common(1)[0][1]} times"
        )
    return f"sides go by a hash of each record's own {own}, and {there}", fix


def _fitting_seed(
    shares: Shares, records: Sequence[Traits], groups: Sequence[Group], seed: int
) -> str:
    """A seed with which no split is empty or misses its share; "" if none is found."""
    if len(records) > MANY:
        return ""
    expected = {side for side in SPLITS if shares.of[side] > 0}
    tied = [group for group in groups if len(group) > 1]
    for other in range(seed + 1, seed + SEEDS):
        found = shares.splits(records, other)
        away = _all_crossing(tied, records, found)
        counts = Counter(side for index, side in enumerate(found) if side and index not in away)
        if expected <= counts.keys() and not shares.missed(counts):
            return str(other)
    return ""
