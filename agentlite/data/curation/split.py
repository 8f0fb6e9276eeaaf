"""Records -> train, dev and test, with records that ask the same kept on one side."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from agentlite.core.errors import UserError, nearest
from agentlite.core.records import SPLITS, digest
from agentlite.data.curation.minhash import near_ties
from agentlite.data.curation.traits import Traits
from agentlite.data.curation.union_find import Group, members, tie

NEAR = 0.8
TELLING = 16
SEEDS, MANY = (
    100,
    10_000,
)  # seeds that are tried, for as many records at most: among more, it is no bad luck
Pairs = Iterator[tuple[int, int]]


class Split(NamedTuple):
    """The split of each record; which cannot stay on theirs, by index; the number of groups; what
    to tell the user.

    `crossing`: with a record of the same group that stays, on another side. `torn`: they call tools
    of two sides.
    """

    splits: list[str]
    crossing: dict[int, int]
    torn: list[int]
    groups: int
    notes: list[str]


def assign_splits(
    records: Sequence[Traits], *, dev: float, test: float, seed: int, by: Sequence[str]
) -> Split:
    """A side for each record: the one it bears, or else by a hash of its query, or of its tools
    where `by` names them.

    No side depends on other records. What does is whether a record stays: of a group that is tied
    by the keys in `by` and reaches over two sides, only one side does (a borne one, test before dev
    before train; else the one with most records).
    """
    _check(dev, test, by)
    fractions = {"test": test, "dev": dev, "train": 1.0 - dev - test}
    found = [_side(record, fractions, seed, "tools" in by) for record in records]
    # a record whose tools fall on two sides is left out before any tie: it would tie both together
    whole = [index for index, side in enumerate(found) if side]
    groups = [
        [whole[place] for place in group]
        for group in _groups([records[index] for index in whole], by)
    ]
    crossing = {
        index: stays
        for group in groups
        for index, stays in _crossing(group, records, found).items()
    }
    here = {side for index, side in enumerate(found) if index not in crossing}
    empty = [side for side in SPLITS if fractions[side] > 0 and side not in here]
    notes = [_on_empty(empty, records, fractions, seed, "tools" in by)] if empty and records else []
    return Split(
        found, crossing, [index for index, side in enumerate(found) if not side], len(groups), notes
    )


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
    """Ties records in which one tool is due."""
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


def _check(dev: float, test: float, by: Sequence[str]) -> None:
    if min(dev, test) < 0 or dev + test > 1:
        raise UserError(
            f"dev {dev} and test {test} are no fractions of one whole.", "Their sum is at most 1."
        )
    for name in by:
        if name not in TIES:
            raise UserError(
                f"unknown key to split by: {name!r}.",
                nearest(name, TIES),
                location="split_by",
            )


def _same(keys: Iterable[Iterable[Hashable]]) -> Pairs:
    first: dict[Hashable, int] = {}
    for index, of_record in enumerate(keys):
        for key in filter(None, of_record):
            # to the first record with the key: n - 1 pairs tie n records (the first to itself)
            yield first.setdefault(key, index), index


def _side(record: Traits, fractions: Mapping[str, float], seed: int, by_tools: bool) -> str:
    """By nothing but the record; "" if its tools are of two sides."""
    if record.split:
        return record.split
    keys = (by_tools and record.tools) or (record.query or record.id,)
    splits = {_of_key(key, fractions, seed) for key in keys}
    return splits.pop() if len(splits) == 1 else ""


def _of_key(key: str, fractions: Mapping[str, float], seed: int) -> str:
    """The test's share of all hashes comes first, so that with a larger dev nothing of it moves."""
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


def _on_empty(
    empty: Sequence[str],
    records: Sequence[Traits],
    fractions: Mapping[str, float],
    seed: int,
    by_tools: bool,
) -> str:
    """What to do about a side that no record fell on: records that bear a split, or a seed with
    which none is empty.
    """
    free = [record for record in records if not record.split]
    if not free:
        return f"no record bears {' or '.join(empty)}, and all bear a split"
    expected = {side for side in SPLITS if fractions[side] > 0}
    fits = (
        other
        for other in range(seed + 1, seed + SEEDS)
        if len(free) <= MANY
        and expected <= {_side(record, fractions, other, by_tools) for record in records}
    )
    found = next(fits, None)
    own = "tools" if by_tools else "query"
    return (
        f"no record fell on {' and '.join(empty)}: sides go by a hash of each record's own {own}, "
        "and there are "
        f"{len(records)} records (give rows a `split` of their "
        f"own{'' if found is None else f', or --seed {found}'})"
    )
