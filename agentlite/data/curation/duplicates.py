"""Records -> copies, contradictions, and those that give a held-out question away.

Of equal records the one with the first source and task by name is kept; of others the one whose
hash of seed and id comes first: no order of the files matters, whatever is left out is a copy of
what is kept, and no two that are kept are copies of each other. Records are named by their index.
"""

import io
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from agentlite.core import console
from agentlite.core.errors import RowError, UserError
from agentlite.core.records import SPLITS, Record, digest
from agentlite.data.curation.minhash import NEAR, copies_among, near_known
from agentlite.data.curation.traits import TELLING, Traits, traits
from agentlite.data.formats import find_samples, to_record
from agentlite.data.formats.raw_rows import decode, read_lines

Copies = dict[int, int]  # a copy -> the record that is kept
Key = TypeVar("Key", int, str)
HALF_NEAR = 0.5  # how alike first queries are where the calls are the same, arguments and all


def equal_copies(records: Mapping[int, Traits], sources: Sequence[str]) -> Copies:
    """Records with the id of another one. `sources`: of each, as it was given."""
    kept: dict[str, int] = {}
    for index in sorted(records, key=lambda index: (sources[index], records[index].task, index)):
        kept.setdefault(records[index].id, index)
    return {index: kept[record.id] for index, record in records.items() if kept[record.id] != index}


def call_copies(records: Mapping[int, Traits], seed: int) -> Copies:
    """Records that call the same tools in the same order with the same arguments, are offered the
    same, and ask alike: their first queries have a Jaccard index of .5.

    Equal calls alone do not make a copy: another question that leads to them is what a model is to
    learn from. Without arguments nothing is the same.
    """
    with_calls = {index: record for index, record in records.items() if record.calls}
    queries = {index: record.query for index, record in with_calls.items()}
    return _copies(with_calls, "calls", seed, queries.__getitem__, HALF_NEAR)


def near_copies(
    records: Mapping[int, Traits], text: Callable[[int], str], seed: int, threshold: float = NEAR
) -> Copies:
    """Records whose dialogs have a Jaccard index of `threshold` or more, by character 5-grams of
    their normalized text.

    Only with the same tools on offer and called in the same order: what is called is what is
    learned. They are not copies that call otherwise after the same messages, or whose first
    questions are less than half alike, by pairs of characters: short questions may have one long
    answer. `text`: reads that of a record.
    """

    def may_match(index: int, other: int) -> bool:
        first, second = records[index], records[other]
        # 0 stands for arguments that are not known: they may be the same
        calls = {first.first_calls, second.first_calls} - {0}
        if first.context == second.context and len(calls) > 1:
            return False
        pairs, others = _neighbours(first.query), _neighbours(second.query)
        return len(pairs & others) >= HALF_NEAR * len(pairs | others)

    return _copies(records, "shape", seed, text, threshold, may_match)


def _neighbours(text: str) -> set[str]:
    # "oslo" -> os, sl, lo; a text of one character is itself
    return {text[at : at + 2] for at in range(max(1, len(text) - 1))}


def _copies(
    records: Mapping[int, Traits],
    trait: str,
    seed: int,
    text: Callable[[int], str],
    threshold: float,
    may_match: Callable[[int, int], bool] = lambda index, other: True,
) -> Copies:
    """The copies among those that share a trait; see copies_among."""
    order = sorted(records, key=lambda index: digest(f"{seed} copy {records[index].id}"))
    copies: Copies = {}
    for group in _gather({index: records[index] for index in order}, trait).values():
        if len(group) > 1:
            copies |= copies_among(group, text, threshold, may_match)
    return copies


def _gather(records: Mapping[Key, Traits], trait: str) -> dict[int, list[Key]]:
    """The records by a trait that they share, in their own order."""
    groups: dict[int, list[Key]] = defaultdict(list)
    for index, record in records.items():
        groups[getattr(record, trait)].append(index)
    return groups


def splits_of_copies(records: Mapping[int, Traits], copies: Copies) -> dict[int, str]:
    """The split that each record kept takes over from its copies: test before dev before train, so
    that none leaks.
    """
    splits = {kept: records[kept].split for kept in copies.values()}
    for index, kept in copies.items():
        # "" gives way to train, train to dev, and dev to test
        splits[kept] = max(splits[kept], records[index].split, key=["", *SPLITS].index)
    return splits


def contradictions(records: Mapping[int, Traits]) -> dict[int, int]:
    """Records with the same tools and the same messages up to the first turn to learn, not all of
    which make the same calls there; each with the first that calls otherwise.

    Two answers in words are not a contradiction, and arguments that are not known contradict none.
    Which record is right nobody can tell from the rows: if they are to be left out, then all of a
    group.
    """
    contrary: dict[int, int] = {}
    for group in _gather(records, "context").values():
        calls = {index: (records[index].first_calls, records[index].first_names) for index in group}
        # what the records call, with arguments and as names alone
        hashes, names = map(set, zip(*calls.values(), strict=True))
        if len(names) > 1 or len(hashes - {0}) > 1:
            for index in group:
                contrary[index] = next(other for other in group if calls[other] != calls[index])
    return contrary


def read_held_out(
    sources: Sequence[str],
    options: Mapping[str, Mapping[str, Any]] | None = None,
    change: Callable[[Record], Record] = lambda record: record,
) -> list[Traits]:
    """The records of files in any known format, each with its location as `source`. `options`: of
    the readers, by format; `change`: what is done to the texts of other records before they count.

    Rows that cannot be read are noted. Raises UserError for a file that cannot be read, or none of
    whose rows can.
    """
    held_out, unread = list[Traits](), Counter[str]()
    for source in sources:
        before = len(held_out)
        for line in read_lines(source, io.BytesIO()):
            try:
                name, row_samples = find_samples(decode(line).row)
                records = [change(to_record(sample, name, options)) for sample in row_samples]
                held_out += [traits(record)._replace(source=line.location) for record in records]
            except RowError as error:
                unread[error.code] += 1
        if len(held_out) == before:
            raise UserError(
                "no row of it can be read.",
                "Run `agentlite prep` on it to see why.",
                location=f"--holdout {source}",
            )
    if unread:
        codes = ", ".join(sorted(unread))
        console.notice(f"{unread.total()} rows of the held-out files cannot be read: {codes}")
    return held_out


def leaks(
    records: Mapping[Key, Traits], held_out: Sequence[Traits], *, threshold: float = NEAR
) -> dict[Key, int]:
    """The records that leak into held-out ones, by index or id, each with the held-out one that it
    gives away: by a query that is long enough to ask something (or the first one), by a near first
    query, or by its calls.
    """
    # of several held-out records with a query, the first
    by_query = {
        query: number
        for number, record in reversed([*enumerate(held_out)])
        for query in record.queries
    }
    # of equal keys a dict keeps the last: here that of the first query
    equal = {
        index: by_query[query]
        for index, record in records.items()
        for query in reversed(record.queries)
        if query in by_query
    }
    near, calls = _near_queries(records, held_out, threshold), _same_calls(records, held_out)
    return dict(sorted((calls | near | equal).items()))


def _near_queries(
    records: Mapping[Key, Traits], held_out: Sequence[Traits], threshold: float
) -> dict[Key, int]:
    # an equal query is found before, so here it is near to none
    owners = {record.query: number for number, record in reversed([*enumerate(held_out)])}
    near = near_known((record.query for record in records.values()), owners, threshold)
    return {
        index: owners[near[record.query]]
        for index, record in records.items()
        if record.query in near
    }


def _same_calls(records: Mapping[Key, Traits], held_out: Sequence[Traits]) -> dict[Key, int]:
    """The same arguments on the same tools: many, or few after a query that is half alike."""
    numbers_by_calls = _gather(dict(enumerate(held_out)), "calls")
    indices_by_calls = _gather(records, "calls")
    matches: dict[Key, int] = {}
    for calls in indices_by_calls.keys() & numbers_by_calls.keys() - {0}:  # 0: without arguments
        group = {index: records[index] for index in indices_by_calls[calls]}
        numbers = numbers_by_calls[calls]
        positions = dict.fromkeys(group, 0)
        if held_out[numbers[0]].value_bytes < TELLING:
            positions = _near_queries(group, [held_out[number] for number in numbers], HALF_NEAR)
        matches |= {index: numbers[position] for index, position in positions.items()}
    return matches
