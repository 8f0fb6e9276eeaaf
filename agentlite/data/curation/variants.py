"""Shares of the train records -> one more variant of each, which names it as its parent."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.records import Record, digest
from agentlite.data.curation.validate import validate


class Variants(NamedTuple):
    """The new records, each with its parent, and how many of the chosen records became one, or why
    not, by kind.
    """

    records: list[Record]
    counts: dict[str, Counter[str]]


class Kind(NamedTuple):
    """`make` gives the variant of a record, or says why there is none; `share`: of how many."""

    share: float
    make: Callable[[Record], Record | str]


def variants_of(records: Iterable[Record], kinds: Mapping[str, Kind], seed: int) -> Variants:
    """Which records are chosen depends on seed, kind and id alone."""
    made = Variants([], {name: Counter() for name, kind in kinds.items() if kind.share})
    for record in records:
        for name, kind in kinds.items():
            if int(digest(f"{seed} {name} {record.id}"), 16) < kind.share * 2**64:
                new = _valid(kind.make(record))
                made.counts[name]["made" if isinstance(new, Record) else new] += 1
                made.records.extend([new] if isinstance(new, Record) else [])
    return made


def _valid(new: Record | str) -> Record | str:
    """The variant, or why `prep` would reject it."""
    try:
        if isinstance(new, Record):
            validate(new)
    except RowError as error:
        return f"{error.code} would reject it"
    return new


def variant(record: Record, made: str, **changes: object) -> Record:
    """The record with these changes. The entries of meta about the messages or the tools no longer
    hold for it; those about how it is written still do, and `bfcl_id`: gold of BFCL may break its
    schema.
    """
    kept = ("protocol", "joined", "cut_from", "bfcl_id")
    meta = {key: record.meta[key] for key in kept if key in record.meta}
    return replace(record, parent=record.id, meta={**meta, "made": made}, **changes)


def first_call(record: Record) -> int | str:
    """The turn at which the first call is expected, if the dialog has none before it; or why there
    is no such turn.
    """
    turn = next((turn for turn in record.prompted_turns if record.expected(turn).calls), None)
    if turn is None:
        return "no call is expected"
    if any(message.calls for message in record.messages[:turn]):
        return "a call is given before"
    return turn
