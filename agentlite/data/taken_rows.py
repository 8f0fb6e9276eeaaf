"""What became of raw rows, on disk: the file of a shard, and several in the order of the rows."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from agentlite.core.errors import DISK, OTHER_PLAN, UserError
from agentlite.core.row_files import fix_for, replacing
from agentlite.data.curation.traits import Traits
from agentlite.data.ingest_row import IngestedRecord, IngestedRow, LeftOut
from agentlite.data.rejects import Reject

Row = TypeVar("Row")
LENGTH = 4  # bytes before each row that say how many it has
KINDS = {IngestedRecord: "K", LeftOut: "F", Reject: "E"}


class StoredRow(Struct, frozen=True, array_like=True, gc=False):
    """An IngestedRow. `order`: the kind of each sample, a letter each; the samples themselves are
    kept by kind, since types that are lists on disk cannot be told apart in one list.
    """

    source: str
    format: str
    repaired: tuple[str, ...]
    order: str
    records: tuple[IngestedRecord, ...]
    left_out: tuple[LeftOut, ...]
    rejects: tuple[Reject, ...]


def write_taken(path: Path, rows: Iterable[IngestedRow]) -> Counter[str]:
    """Writes the rows as they come, in a file that appears whole. Returns how many rows, records,
    rejects and filtered samples it holds.
    """
    counts = Counter({"rows": 0, "records": 0, "filtered": 0, "rejected": 0})
    encoder = msgspec.msgpack.Encoder()
    with replacing(path) as file:
        for row in rows:
            stored = _stored(row)
            content = encoder.encode(stored)
            file.write(len(content).to_bytes(LENGTH) + content)
            counts.update(
                rows=1,
                records=len(stored.records),
                filtered=len(stored.left_out),
                rejected=len(stored.rejects),
            )
    return counts


def read_taken(path: Path) -> Iterator[IngestedRow]:
    """Raises UserError 3 for a file that this version did not write, 74 for one that cannot be
    opened: each shard has an open file.
    """
    decoder = msgspec.msgpack.Decoder(StoredRow)
    try:
        file = open(path, "rb")  # noqa: SIM115  (closed below)
    except OSError as error:
        raise UserError(
            f"cannot be read: {error.strerror}.",
            fix_for(error),
            location=str(path),
            exit_code=DISK,
        ) from error
    with file:
        while head := file.read(LENGTH):
            try:
                yield _taken(decoder.decode(file.read(int.from_bytes(head))))
            except (msgspec.MsgspecError, ValueError) as error:
                raise UserError(
                    f"cannot be read ({error}).",
                    "Run the command of this shard again with --force.",
                    location=str(path),
                    exit_code=OTHER_PLAN,
                ) from error


def every_nth(rows: Iterable[Row], number: int, count: int) -> Iterator[Row]:
    """Of `count` shards the rows of one, from 1; all rows are read, to their end."""
    return islice(rows, number - 1, None, count)


def in_turns(shards: Sequence[Iterable[Row]]) -> Iterator[Row]:
    """The rows of all shards in the order in which every_nth() dealt them out."""
    streams = [iter(shard) for shard in shards]
    while True:
        for stream in streams:
            try:
                row = next(stream)
            except StopIteration:
                return
            yield row


def _stored(row: IngestedRow) -> StoredRow:
    return StoredRow(
        row.source,
        row.format,
        tuple(row.repaired),
        "".join(KINDS[type(sample)] for sample in row.samples),
        tuple(sample for sample in row.samples if isinstance(sample, IngestedRecord)),
        tuple(sample for sample in row.samples if isinstance(sample, LeftOut)),
        tuple(sample for sample in row.samples if isinstance(sample, Reject)),
    )


def _taken(stored: StoredRow) -> IngestedRow:
    samples: dict[str, Iterator[IngestedRecord | LeftOut | Reject]] = {
        "K": map(_shared, stored.records),
        "F": iter(stored.left_out),
        "E": iter(stored.rejects),
    }
    return IngestedRow(
        sys.intern(stored.source),
        sys.intern(stored.format),
        stored.repaired,
        [next(samples[kind]) for kind in stored.order],
    )


def _shared(record: IngestedRecord) -> IngestedRecord:
    """The record with texts that many records have in memory once, as those that were not read
    from disk.
    """
    traits, sized = record.traits, record.sized
    return record._replace(
        traits=Traits(
            traits.id,
            sys.intern(traits.split),
            sys.intern(traits.source),
            sys.intern(traits.task),
            traits.query,
            traits.packed_queries,
            tuple(map(sys.intern, traits.tools)),
            tuple(traits.id if one == traits.id else one for one in traits.parents),
            traits.packed_keys,
        ),
        sized=sized._replace(
            protocol=sys.intern(sized.protocol),
            script=sys.intern(sized.script),
            offered=tuple(map(sys.intern, sized.offered)),
            called=tuple(map(sys.intern, sized.called)),
        ),
    )
