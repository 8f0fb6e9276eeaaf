"""Records -> train, dev and test, with records that ask the same kept on one side."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from math import sqrt
from typing import NamedTuple

from agentlite.core.errors import UserError
from agentlite.core.records import SPLITS, digest
from agentlite.data.curation.minhash import NEAR, Groups, near_ties
from agentlite.data.curation.traits import TELLING, Traits

# seeds that are tried, for as many records at most: among more, it is not bad luck
SEEDS, MANY = 100, 10_000


class Split(NamedTuple):
    """The split of each record; which cannot stay on theirs; the number of groups; what to tell the
    user. Records are named by their index.

    `crossing`: with a record of the same group that stays, on another side. `torn`: they call tools
    of two sides. `missed`: the splits whose share is not what was asked for, by half of it and
    beyond chance: how many records were `wanted`, and how many it `got`.
    """

    splits: dict[int, str]
    crossing: dict[int, int]
    torn: list[int]
    groups: int
    missed: dict[str, dict[str, int]]
    notes: list[str]


WORD = re.compile(r"\w+")
COMPARED = range(4, 41)  # words of a question: shorter ones say little, longer ones take long
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


def one_word_apart(asked: Iterable[str], learned: Iterable[str]) -> int:
    """How many of the questions differ from a learned one by a word: another, one more or less."""
    by_key: dict[int, list[int]] = {}
    for number, question in enumerate(asked):
        for key in _but_a_word(question):
            by_key.setdefault(key, []).append(number)
    near: set[int] = set()
    for question in learned:
        for key in _but_a_word(question):
            near.update(by_key.pop(key, ()))
    return len(near)


def _but_a_word(question: str) -> list[int]:
    """Hashes of the words, and of the words without each of them."""
    words = WORD.findall(question.casefold())
    if len(words) not in COMPARED:
        return []
    return [hash((*words[:at], *words[at + 1 :])) for at in range(len(words) + 1)]


def assign_splits(
    records: Mapping[int, Traits],
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
    before train; else the one with most records). `of_stages`: the records of --from.
    """
    if dev + test > 1:
        raise UserError(
            f"dev {dev} and test {test} are not shares of one whole.", "Their sum is at most 1."
        )
    shares = Shares({"test": test, "dev": dev, "train": 1.0 - dev - test}, "tools" in by)
    splits = shares.splits(records, seed)
    # a record whose tools fall on two sides is left out before any tie: it would tie both together
    whole = {index: record for index, record in records.items() if splits[index]}
    groups = _groups(whole, by)
    crossing = _crossing(groups, records, splits)
    counts = Counter(splits[index] for index in whole if index not in crossing)
    missed = shares.missed(counts)
    empty = [side for side in SPLITS if shares.of[side] > 0 and not counts[side]]
    notes = []
    if records and (missed or empty):
        parts = [f"no record fell on {' and '.join(empty)}"] if empty else []
        parts += [
            f"{side} has {of_side['got']} of {counts.total()} records, and {of_side['wanted']} "
            "were asked for"
            for side, of_side in missed.items()
            if side not in empty
        ]
        why = _why_missed(shares, records, splits, groups, crossing, seed, of_stages)
        notes = [f"{'; '.join(parts)}: {why}"]
    torn = [index for index in records if index not in whole]
    return Split(splits, crossing, torn, len(groups), missed, notes)


class Shares(NamedTuple):
    """The share of each split in all hashes: of records' tools if `by_tools`, else of queries."""

    of: Mapping[str, float]
    by_tools: bool

    def splits(self, records: Mapping[int, Traits], seed: int) -> dict[int, str]:
        """The side of each record, by nothing but itself; "" if its tools are of two sides."""
        splits: dict[tuple[str, ...], str] = {}
        for keys in {self.keys(record) for record in records.values()}:
            sides = {split_of(key, self.of, seed) for key in keys}
            splits[keys] = sides.pop() if len(sides) == 1 else ""
        return {
            index: record.split or splits[self.keys(record)] for index, record in records.items()
        }

    def keys(self, record: Traits) -> tuple[str, ...]:
        """What is hashed."""
        return (self.by_tools and record.tools) or (record.query or record.id,)

    def missed(self, counts: Mapping[str, int]) -> dict[str, dict[str, int]]:
        """The splits that are smaller or larger by more than half of what was asked for, and by
        more than chance makes them: two standard deviations of a binomial count.
        """
        total = sum(counts.values())
        missed = {}
        for side in SPLITS:
            share, got = self.of[side], counts.get(side, 0)
            slack = max(share * total / 2, 2 * sqrt(share * (1 - share) * total))
            if share > 0 and abs(got - share * total) > slack:
                missed[side] = {"wanted": round(share * total), "got": got}
        return missed


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


def _crossing(
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


def _why_missed(
    shares: Shares,
    records: Mapping[int, Traits],
    splits: Mapping[int, str],
    groups: Sequence[Sequence[int]],
    crossing: Mapping[int, int],
    seed: int,
    of_stages: Collection[int],
) -> str:
    """Why the splits are not as large as they should be: the first cause without which they would
    be, or chance; and what to do about it.
    """
    here = [index for index, side in splits.items() if side and index not in crossing]
    free = [index for index in here if not records[index].split]
    if len(free) < len(here) and not shares.missed(Counter(splits[index] for index in free)):
        fix = "take `split` out of those rows"
        if not set(here).difference(free, of_stages):
            fix = "those of --from keep it; name dialogs beside them, or raise --dev and --test"
        return f"{len(here) - len(free)} records name a split of their own ({fix})"
    other = _fitting_seed(shares, records, groups, seed)
    fix = f"give rows a `split` of their own{other and f', or --seed {other}'}"
    if crossing and not shares.missed(Counter(side for side in splits.values() if side)):
        return (
            f"{len(crossing)} records were left out, since others of their group are on another "
            f"side (F332) ({fix}; --set prep.split_by=query ties fewer records together)"
        )
    keys = Counter(shares.keys(record) for record in records.values() if not record.split)
    known = f"there are {len(records)} records"
    if len(keys) == 1 < keys.total():
        known = f"{keys.total()} records have the same one"
    elif len(keys) < keys.total():
        most = keys.most_common(1)[0][1]
        known = f"{keys.total()} records have {len(keys)} different ones, one of them {most} times"
    own = "tools" if shares.by_tools else "query"
    return f"sides go by a hash of each record's own {own}, and {known} ({fix})"


def _fitting_seed(
    shares: Shares, records: Mapping[int, Traits], groups: Sequence[Sequence[int]], seed: int
) -> str:
    """A seed with which no split is empty or misses its share; "" if none is found."""
    if len(records) > MANY:
        return ""
    expected = {side for side in SPLITS if shares.of[side] > 0}
    tied = [group for group in groups if len(group) > 1]
    for other in range(seed + 1, seed + SEEDS):
        splits = shares.splits(records, other)
        away = _crossing(tied, records, splits)
        counts = Counter(side for index, side in splits.items() if side and index not in away)
        if expected <= counts.keys() and not shares.missed(counts):
            return str(other)
    return ""
