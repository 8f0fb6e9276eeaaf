"""Records and held-out files -> the records that give a held-out question away."""

import io
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Record
from agentlite.data.curation.dedup import HALF_NEAR
from agentlite.data.curation.minhash import NEAR, NearTexts, sketches
from agentlite.data.curation.split import TELLING
from agentlite.data.curation.traits import Traits, traits
from agentlite.data.formats import decoded, read_lines, samples, to_record

Key = TypeVar("Key", int, str)
ReaderOptions = Mapping[str, Mapping[str, Any]]


class HeldOut(NamedTuple):
    """The records of held-out files, the places they are from, and how many rows could not be read,
    by code.
    """

    traits: list[Traits]
    locations: list[str]
    unread: Counter[str]


def leaks(
    records: Mapping[Key, Traits], held_out: Sequence[Traits], *, threshold: float = NEAR
) -> dict[Key, int]:
    """The records that leak into held-out ones, by index or id, each with the held-out one that it
    gives away: by a query, a near first query, or its calls.
    """
    queries = {index: record.query for index, record in records.items()}
    held = {number: record.query for number, record in enumerate(held_out)}
    leaking: dict[Key, int] = {}
    for pairs in (
        _by_query(records, held_out),
        _near(queries, held, threshold),
        _by_calls(records, held_out),
    ):
        for index, number in pairs:
            leaking.setdefault(index, number)
    return dict(sorted(leaking.items()))


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
    records: Mapping[Key, Traits], held_out: Sequence[Traits]
) -> Iterator[tuple[Key, int]]:
    """Any user turn that is long enough to ask something, and the first one however short."""
    by_query: dict[bytes, int] = {}
    for number, record in enumerate(held_out):
        for query in record.queries:
            by_query.setdefault(query, number)
    for index, record in records.items():
        yield from ((index, by_query[query]) for query in record.queries if query in by_query)


def _by_calls(
    records: Mapping[Key, Traits], held_out: Sequence[Traits]
) -> Iterator[tuple[Key, int]]:
    """The same arguments on the same tools: many of them, or few of them after a query that is half
    alike.
    """
    called: dict[int, list[int]] = defaultdict(list)
    for number, record in enumerate(held_out):
        if record.keys.calls:
            called[record.keys.calls].append(number)
    calling: dict[int, list[Key]] = defaultdict(list)
    for index, record in records.items():
        if record.keys.calls in called:
            calling[record.keys.calls].append(index)
    for calls, indices in calling.items():
        if records[indices[0]].keys.value_bytes >= TELLING:
            yield from ((index, called[calls][0]) for index in indices)
        else:
            queries = {index: records[index].query for index in indices}
            held = {number: held_out[number].query for number in called[calls]}
            yield from _near(queries, held, HALF_NEAR)


def _near(
    queries: Mapping[Key, str], held: Mapping[int, str], threshold: float
) -> Iterator[tuple[Key, int]]:
    """The keys of texts that are near a held-out one, each with the number of that."""
    texts = sorted({*queries.values(), *held.values()} - {""})
    places = {text: place for place, text in enumerate(texts)}
    # of equal held-out texts, the first
    owners = {places[text]: number for number, text in reversed([*held.items()]) if text}
    known = NearTexts(texts.__getitem__, threshold)
    for place, sketch in _sketched(sorted(owners), texts):
        known.add(place, sketch)
    asked = sorted({places[text] for text in queries.values() if text})
    nearest = {place: known.near(place, sketch) for place, sketch in _sketched(asked, texts)}
    for number, text in queries.items():
        other = nearest[places[text]] if text else None
        if other is not None:
            yield number, owners[other]


def _sketched(places: Sequence[int], texts: Sequence[str]) -> Iterator[tuple[int, bytes]]:
    return zip(places, sketches(texts[place] for place in places), strict=True)
