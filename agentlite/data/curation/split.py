"""Records -> train, dev and test, with records that ask the same kept on one side."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from math import sqrt
from typing import NamedTuple

from agentlite.core.errors import UserError
from agentlite.core.records import SPLITS, digest
from agentlite.data.curation.minhash import NEAR, Groups, near_ties
from agentlite.data.curation.traits import TELLING, Traits


class Split(NamedTuple):
    """The split of each record; which cannot stay on theirs; the number of groups; what to tell the
    user. Records are named by their index.

    `crossing`: with a record of the same group that stays, on another side. `torn`: they call tools
    of two sides.
    """

    splits: dict[int, str]
    crossing: dict[int, int]
    torn: list[int]
    groups: int
    notes: list[str]


# what ties records of one group, by the name it has in --split-by
TIES: dict[str, Callable[[Traits], Iterable[Hashable]]] = {
    # Equal user turns that are long enough to ask something: "yes, please" and "Hi!" tie nothing,
    # unless they are all that is said.
    "query": lambda record: record.queries,
    "near": lambda record: [record.query],  # and near ones, see `_groups`
    # variants to each other and to the record they were made from
    "parent": lambda record: record.parents,
    "tools": lambda record: record.tools,
    "calls": lambda record: [record.keys.calls] if record.keys.value_bytes >= TELLING else [],
}


def assign_splits(
    records: Mapping[int, Traits],
    *,
    dev: float,
    test: float,
    seed: int,
    by: Sequence[str],
) -> Split:
    """A side for each record: the one its row names, or else by a hash of its query, or of its
    tools where `by` names them.

    No side depends on other records. What does is whether a record stays: of a group that is tied
    by the keys in `by` and reaches over two sides, only one side does (a borne one, test before dev
    before train; else the one with most records).
    """
    if dev + test > 1:
        raise UserError(
            f"dev {dev} and test {test} are not shares of one whole.", "Their sum is at most 1."
        )
    shares = {"test": test, "dev": dev, "train": 1.0 - dev - test}
    splits = {
        index: record.split or _side(record, shares, seed, "tools" in by)
        for index, record in records.items()
    }
    # a record whose tools fall on two sides is left out before any tie: it would tie both together
    whole = {index: record for index, record in records.items() if splits[index]}
    groups = _groups(whole, by)
    crossing = _crossing_records(groups, records, splits)
    counts = Counter(splits[index] for index in whole if index not in crossing)
    empty = [side for side in SPLITS if shares[side] > 0 and not counts[side]]
    parts = [f"no record fell on {' and '.join(empty)}"] if empty and records else []
    parts += _missed_splits(counts, shares)
    notes = []
    if parts:
        own = "tools" if "tools" in by else "query"
        notes.append(
            f"{'; '.join(parts)}: sides go by a hash of each record's own {own}, unless its row "
            "names its `split`, and what is tied to another side is left out (give rows a `split` "
            "of their own, or another --seed)"
        )
    torn = [index for index in records if index not in whole]
    return Split(splits, crossing, torn, len(groups), notes)


def _side(record: Traits, shares: Mapping[str, float], seed: int, by_tools: bool) -> str:
    """The side of a record, by nothing but itself; "" if its tools are of two sides."""
    keys = (by_tools and record.tools) or (record.query or record.id,)
    sides = {split_of(key, shares, seed) for key in keys}
    return sides.pop() if len(sides) == 1 else ""


def _missed_splits(counts: Counter[str], shares: Mapping[str, float]) -> Iterator[str]:
    """The splits that are smaller or larger by more than half of what was asked for, and by more
    than chance makes them: two standard deviations of a binomial count.
    """
    total = counts.total()
    for side in SPLITS:
        share, wanted, got = shares[side], shares[side] * total, counts[side]
        if got and share and abs(got - wanted) > max(wanted / 2, 2 * sqrt(wanted * (1 - share))):
            yield f"{side} has {got} of {total} records, and {wanted:.0f} were asked for"


def split_of(key: str, fractions: Mapping[str, float], seed: int) -> str:
    """The split of a key. The test's share of all hashes comes first, so that with a larger dev
    nothing of it moves.
    """
    at = int(digest(f"{seed} {key}"), 16) / 2**64
    if at < fractions["test"]:
        return "test"
    return "dev" if at < fractions["test"] + fractions["dev"] else "train"


def _groups(records: Mapping[int, Traits], by: Sequence[str]) -> list[list[int]]:
    groups = Groups(records)
    groups.tie_equal({index: [record.id] for index, record in records.items()})
    for name in by:
        groups.tie_equal({index: TIES[name](record) for index, record in records.items()})
    if "near" in by:
        owners = {record.query: index for index, record in records.items()}
        # by text, not by file: which near texts are compared depends on their order
        texts = sorted(filter(None, owners))
        for one, other in near_ties(texts, NEAR):
            groups.tie(owners[texts[one]], owners[texts[other]])
    return groups.members()


def _crossing_records(
    groups: Iterable[Sequence[int]], records: Mapping[int, Traits], splits: Mapping[int, str]
) -> dict[int, int]:
    """The records of each group that do not stay, each with the first of its group that does."""
    crossing: dict[int, int] = {}
    for group in groups:
        counts = Counter(splits[index] for index in group)
        if len(counts) == 1:
            continue
        borne = {records[index].split for index in group} - {""}
        # max takes the first of equal counts: test before dev before train
        order = ("test", "dev", "train")
        most = max(order, key=lambda side: counts[side])
        stays = next((side for side in order if side in borne), most)
        first = next(index for index in group if splits[index] == stays)
        crossing |= {index: first for index in group if splits[index] != stays}
    return crossing
