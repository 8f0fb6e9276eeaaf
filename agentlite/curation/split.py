"""Records -> train, dev and test, by groups: what asks the same, or for the same tools, stays on one side."""

import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from agentlite.curation.keys import Keys, keys, packed, unpacked
from agentlite.curation.minhash import near_ties
from agentlite.curation.ties import Group, members, tie
from agentlite.errors import UserError
from agentlite.records import SPLITS, Record, digest

NEAR = 0.8
SHORTEST_QUERY = 16
TELLING = 16  # bytes of the values in arguments: many ask for the weather in Oslo, few for that very flight
MILLION = 10**6
Pairs = Iterator[tuple[int, int]]


class Traits(NamedTuple):
    """What ties a record to others, and where it counts; of every record in memory, and therefore small.

    `query`: the first user turn that is long enough to ask something, normal; the first one, if none is. `asked`: 8
    bytes for that and for each later such turn.
    `parents`: its own id, that of the record it was made from, and those it was joined from.
    """

    id: str
    split: str
    source: str
    task: str
    query: str
    asked: bytes
    tools: tuple[str, ...]
    parents: tuple[str, ...]
    packed_keys: bytes

    @property
    def queries(self) -> list[bytes]:
        return [self.asked[start : start + 8] for start in range(0, len(self.asked), 8)]

    @property
    def keys(self) -> Keys:
        return unpacked(self.packed_keys)


def traits(record: Record) -> Traits:
    parents = (record.id, record.parent, *record.meta.get("joined", []))
    queries = [text for text in _said(record) if _asks(text)] or [first_query(record)]
    asked = b"".join(bytes.fromhex(digest(query)) for query in queries if query)
    tools = tuple(sorted(map(sys.intern, due_tools(record))))
    return Traits(record.id, record.split, sys.intern(record.source), record.task, queries[0], asked, tools,
                  tuple(filter(None, parents)), packed(keys(record)))  # fmt: skip


class Split(NamedTuple):
    """The split of each record, the number of groups, and what a user should know about them."""

    splits: list[str]
    groups: int
    notes: list[str]


def assign_splits(records: Sequence[Traits], *, dev: float, test: float, seed: int, by: Sequence[str]) -> Split:
    """Sides that share none of the keys `by` names, of about the given fractions of the records.

    A record that bears a split keeps it, and its group follows (test before dev before train). Each source and task is
    spread in proportion as far as the groups allow. Does not depend on the order of the records.
    """
    _check(dev, test, by)
    ids = [record.id for record in records]
    fractions = {"train": 1.0 - dev - test, "dev": dev, "test": test}
    groups, untied = _groups(records, ids, by)
    for grouping in (groups, untied):
        grouping.sort(key=lambda group: digest(f"{seed} {min(ids[index] for index in group)}"))
    sides, without = _fill(groups, records, fractions), _fill(untied, records, fractions)
    notes: list[str] = []
    largest = max(map(len, groups), default=0)
    spoiled = _is_off(groups, sides, fractions) and not _is_off(untied, without, fractions)
    if "tools" in by and (2 * largest > len(records) or (largest > max(dev, test) * len(records) and spoiled)):
        others = ", ".join(name for name in by if name != "tools")
        notes = [f"tools tie {100 * largest / len(records):.0f} % of the records together: split by "
                 f"{others or 'content'} only; a tool seen in training may be asked in the test"]  # fmt: skip
        groups, sides = untied, without
    splits = [""] * len(records)
    for group, side in zip(groups, sides, strict=True):
        for index in group:
            splits[index] = side
    moved = sum(record.split not in ("", split) for record, split in zip(records, splits, strict=True))
    notes += [f"{moved} records leave the split they bore: their group reaches into another"] if moved else []
    notes += [f"no group left for {side}" for side in SPLITS if fractions[side] > 0 and side not in sides]
    return Split(splits, len(groups), notes)


def normal(text: str) -> str:
    """Text without case, blanks and punctuation; of other scripts too."""
    kept = re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", text).casefold())
    return kept or text


def first_query(record: Record) -> str:
    """What the user says first, or what a plain text says."""
    return next(iter(_said(record)), "")


def due_tools(record: Record) -> set[str]:
    """Names of the tools that are due at any turn."""
    return {call.name for turn in record.turns for call in record.due(turn).calls}


def same_query(records: Sequence[Traits]) -> Pairs:
    """Ties equal user turns that are long enough to ask something: "yes, please" and "Hi!" tie nothing, unless they are
    all that is said.
    """
    yield from _same(record.queries for record in records)


def near_query(records: Sequence[Traits]) -> Pairs:
    """Ties first user turns whose sets of character 5-grams have a Jaccard index of .8 or more.

    MinHash finds the candidates, the exact index decides.
    """
    texts = [record.query for record in records]
    owners = {text: index for index, text in reversed(list(enumerate(texts)))}
    yield from ((owners[text], index) for index, text in enumerate(texts) if text)
    unique = sorted(filter(None, owners))
    yield from ((owners[unique[one]], owners[unique[other]]) for one, other in near_ties(unique, NEAR))


def same_parent(records: Sequence[Traits]) -> Pairs:
    """Ties variants to each other and to the record they were made from."""
    yield from _same(record.parents for record in records)


def same_tools(records: Sequence[Traits]) -> Pairs:
    """Ties records in which one tool is due."""
    yield from _same(record.tools for record in records)


def same_calls(records: Sequence[Traits]) -> Pairs:
    """Ties records that call the same with the same arguments, where these say enough not to meet by chance."""
    found = (one.keys for one in records)
    yield from _same([keys.calls] if keys.told >= TELLING else [] for keys in found)


TIES: dict[str, Callable[[Sequence[Traits]], Pairs]] = {
    "query": same_query,
    "near": near_query,
    "parent": same_parent,
    "tools": same_tools,
    "calls": same_calls,
}


def _check(dev: float, test: float, by: Sequence[str]) -> None:
    if min(dev, test) < 0 or dev + test > 1:
        raise UserError(f"dev {dev} and test {test} are no fractions of one whole.", "Their sum is at most 1.")
    for name in by:
        if name not in TIES:
            raise UserError(f"unknown key to split by: {name!r}.", f"Known: {', '.join(TIES)}.", place="split_by")


def _said(record: Record) -> list[str]:
    turns = record.messages if record.is_text else [m for m in record.messages if m.role == "user"]
    return [normal(message.content) for message in turns]


def _asks(text: str) -> bool:
    """In bytes: few Chinese characters say much."""
    return len(text.encode("utf-8", "surrogatepass")) >= SHORTEST_QUERY


def _same(keys: Iterable[Iterable[Hashable]]) -> Pairs:
    first: dict[Hashable, int] = {}
    for index, of_record in enumerate(keys):
        for key in filter(None, of_record):
            yield first.setdefault(key, index), index


def _groups(records: Sequence[Traits], ids: Sequence[str], by: Sequence[str]) -> tuple[list[Group], list[Group]]:
    """Groups tied by all keys, and by all but the tools."""
    parents = list(range(len(records)))
    tie(parents, _same([record_id] for record_id in ids))
    for name in by:
        tie(parents, TIES[name](records) if name != "tools" else ())
    untied = members(parents)
    tie(parents, same_tools(records) if "tools" in by else ())
    return members(parents), untied


def _is_off(groups: Sequence[Group], sides: Sequence[str], fractions: Mapping[str, float]) -> bool:
    """Whether dev or test is empty, or away from its share by more than half of it."""
    sizes: Counter[str] = Counter()
    for group, side in zip(groups, sides, strict=True):
        sizes[side] += len(group)
    due = {side: fractions[side] * sizes.total() for side in ("dev", "test")}
    return any(abs(sizes[side] - count) > count / 2 for side, count in due.items())


def _fill(groups: Sequence[Group], records: Sequence[Traits], fractions: Mapping[str, float]) -> list[str]:
    """A side for each group: the one that lacks most, of all records and of the group's own sources and tasks."""
    strata = [_strata(group, records) for group in groups]
    sides = [_borne(group, records) for group in groups]
    lacking = _targets(strata, fractions)
    for stratum, side in zip(strata, sides, strict=True):
        if side:
            lacking[side].subtract(stratum)
    free = [number for number, side in enumerate(sides) if not side]
    for number in free:
        size = len(groups[number])
        roomy = [side for side in SPLITS if fractions[side] * len(records) >= size]
        sides[number] = max(roomy or [max(SPLITS, key=lambda side: fractions[side])],
                            key=lambda side: _lack(lacking[side], strata[number]))  # fmt: skip
        lacking[sides[number]].subtract(strata[number])
    _leave_none_empty(sides, free, groups, fractions)
    return sides


def _strata(group: Group, records: Sequence[Traits]) -> Counter[str]:
    """How many records of each source and task, and of any (""), in millionths: no order of adding them matters."""
    counts = Counter(f"{records[index].source} {records[index].task}" for index in group)
    counts[""] = len(group)
    return Counter({key: count * MILLION for key, count in counts.items()})


def _targets(strata: Sequence[Counter[str]], fractions: Mapping[str, float]) -> dict[str, Counter[str]]:
    """Records due to each side, by stratum, in millionths."""
    totals: Counter[str] = Counter()
    for stratum in strata:
        totals.update(stratum)
    return {side: Counter({key: round(fractions[side] * n) for key, n in totals.items()}) for side in SPLITS}


def _lack(lacking: Counter[str], stratum: Counter[str]) -> float:
    of_group = sum(count * lacking[key] for key, count in stratum.items() if key) / stratum[""]
    return lacking[""] + of_group


def _borne(group: Group, records: Sequence[Traits]) -> str:
    borne = {records[index].split for index in group}
    return next((side for side in ("test", "dev", "train") if side in borne), "")


def _leave_none_empty(
    sides: list[str], free: list[int], groups: Sequence[Group], fractions: Mapping[str, float]
) -> None:
    """Gives an empty side the smallest group of the side that has most of those that may move."""
    for empty in (side for side in ("test", "dev", "train") if fractions[side] > 0 and side not in sides):
        movable = Counter(sides[number] for number in free)
        givers = [side for side in SPLITS if movable[side] and sides.count(side) > 1]
        if givers:
            giver = max(givers, key=lambda side: movable[side])
            smallest = min((n for n in free if sides[n] == giver), key=lambda n: len(groups[n]))
            sides[smallest] = empty
