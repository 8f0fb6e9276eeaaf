"""Records -> copies, each with the record that stays: equal ones, equal calls, near ones; and
records that contradict each other.

Of equal records the one with the first source and task by name is kept; of others the one whose
hash of seed and id comes first: no order of the files matters, whatever is left out is a copy of
what is kept, and no two that are kept are copies of each other. Records are named by their index.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from agentlite.core.records import SPLITS, Record, digest
from agentlite.data.curation.fingerprints import dialog_text
from agentlite.data.curation.minhash import NEAR, NearTexts, sketches
from agentlite.data.curation.traits import Traits, normal

Copies = dict[int, int]  # a copy -> the record that is kept
HALF_NEAR = 0.5  # how alike first queries are where the calls are the same, arguments and all


def equal_copies(records: Mapping[int, Traits], sources: Sequence[str]) -> Copies:
    """Records with the id of another one. `sources`: of each, as it was given."""
    kept: dict[str, int] = {}
    for index in sorted(records, key=lambda index: (sources[index], records[index].task, index)):
        kept.setdefault(records[index].id, index)
    return {index: kept[record.id] for index, record in records.items() if kept[record.id] != index}


def call_copies(records: Mapping[int, Traits], *, seed: int) -> Copies:
    """Records that call the same tools in the same order with the same arguments, are offered the
    same, and ask alike.

    Alike are first queries with a Jaccard index of .5. Equal calls alone do not make a copy:
    another question that leads to them is what a model is to learn from. Without arguments nothing
    is the same.
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for index, record in records.items():
        if record.keys.calls:
            groups[record.keys.calls].append(index)
    copies: Copies = {}
    for group in filter(lambda group: len(group) > 1, groups.values()):
        queries = {index: records[index].query for index in group}
        sketched = dict(zip(group, sketches(queries.values()), strict=True))
        order = _in_order(records, group, seed)
        copies |= _near(order, sketched.__getitem__, queries.__getitem__, HALF_NEAR)
    return copies


def near_copies(
    records: Mapping[int, Traits],
    sketch: Callable[[int], bytes],
    text: Callable[[int], str],
    *,
    seed: int,
    threshold: float = NEAR,
) -> Copies:
    """Records whose dialogs have a Jaccard index of `threshold` or more, by character 5-grams of
    their `near_text`.

    Only with the same tools on offer and called in the same order: what is called is what is
    learned. They are not copies that contradict each other, or whose first questions are less than
    half alike, by pairs of characters: short questions may have one long answer. `sketch`: that of
    a record's `near_text`; `text`: reads it again, for the few that are compared.
    """

    def may_be(one: int, other: int) -> bool:
        a, b = records[one], records[other]
        return not a.keys.contradicts(b.keys) and _ask_alike(a.query, b.query)

    kinds = {index: record.keys.shape for index, record in records.items()}
    order = _in_order(records, records, seed)
    return _near(order, sketch, text, threshold, kinds.__getitem__, may_be)


def text_copies(texts: Sequence[str], threshold: float = NEAR) -> Copies:
    """Texts that have a Jaccard index of `threshold` or more with an earlier one that is kept."""
    sketched = list(sketches(texts))
    return _near(range(len(texts)), sketched.__getitem__, texts.__getitem__, threshold)


def borne(records: Mapping[int, Traits], copies: Mapping[int, int]) -> dict[int, str]:
    """The split that each record kept takes over from its copies: test before dev before train, so
    that none leaks.
    """
    splits = {kept: records[kept].split for kept in copies.values()}
    for index, kept in copies.items():
        splits[kept] = max(splits[kept], records[index].split, key=["", *SPLITS].index)
    return splits


def contradictions(records: Mapping[int, Traits]) -> list[list[int]]:
    """Groups of records with the same tools and the same messages up to the first turn to learn.

    Not all of a group make the same calls there. Two answers in words are not a contradiction, and
    arguments that are not known contradict none. Which record is right nobody can tell from the
    rows: if they are to be left out, then all of a group.
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for index, record in records.items():
        groups[record.keys.context].append(index)
    return [
        group
        for group in groups.values()
        if len({records[index].keys.first_names for index in group}) > 1
        or len({records[index].keys.first for index in group} - {0}) > 1
    ]


def near_text(record: Record) -> str:
    """A dialog's text by which near copies are found: without case, blanks and punctuation."""
    return normal(dialog_text(record))


def _near(
    order: Sequence[int],
    sketch: Callable[[int], bytes],
    text: Callable[[int], str],
    threshold: float,
    kind: Callable[[int], int] = lambda index: 0,
    may_be: Callable[[int, int], bool] = lambda one, other: True,
) -> Copies:
    """Takes one after the other: near one that is kept it is its copy, else it is kept itself."""
    known = NearTexts(text, threshold, [(sketch(index), kind(index)) for index in order])
    copies: Copies = {}
    for index in order:
        own, of_kind = sketch(index), kind(index)
        kept = known.near(index, own, of_kind, partial(may_be, index))
        if kept is None:
            known.add(index, own, of_kind)
        else:
            copies[index] = kept
    return copies


def _ask_alike(one: str, other: str) -> bool:
    a, b = (
        {text[start : start + 2] for start in range(max(1, len(text) - 1))} for text in (one, other)
    )
    return len(a & b) >= HALF_NEAR * len(a | b)


def _in_order(records: Mapping[int, Traits], some: Iterable[int], seed: int) -> list[int]:
    return sorted(some, key=lambda index: digest(f"{seed} copy {records[index].id}"))
