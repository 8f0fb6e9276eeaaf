"""Raw rows -> all that was read: rows on disk, traits and sizes in memory, counts that add up."""

import json
import os
import tempfile
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from agentlite.core import console
from agentlite.core.records import Record, from_row
from agentlite.core.row_files import Row, disk_errors, encode
from agentlite.data.curation.stats import Sized
from agentlite.data.curation.traits import Traits
from agentlite.data.formats import RawLine
from agentlite.data.ingest_row import IngestContext, IngestedRecord, IngestedRow, LeftOut
from agentlite.data.rejects import MOST_LINES, Reject
from agentlite.data.worker_pool import take_all

# how a row ends, by the first letter of its code
ENDS = {"K": "kept", "E": "rejected", "D": "duplicates", "F": "filtered"}
KEPT = "K"
LOOK_EVERY = 50  # rows: a bar costs more than a row


class End(NamedTuple):
    """Why a record is not kept, as a code. `of`: the id of the record that it copies or
    contradicts, or the location of the held-out row that it gives away.
    """

    code: str
    of: str = ""


class Spool:
    """Rows on disk, by index, until it is decided what becomes of them."""

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

    def read(self, indices: Iterable[int]) -> Iterator[Row]:
        for index in indices:
            self.file.seek(self.starts[index])
            yield json.loads(self.file.read(self.starts[index + 1] - self.starts[index]))

    def __len__(self) -> int:
        return len(self.starts) - 1


class Ingested:
    """What was read, and what is known of it in memory: it grows by `add` alone, row by row. Lists
    are by the index of a record that was taken.

    `rows`: of the records; `origins`: of each row that is not a reject, as they were read: where it
    came from, and what was done to it. Both are on disk.
    """

    def __init__(self, rows: Spool, origins: Spool):
        self.rows, self.origins = rows, origins
        self.traits: list[Traits] = []
        self.sizes: list[Sized] = []
        self.sketches: list[bytes] = []  # if near copies are looked for
        self.sources: list[str] = []
        self.rejects: list[Reject] = []
        self.cuts: list[Row] = []  # the ledger of the dialogs that were cut
        self.formats: dict[str, Counter[str]] = defaultdict(Counter)  # by source
        self.left_out = Counter[str]()  # rows that were filtered while they were read, by code
        self.repaired = Counter[str]()  # rows, by method
        self.repaired_at: dict[str, list[str]] = defaultdict(list)  # the places of the first
        self.personal = Counter[str]()  # values, by kind
        self.retrieved = Counter[str]()  # records with tools of a retriever, or lacking a right one
        self.undeclared = Counter[str]()  # records, and parameters that the lists of tools lack
        self.for_tests = 0  # records in which any call is right, so there is none to learn
        self.invalid_schemas = Counter[str]()  # records that call such a tool, by the tool
        self.undescribed: set[str] = set()  # ids of tools of which nothing else is known
        self.offering_undescribed = 0  # records
        self.rollouts = 0  # that --keep measures
        self.scores: set[str] = set()  # the names of those that rollouts have
        self._ended: dict[str, Counter[str]] = defaultdict(Counter)  # by source; not those taken

    def add(self, row: IngestedRow) -> None:
        """Adds what became of one raw row, and counts it."""
        self.repaired.update(row.repaired)
        for method in row.repaired:
            if len(first := self.repaired_at[method]) < MOST_LINES:
                first.append(row.samples[0].location)
        if row.format:
            self.formats[row.source][row.format] += 1
        for sample in row.samples:
            self._ended[row.source]["read"] += 1
            if isinstance(sample, Reject):
                self._ended[row.source]["rejected"] += 1
                self.rejects.append(sample)
                continue
            if "scores" in sample.done:
                self.rollouts += 1
                self.scores.update(sample.done["scores"])
            done = {**({"repaired": [*row.repaired]} if row.repaired else {}), **sample.done}
            origin: Row = {"location": sample.location, "format": row.format}
            origin |= {"done": done} if done else {}
            if isinstance(sample, LeftOut):
                self._ended[row.source]["filtered"] += 1
                self.left_out[sample.code] += 1
                self.personal.update(sample.done.get("personal") or {})
                self.origins.add(encode({"id": sample.id, **origin, "code": sample.code}))
            else:
                self.sources.append(row.source)
                self.origins.add(encode({"id": sample.traits.id, **origin}))
                self._take(sample)

    def _take(self, record: IngestedRecord) -> None:
        self.rows.add(record.row)
        self.traits.append(record.traits)
        self.sizes.append(record.sized)
        self.sketches += [record.sketch] if record.sketch else []
        self.cuts += [record.cut] if record.cut else []
        self.personal.update(record.done.get("masked") or record.done.get("personal") or {})
        self.retrieved.update(record.done.get("retrieved") or {})
        if undeclared := record.done.get("undeclared"):
            self.undeclared += Counter(records=1, parameters=sum(map(len, undeclared.values())))
        self.for_tests += "for_tests" in record.done
        self.invalid_schemas.update(record.done.get("invalid_schemas") or ())
        self.undescribed.update(record.done.get("undescribed") or ())
        self.offering_undescribed += "undescribed" in record.done

    def record(self, index: int) -> Record:
        """Reads a record from disk."""
        (row,) = self.rows.read([index])
        return from_row(row)

    @property
    def read(self) -> int:
        """How many rows were read, counting each sample of a row with several."""
        return sum(ended["read"] for ended in self._ended.values())

    def by_file(self, ends: Mapping[int, End]) -> dict[str, dict[str, int]]:
        """How many rows of each source were read, and how many of them ended how; those that were
        taken as `ends` says, and the rest of them are kept.
        """
        counts = {source: Counter(ended) for source, ended in self._ended.items()}
        for index, source in enumerate(self.sources):
            code = ends[index].code if index in ends else KEPT
            counts[source][ENDS[code[0]]] += 1
        return {
            source: {end: ended[end] for end in ("read", *ENDS.values())}
            for source, ended in counts.items()
        }

    def provenance(
        self, ends: Mapping[int, End], splits: Mapping[int, str], times: Mapping[int, int]
    ) -> Iterator[Row]:
        """A row for each that was read and is not a reject: where it is from, what was done to it,
        where it ended, and how many `times` it is there, if that is not once.
        """
        taken = 0  # index of the next record: only rows that were filtered have a code already
        for row in self.origins.read(range(len(self.origins))):
            if "code" in row:
                yield {**row, "end": ENDS[row["code"][0]]}
                continue
            if (end := ends.get(taken)) is not None:
                of = {"of": end.of} if end.of else {}
                yield {**row, "end": ENDS[end.code[0]], "code": end.code, **of}
            else:
                often = {"times": times[taken]} if times.get(taken, 1) > 1 else {}
                yield {**row, "end": "kept", "split": splits[taken], **often}
            taken += 1


@contextmanager
def ingest(taken: Iterable[IngestedRow], folder: Path | None) -> Iterator[Ingested]:
    """Adds up what became of every row. Until the context ends, the records are in files without a
    name in `folder` (None: the system's folder for temporary files).
    """
    with Spool(folder) as rows, Spool(folder) as origins:
        ingested = Ingested(rows, origins)
        for row in taken:
            ingested.add(row)
        yield ingested


def read_all(lines: Iterable[tuple[str, RawLine]], context: IngestContext) -> Iterator[IngestedRow]:
    """Reads every row, each with the source it is from, and shows how many were read."""
    workers = context.settings.workers or os.cpu_count() or 1
    with console.progress("prep: rows read:", None) as advance:
        for count, row in enumerate(take_all(lines, context, workers), 1):
            yield row
            if count % LOOK_EVERY == 0:
                advance(count)


def totals(by_file: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """The counts of all files, which add up: each row that was read ended in one way."""
    counts = {
        end: sum(counts[end] for counts in by_file.values()) for end in ("read", *ENDS.values())
    }
    assert counts["read"] == sum(counts[end] for end in ENDS.values()), counts
    return counts
