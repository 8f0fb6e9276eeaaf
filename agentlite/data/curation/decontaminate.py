"""Finds training records that leak a held-out question: by query, near query or calls."""

import io
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple

from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Record
from agentlite.data.curation.dedup import HALF_NEAR
from agentlite.data.curation.minhash import MOST, MinHashIndex, is_near, sketches
from agentlite.data.curation.split import NEAR, TELLING
from agentlite.data.curation.traits import Traits, traits
from agentlite.data.formats import decoded, read_lines, samples, to_record

Kind = Literal["query", "near", "calls"]
ReaderOptions = Mapping[str, Mapping[str, Any]]


class Leak(NamedTuple):
    """How a record leaks, and which held-out one it gives away, by index."""

    kind: Kind
    of: int


class HeldOut(NamedTuple):
    """The records of held-out files, the places they are from, and how many rows could not be read,
    by code.
    """

    traits: list[Traits]
    locations: list[str]
    unread: Counter[str]


def leaks(
    records: Sequence[Traits], held_out: Sequence[Traits], *, threshold: float = NEAR
) -> dict[int, Leak]:
    """The records, by index, that leak into held-out ones; each with the first kind of leak that
    applies.
    """
    found: dict[int, Leak] = {}
    for kind in KINDS:
        for index, of in KINDS[kind](records, held_out, threshold):
            found.setdefault(index, Leak(kind, of))
    return dict(sorted(found.items()))


def read_held_out(
    sources: Sequence[str],
    options: ReaderOptions | None = None,
    change: Callable[[Record], Record] = lambda record: record,
) -> HeldOut:
    """The records of files in any known format. `change`: what is done to the texts of other
    records before they count.

    A row that cannot be read is counted. Raises UserError for a file that cannot be read, or none
    of whose rows can.
    """
    held_out = HeldOut([], [], Counter())
    for source in sources:
        before = len(held_out.traits)
        for line in read_lines(source, io.BytesIO()):
            try:
                raw = decoded(line)
                if raw.error:
                    raise raw.error
                name, parts = samples(raw.value)
                found = [traits(change(to_record(part, name, options))) for part in parts]
                held_out.traits.extend(found)
                held_out.locations.extend([raw.location] * len(found))
            except RowError as error:
                held_out.unread[error.code] += 1
        if len(held_out.traits) == before:
            raise UserError(
                "no row of it can be read.",
                "Run `agentlite prep` on it to see why.",
                location=f"--holdout {source}",
            )
    return held_out


def _by_query(
    records: Sequence[Traits], held_out: Sequence[Traits], threshold: float
) -> Iterator[tuple[int, int]]:
    """Any user turn that is long enough to ask something, and the first one however short."""
    by_query: dict[bytes, int] = {}
    for number, record in enumerate(held_out):
        for query in record.queries:
            by_query.setdefault(query, number)
    for index, record in enumerate(records):
        yield from ((index, by_query[query]) for query in record.queries if query in by_query)


def _by_near_query(
    records: Sequence[Traits], held_out: Sequence[Traits], threshold: float
) -> Iterator[tuple[int, int]]:
    return _near(
        dict(enumerate(record.query for record in records)),
        dict(enumerate(record.query for record in held_out)),
        threshold,
    )


def _by_calls(
    records: Sequence[Traits], held_out: Sequence[Traits], threshold: float
) -> Iterator[tuple[int, int]]:
    """The same arguments on the same tools: many of them, or few of them after a query that is half
    alike.
    """
    called: dict[int, list[int]] = defaultdict(list)
    for number, record in enumerate(held_out):
        if record.keys.calls:
            called[record.keys.calls].append(number)
    calling: dict[int, list[int]] = defaultdict(list)
    for index, record in enumerate(records):
        if record.keys.calls in called:
            calling[record.keys.calls].append(index)
    for calls, indices in calling.items():
        if records[indices[0]].keys.value_bytes >= TELLING:
            yield from ((index, called[calls][0]) for index in indices)
        else:
            yield from _near(
                {index: records[index].query for index in indices},
                {number: held_out[number].query for number in called[calls]},
                HALF_NEAR,
            )


def _near(
    queries: Mapping[int, str], held: Mapping[int, str], threshold: float
) -> Iterator[tuple[int, int]]:
    """Numbers of a text that is asked and of a held-out one that is near it, for each that is near
    any.
    """
    texts = sorted({*queries.values(), *held.values()} - {""})
    places = {text: place for place, text in enumerate(texts)}
    owners = {places[text]: number for number, text in reversed([*held.items()]) if text}
    index, near = MinHashIndex(threshold), is_near(texts.__getitem__, threshold)
    for place, sketch in zip(
        sorted(owners), sketches(texts[place] for place in sorted(owners)), strict=True
    ):
        index.add(place, sketch)
    by_query = sorted({places[text] for text in queries.values() if text})
    nearest: dict[int, int] = {}
    for place, sketch in zip(by_query, sketches(texts[place] for place in by_query), strict=True):
        found = next(
            (other for other in islice(index.like(sketch), MOST) if near(place, other)), None
        )
        if found is not None:
            nearest[place] = owners[found]
    for number, text in queries.items():
        if text and places[text] in nearest:
            yield number, nearest[places[text]]


KINDS: dict[
    Kind, Callable[[Sequence[Traits], Sequence[Traits], float], Iterator[tuple[int, int]]]
] = {"query": _by_query, "near": _by_near_query, "calls": _by_calls}
