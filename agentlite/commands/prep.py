"""raw rows -> train, dev and test records, rejects.jsonl with a reason a row, and counts that add up."""

import hashlib
import io
import json
import os
import sys
import tempfile
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

from msgspec.structs import replace

from agentlite import config, console, stages
from agentlite.curation.duplicates import first_of_each
from agentlite.curation.joining import add_distractors, join_dialogs
from agentlite.curation.sample import sample
from agentlite.curation.split import Traits, assign_splits, traits
from agentlite.curation.statistics import Sized, statistics
from agentlite.errors import REJECTS, RowError, UserError, nearest
from agentlite.intake import Intake, LeftOut, Taken, Way, measure, take_all
from agentlite.protocols import choose, rendering, settled
from agentlite.records import SPLITS, Record, from_row, to_row
from agentlite.rejects import Edits, Reject, edited_rows, reject_row
from agentlite.rows import Row, disk_errors, find_rows, read_rows, write_json, write_rows
from agentlite.sources import Line, check_format, files_of, raw_files, read_lines
from agentlite.sources.repair import WAYS
from agentlite.stages import Place, Plan, Result
from agentlite.templates import find_model, load_template

# how it is done, not what comes out
NOT_OF_THE_PLAN = ("workers",)
UNKNOWN = ("E104", "E105")  # nobody knows how many rows such a reject stands for
ENDS = ("kept", "rejected", "duplicates", "filtered")  # each row that is read ends as one of them


class Spool:
    """The rows of the records that were taken, on disk until it is known which are kept, and in which split."""

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


class Gathered(NamedTuple):
    """Everything that was read, and what became of it: of each record that was taken, its row, its traits, its size and
    the source it is from. `by_file`: by source, how many ended how, and the formats found in it.

    `cuts`: the ledger of the dialogs that were cut; `repaired`: how often each way mended a row.
    """

    spool: Spool
    traits: list[Traits]
    sizes: list[Sized]
    sources: list[str]
    rejects: list[Reject]
    filtered: Counter[str]
    by_file: dict[str, Counter[str]]
    formats: dict[str, Counter[str]]
    cuts: list[Row]
    repaired: Counter[str]

    @property
    def counts(self) -> dict[str, int]:
        counts = {"read": sum(counts["read"] for counts in self.by_file.values())}
        counts |= {end: sum(counts[end] for counts in self.by_file.values()) for end in ENDS}
        assert counts["read"] == sum(counts[end] for end in ENDS), counts
        return counts


def run(settings: config.Prep, place: Place) -> Result:
    """Prepares the sources. Raises UserError 4 if more rows are rejected than `max_rejects` allows."""
    settings = replace(settings, sources=_sources(settings.sources))
    _refuse_mistakes(settings)
    if settings.retry_rejects and Path(settings.retry_rejects).resolve().is_relative_to(place.folder.resolve()):
        raise UserError("is in the folder that is written anew.", "Copy it elsewhere, and add --out NAME to keep both.",
                        place=settings.retry_rejects)  # fmt: skip
    with console.stdout_to_stderr(), _spooled(settings.sources) as stdin:
        way, plan = _plan(settings, place, stdin)
        if place.dry_run:
            return _dry_run(way, plan, place, stdin)
        with stages.open_stage(place.folder, plan, force=place.force) as stage:
            if stage.status != "done":
                _fill_or_fail(stage, way, stdin)
            return stage.result(place.next("agentlite sft" + ("" if place.out == "prep" else f" --data {place.out}")))


def shown(folder: Path, count: int) -> Iterator[str]:
    """The first training records of a finished prep, rendered, the trained tokens between ⟦ and ⟧."""
    plan = stages.read_plan(folder)
    template = load_template(find_model(plan.settings["model"], folder.parent).base)
    mixture = settled(plan.settings["protocol"], template)
    rows = (row for split in SPLITS for row in read_rows(find_rows(folder, split)))
    for _, row in zip(range(count), rows, strict=False):
        record = from_row(row)
        protocol = mixture.of(record)
        yield f"── {record.id}  {record.source}  {record.task}  {record.split}  {protocol.name}"
        for rendered in rendering.render(record, protocol, template):
            yield rendering.show(rendered, _mark)


def stored(folder: Path) -> Iterator[dict[str, Any]]:
    """The records of a finished prep, for `--rows -`."""
    for split in SPLITS:
        yield from read_rows(find_rows(folder, split))


def _sources(given: Sequence[str]) -> tuple[str, ...]:
    """`bfcl:simple_python,multiple` is two sources; a folder is the files in it."""
    if not given:
        fix = "agentlite prep dialogs.jsonl, or - for stdin, or bfcl:multiple."
        raise UserError("no SOURCE is given.", fix, place="prep.sources")
    found: list[str] = []
    for source in given:
        scheme, colon, rest = source.partition(":")
        found += [f"bfcl:{part}" for part in rest.split(",")] if colon and scheme == "bfcl" else files_of(source)
    return tuple(found)


def _refuse_mistakes(settings: config.Prep) -> None:
    if settings.format != "auto":
        check_format(settings.format)
    for way in settings.repair:
        if way not in WAYS:
            raise UserError(f"no way to repair is called '{way}'.", nearest(way, WAYS), place="--repair")


def _plan(settings: config.Prep, place: Place, stdin: BinaryIO) -> tuple[Way, Plan]:
    name = settings.model or (config.GPU_MODEL if config.has_gpu() else config.CPU_MODEL)
    model = find_model(name, place.run)
    template = load_template(model.base)
    mixture = choose(settings.protocol, template, settings.seed)
    settings = replace(settings, model=name, protocol=mixture.name)
    inputs = {source: _digest(source, stdin) for source in settings.sources}
    if settings.retry_rejects:
        inputs["retry_rejects"] = ",".join(stages.file_digest(path) for path in raw_files(settings.retry_rejects))
    stored_as = "parquet" if settings.rows == "parquet" else "jsonl"
    kept = {**config.plain_settings(settings, NOT_OF_THE_PLAN), "rows": stored_as}
    plan = Plan("prep", kept, {**inputs, "model": model.digest}, stages.versions())
    return Way(settings, template, mixture), plan


def _digest(source: str, stdin: BinaryIO) -> str:
    if source == "-":
        stdin.seek(0)
        digest = hashlib.sha256()
        while piece := stdin.read(1 << 20):
            digest.update(piece)
        return digest.hexdigest()
    return ",".join(stages.file_digest(path)[:16] for path in raw_files(source))


def _fill_or_fail(stage: stages.Stage, way: Way, stdin: BinaryIO) -> None:
    try:
        with Spool(stage.folder) as spool:
            _fill(stage, way, stdin, spool)
    except UserError:
        stage.fail()
        raise


def _fill(stage: stages.Stage, way: Way, stdin: BinaryIO, spool: Spool) -> None:
    gathered = _gather(way, stdin, spool)
    kept = _kept(way.settings, gathered)
    write_rows(stage.folder / "rejects.jsonl", map(reject_row, gathered.rejects))
    _refuse_rejects(stage.folder, way.settings, gathered)
    splits = assign_splits([gathered.traits[index] for index in kept], dev=way.settings.dev, test=way.settings.test,
                           seed=way.settings.seed, by=way.settings.split_by)  # fmt: skip
    for note in splits.notes:
        console.notice(note)
    sides = dict(zip(kept, splits.splits, strict=True))
    files, written = _write_splits(stage.folder, way, gathered, sides)
    files += _write_cuts(stage.folder, gathered.cuts)
    train = [sized for traits, sized in written if traits.split == "train"]
    figures = {**gathered.counts, **{split: splits.splits.count(split) for split in SPLITS}, "groups": splits.groups,
               "train_rows": len(train), "trained_tokens": sum(sized.trained for sized in train), **_told(gathered),
               **statistics(*map(list, zip(*written, strict=True))), "by_file": _by_file(gathered)}  # fmt: skip
    write_json(stage.folder / "stats.json", {**figures, "notes": splits.notes})
    stage.finish([*files, "rejects.jsonl", "stats.json"], figures)


def _write_splits(folder: Path, way: Way, gathered: Gathered,
                  sides: Mapping[int, str]) -> tuple[list[str], list[tuple[Traits, Sized]]]:  # fmt: skip
    """The files, and what was written to them."""
    suffix = "parquet" if way.settings.rows == "parquet" else "jsonl"
    written: list[tuple[Traits, Sized]] = []
    for split in SPLITS:
        here = [index for index, side in sides.items() if side == split]
        rows: Iterator[Row] = ({**row, "split": split} for row in gathered.spool.rows(here))
        if split == "train" and (way.settings.distractors or way.settings.join > 1):
            augmented = _augmented([from_row(row) for row in rows], way)
            rows = map(to_row, augmented)
            written += [(traits(record), measure(record, way)) for record in augmented]
        else:
            written += [(gathered.traits[index]._replace(split=split), gathered.sizes[index]) for index in here]
        write_rows(folder / f"{split}.{suffix}", rows)
    return [f"{split}.{suffix}" for split in SPLITS], written


def _write_cuts(folder: Path, cuts: list[Row]) -> list[str]:
    """The ledger is there only where something was cut."""
    if cuts:
        write_rows(folder / "cuts.jsonl", cuts)
    return ["cuts.jsonl"] if cuts else []


def _told(gathered: Gathered) -> dict[str, Any]:
    """What is told only where it happened."""
    told: dict[str, Any] = {
        "rejects": dict(Counter(reject.code for reject in gathered.rejects).most_common()),
        "left_out": dict((+gathered.filtered).most_common()),
        "cut": len(gathered.cuts),
        "repaired": dict(gathered.repaired),
    }
    return {name: value for name, value in told.items() if value}


def _by_file(gathered: Gathered) -> dict[str, dict[str, Any]]:
    return {
        source: {"formats": dict(gathered.formats[source]), **{end: counts[end] for end in ("read", *ENDS)}}
        for source, counts in gathered.by_file.items()
    }


def _gather(way: Way, stdin: BinaryIO, spool: Spool) -> Gathered:
    """Reads every row. Those that are taken are not counted yet: some are duplicates, or beyond the limit."""
    gathered = Gathered(spool, [], [], [], [], Counter(), defaultdict(Counter), defaultdict(Counter), [],
                        Counter())  # fmt: skip
    started, read = time.monotonic(), 0
    for found in take_all(_lines(way.settings, stdin), way, way.settings.workers or os.cpu_count() or 1):
        _count(found, gathered)
        read += len(found.samples)
        if time.monotonic() - started > console.EVERY_SECONDS:
            started = time.monotonic()
            console.notice(f"prep: {read} rows read")
    return gathered


def _count(found: Intake, gathered: Gathered) -> None:
    counts = gathered.by_file[found.source]
    gathered.repaired.update(found.repaired)
    if found.format:
        gathered.formats[found.source][found.format] += 1
    for one in found.samples:
        counts["read"] += 1
        if isinstance(one, Taken):
            gathered.spool.add(one.row)
            gathered.traits.append(one.traits)
            gathered.sizes.append(one.sized)
            gathered.sources.append(found.source)
            if one.cut:
                gathered.cuts.append(one.cut)
        elif isinstance(one, LeftOut):
            counts["filtered"] += 1
            gathered.filtered[one.code] += 1
        else:
            counts["rejected"] += 1
            gathered.rejects.append(one)


def _kept(settings: config.Prep, gathered: Gathered) -> list[int]:
    """Which records are written: no copies, and no more than the limit. Counts them all; copies hand on their split."""
    unique, splits = first_of_each(gathered.traits)
    for index, split in zip(unique, splits, strict=True):
        gathered.traits[index] = gathered.traits[index]._replace(split=split)
    chosen = [unique[place] for place in sample([gathered.traits[i] for i in unique], settings.limit, settings.seed)]
    ends = dict.fromkeys(unique, "filtered") | dict.fromkeys(chosen, "kept")
    for index, source in enumerate(gathered.sources):
        gathered.by_file[source][ends.get(index, "duplicates")] += 1
    gathered.filtered["limit"] += len(unique) - len(chosen)
    return chosen


def _lines(settings: config.Prep, stdin: BinaryIO) -> Iterator[tuple[str, Line]]:
    """The rows of all sources, edited where that is asked for, each with its source."""
    edits = Edits(edited_rows(Path(settings.retry_rejects)) if settings.retry_rejects else {})
    for source in settings.sources:
        stdin.seek(0)
        for line in read_lines(source, stdin):
            yield source, edits(line)
    if unused := list(edits.unused()):
        raise UserError(f"no source has {unused[0]}.", "Name the sources as they were named when it was rejected.",
                        place=settings.retry_rejects)  # fmt: skip


def _augmented(train: list[Record], way: Way) -> list[Record]:
    """Train rows with foreign tools, and several in a dialog; one that would get too long stays as it was."""
    settings = way.settings
    if settings.distractors:
        changed = add_distractors(train, n=settings.distractors, seed=settings.seed)
        train = [new if new.id == old.id or _fits(new, way) else old for new, old in zip(changed, train, strict=True)]
    if settings.join > 1:
        room = settings.join_tokens or settings.max_length
        tokens = {record.id: measure(record, way).tokens for record in train}
        train = join_dialogs(train, k=settings.join, seed=settings.seed,
                             fits=lambda slot: sum(tokens[one.id] for one in slot) <= room)  # fmt: skip
    return [replace(record, split="train") for record in train]


def _fits(record: Record, way: Way) -> bool:
    """Whether a changed record is still one that can be rendered, and short enough."""
    try:
        return measure(record, way).longest <= way.settings.max_length
    except RowError:
        return False


def _refuse_rejects(folder: Path, settings: config.Prep, gathered: Gathered) -> None:
    rejected, read = len(gathered.rejects), gathered.counts["read"]
    for line in _reject_lines(gathered.rejects):
        console.notice(line)
    file = str(folder / "rejects.jsonl")
    if settings.max_rejects < 1 and (rest := [one for one in gathered.rejects if one.code in UNKNOWN]):
        fix = "Fetch or mend the file; or take what was read of it: --max-rejects 1."
        raise UserError(f"{rest[0].reason}: rows may be missing.", fix, place=rest[0].place, exit_code=REJECTS)
    if rejected > 1 and rejected > settings.max_rejects * read:
        fix = f"Mend them, or allow more: --max-rejects {min(1.0, rejected / read + 0.005):.2f}."
        raise UserError(f"{rejected} of {read} rows rejected, {settings.max_rejects:.0%} allowed.", fix, place=file,
                        exit_code=REJECTS)  # fmt: skip
    if not gathered.counts["kept"]:
        raise UserError(f"no row left of {read} read.", "The reasons are in that file.", place=file, exit_code=REJECTS)


def _reject_lines(rejects: Sequence[Reject]) -> list[str]:
    """One line a kind, with the first place and how many more."""
    first: dict[str, Reject] = {}
    for reject in rejects:
        first.setdefault(reject.code, reject)
    counts = Counter(reject.code for reject in rejects)
    return [
        f"{reject.place}: {code} {reject.reason}" + (f"  [+{counts[code] - 1} more]" if counts[code] > 1 else "")
        for code, reject in first.items()
    ]


def _dry_run(way: Way, plan: Plan, place: Place, stdin: BinaryIO) -> Result:
    """Everything but the writing."""
    started = time.monotonic()
    if not place.force:
        stages.compare(place.folder, plan)
    with Spool(None) as spool:
        gathered = _gather(way, stdin, spool)
    _kept(way.settings, gathered)
    _refuse_rejects(place.folder, way.settings, gathered)
    figures = {**gathered.counts, **_told(gathered), "by_file": _by_file(gathered)}
    return Result("prep", "dry run", str(place.folder), figures, [], round(time.monotonic() - started, 1))


@contextmanager
def _spooled(sources: Sequence[str]) -> Iterator[BinaryIO]:
    """stdin, kept so that it can be hashed and then read; empty where it is not a source."""
    if "-" not in sources:
        yield io.BytesIO()
        return
    import shutil

    with tempfile.TemporaryFile() as file:
        with disk_errors(Path(tempfile.gettempdir())):
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield file


def _mark(piece: str) -> str:
    return f"⟦{piece}⟧"
