"""raw rows -> everything that was read: rows on disk, what is known of each in memory, and counts
that add up.
"""

import json
import os
import tempfile
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from agentlite.core import console
from agentlite.core.records import Record, from_row
from agentlite.core.row_files import Row, disk_errors, encode
from agentlite.data.curation.select import End
from agentlite.data.curation.stats import Sized
from agentlite.data.curation.traits import Traits
from agentlite.data.formats import RawLine
from agentlite.data.ingest_row import IngestContext, IngestedRecord, IngestedRow, LeftOut
from agentlite.data.rejects import Reject
from agentlite.data.worker_pool import take_all

ENDS = {
    "K": "kept",
    "E": "rejected",
    "D": "duplicates",
    "F": "filtered",
}  # by the first letter of a code
KEPT = "K"
LOOK_EVERY = 50  # rows: a bar costs more than a row


class Spool:
    """Rows on disk until it is known what becomes of them."""

    def __init__(self, folder: Path | None):
        self.folder = folder or Path(tempfile.gettempdir())
        self.file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  (closed by __exit__)
        self.starts = array("Q", [0])

    def __enter__(self) -> "Spool":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def add(self, row: bytes) -> None:
        with disk_errors(self.folder):
            self.file.write(row)
        self.starts.append(self.starts[-1] + len(row))

    def rows(self, indices: Iterable[int]) -> Iterator[Row]:
        for index in indices:
            self.file.seek(self.starts[index])
            yield json.loads(self.file.read(self.starts[index + 1] - self.starts[index]))

    def __len__(self) -> int:
        return len(self.starts) - 1


class Ingested(NamedTuple):
    """What was read, and what became of it. Of each record that was taken: its row, its traits, its
    size, its sketch and the source it is from. `ways`: where each row that is no reject came from,
    and what was done to it.

    `by_file`: by source, how many ended how, and the formats found in it. `cuts`: the ledger of the
    dialogs that were cut; `repaired`: how often each way mended a row; `personal`: values found, by
    kind; `retrieved`: records that were offered tools of a retriever, and how many lacked a due
    one.
    """

    spool: Spool
    ways: Spool
    traits: list[Traits]
    sizes: list[Sized]
    sketches: list[bytes]
    sources: list[str]
    rejects: list[Reject]
    left_out: Counter[str]
    by_file: dict[str, Counter[str]]
    formats: dict[str, Counter[str]]
    cuts: list[Row]
    repaired: Counter[str]
    personal: Counter[str]
    retrieved: Counter[str]

    @property
    def counts(self) -> dict[str, int]:
        counts = {"read": sum(counts["read"] for counts in self.by_file.values())}
        counts |= {
            end: sum(counts[end] for counts in self.by_file.values()) for end in ENDS.values()
        }
        assert counts["read"] == sum(counts[end] for end in ENDS.values()), counts
        return counts

    def record(self, index: int) -> Record:
        (row,) = self.spool.rows([index])
        return from_row(row)

    def tally(self, ends: dict[int, End]) -> None:
        """Says of every record that was taken how it ended: as `ends` has it, or kept."""
        for index, source in enumerate(self.sources):
            code = ends[index].code if index in ends else KEPT
            self.by_file[source][ENDS[code[0]]] += 1
            self.left_out[code] += code != KEPT


def gather(
    lines: Iterable[tuple[str, RawLine]], way: IngestContext, spool: Spool, ways: Spool
) -> Ingested:
    """Reads every row. Those that are taken are not counted yet: some are copies, or not drawn."""
    gathered = Ingested(
        spool,
        ways,
        [],
        [],
        [],
        [],
        [],
        Counter(),
        defaultdict(Counter),
        defaultdict(Counter),
        [],
        Counter(),
        Counter(),
        Counter(),
    )
    with console.progress("prep: rows read:", None) as advance:
        for count, found in enumerate(
            take_all(lines, way, way.settings.workers or os.cpu_count() or 1), 1
        ):
            _add(found, gathered)
            if count % LOOK_EVERY == 0:
                advance(count)
    return gathered


def ways_of(gathered: Ingested, ends: dict[int, End], sides: dict[int, str]) -> Iterator[Row]:
    """A row for each that was read and is no reject: where it is from, what was done to it, where
    it ended.
    """
    taken = 0
    for row in gathered.ways.rows(range(len(gathered.ways))):
        if "code" in row:
            yield {**row, "end": ENDS[row["code"][0]]}
            continue
        if (end := ends.get(taken)) is not None:
            of = {"of": end.of} if end.of else {}
            yield {**row, "end": ENDS[end.code[0]], "code": end.code, **of}
        else:
            yield {**row, "end": "kept", "split": sides[taken]}
        taken += 1


def _add(found: IngestedRow, gathered: Ingested) -> None:
    counts = gathered.by_file[found.source]
    gathered.repaired.update(found.repaired)
    if found.format:
        gathered.formats[found.source][found.format] += 1
    for one in found.samples:
        counts["read"] += 1
        if isinstance(one, IngestedRecord):
            _take(one, found, gathered)
        elif isinstance(one, LeftOut):
            counts["filtered"] += 1
            gathered.left_out[one.code] += 1
            gathered.personal.update(one.done.get("personal") or {})
            gathered.ways.add(encode(_way(one.id, one.place, found, one.done) | {"code": one.code}))
        else:
            counts["rejected"] += 1
            gathered.rejects.append(one)


def _take(one: IngestedRecord, found: IngestedRow, gathered: Ingested) -> None:
    gathered.spool.add(one.row)
    gathered.ways.add(encode(_way(one.traits.id, one.place, found, one.done)))
    gathered.traits.append(one.traits)
    gathered.sizes.append(one.sized)
    gathered.sources.append(found.source)
    gathered.personal.update(one.done.get("masked") or one.done.get("personal") or {})
    gathered.retrieved.update(one.done.get("retrieved") or {})
    if one.sketch:
        gathered.sketches.append(one.sketch)
    if one.cut:
        gathered.cuts.append(one.cut)


def _way(record_id: str, place: str, found: IngestedRow, done: Row) -> dict[str, Any]:
    done = {**({"repaired": list(found.repaired)} if found.repaired else {}), **done}
    return {
        "id": record_id,
        "place": place,
        "format": found.format,
        **({"done": done} if done else {}),
    }
