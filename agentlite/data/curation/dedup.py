"""Finds copies, and which record of each group stays: equal ones, equal calls, near ones.

Of equal records the one with the first source and task by name is kept; of others the one whose
hash of seed and id comes first: no order of the files matters, whatever is left out is a copy of
what is kept, and no two that are kept are copies of each other.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from agentlite.core.records import SPLITS, Record, digest
from agentlite.data.curation.fingerprints import dialog_text
from agentlite.data.curation.minhash import MOST, index_for, is_near, sketches
from agentlite.data.curation.split import NEAR
from agentlite.data.curation.traits import Traits, normal

Copies = dict[int, int]  # index of a copy -> index of the record that is kept
HALF_NEAR = 0.5  # how alike first queries are where the calls are the same, arguments and all


def equal_copies(records: Sequence[Traits], sources: Sequence[str]) -> Copies:
    """Records with the id of another one. `sources`: of each, as it was given."""
    kept: dict[str, int] = {}
    for index in sorted(
        range(len(records)), key=lambda index: (sources[index], records[index].task, index)
    ):
        kept.setdefault(records[index].id, index)
    return {
        index: kept[record.id] for index, record in enumerate(records) if kept[record.id] != index
    }


def call_copies(records: Sequence[Traits], *, seed: int) -> Copies:
    """Records that call the same tools in the same order with the same arguments, are offered the
    same, and ask alike.

    Alike are first queries with a Jaccard index of .5. Equal calls alone do not make a copy:
    another question that leads to them is what a model is to learn from. Without arguments nothing
    is the same.
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for index, record in enumerate(records):
        if record.keys.calls:
            groups[record.keys.calls].append(index)
    copies: Copies = {}
    for group in filter(lambda group: len(group) > 1, groups.values()):
        queries = [records[index].query for index in group]
        order = _in_order([records[index] for index in group], seed)
        near = _near(order, list(sketches(queries)), queries.__getitem__, HALF_NEAR)
        copies |= {group[one]: group[kept] for one, kept in near.items()}
    return copies


def near_copies(
    records: Sequence[Traits],
    sketched: Sequence[bytes],
    text: Callable[[int], str],
    *,
    seed: int,
    threshold: float = NEAR,
) -> Copies:
    """Records whose dialogs have a Jaccard index of `threshold` or more, by character 5-grams of
    their `near_text`.

    Only with the same tools on offer and called in the same order: what is called is what is
    learned. They are not copies that contradict each other, or whose first questions are less than
    half alike, by pairs of characters: short questions may have one long answer. `sketched`: those
    of each `near_text`; `text`: reads it again, for the few that are compared.
    """

    def may_be(one: int, other: int) -> bool:
        a, b = records[one].keys, records[other].keys
        return not a.contradicts(b) and _ask_alike(records[one].query, records[other].query)

    kinds = [record.keys.shape for record in records]
    return _near(_in_order(records, seed), sketched, text, threshold, kinds, may_be)


def text_copies(texts: Sequence[str], threshold: float = NEAR) -> Copies:
    """Texts that have a Jaccard index of `threshold` or more with an earlier one that is kept."""
    return _near(range(len(texts)), list(sketches(texts)), texts.__getitem__, threshold)


def borne(records: Sequence[Traits], copies: Mapping[int, int]) -> dict[int, str]:
    """The split that each record kept takes over from its copies: test before dev before train, so
    that none leaks.
    """
    splits = {kept: records[kept].split for kept in copies.values()}
    for index, kept in copies.items():
        splits[kept] = max(splits[kept], records[index].split, key=_rank)
    return splits


def near_text(record: Record) -> str:
    """A dialog's text by which near copies are found: without case, blanks and punctuation."""
    return normal(dialog_text(record))


def _near(
    order: Sequence[int],
    sketched: Sequence[bytes],
    text: Callable[[int], str],
    threshold: float,
    kinds: Sequence[int] | None = None,
    may_be: Callable[[int, int], bool] = lambda one, other: True,
) -> Copies:
    """Takes one after the other: near one that is kept it is its copy, else it is kept itself."""
    kinds = kinds or [0] * len(sketched)
    index, near = index_for(sketched, threshold, kinds), is_near(text, threshold)
    copies: Copies = {}
    for number in order:
        likely = (
            other for other in index.like(sketched[number], kinds[number]) if may_be(number, other)
        )
        kept = next((other for other in islice(likely, MOST) if near(number, other)), None)
        if kept is None:
            index.add(number, sketched[number], kinds[number])
        else:
            copies[number] = kept
    return copies


def _ask_alike(one: str, other: str) -> bool:
    a, b = (
        {text[start : start + 2] for start in range(max(1, len(text) - 1))} for text in (one, other)
    )
    return len(a & b) >= HALF_NEAR * len(a | b)


def _in_order(records: Sequence[Traits], seed: int) -> list[int]:
    return sorted(range(len(records)), key=lambda index: digest(f"{seed} copy {records[index].id}"))


def _rank(split: str) -> int:
    return SPLITS.index(split) if split in SPLITS else -1
