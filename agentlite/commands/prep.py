"""raw rows -> train, dev and test records, rejects.jsonl with a reason a row, and counts that add up."""

import base64
import hashlib
import io
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from msgspec.structs import replace

from agentlite import config, console, stages
from agentlite.curation.duplicates import drop_duplicates
from agentlite.curation.joining import add_distractors, join_dialogs
from agentlite.curation.sample import sample
from agentlite.curation.split import assign_splits
from agentlite.curation.validate import validate
from agentlite.errors import REJECTS, RowError, UserError
from agentlite.protocols import PROTOCOLS, Protocol, choose, rendering
from agentlite.records import SPLITS, Record, from_row, to_row
from agentlite.rows import disk_errors, find_rows, read_rows, write_json, write_rows
from agentlite.sources import Raw, raw_files, read_raw, to_record
from agentlite.stages import Place, Plan, Result
from agentlite.templates import Source, Template, find_model, load_template


class Reject(NamedTuple):
    raw: Raw
    error: RowError


class Sized(NamedTuple):
    """Tokens of a record's training rows: all, trained, and those of the longest row."""

    tokens: int
    trained: int
    longest: int


class Gathered(NamedTuple):
    """Everything that was read, and what became of it."""

    read: int
    kept: list[Record]
    rejects: list[Reject]
    duplicates: int
    filtered: int


class Way(NamedTuple):
    """How records become text: fixed once, at prep."""

    settings: config.Prep
    model: Source
    template: Template
    protocol: Protocol


def run(settings: config.Prep, place: Place) -> Result:
    """Prepares the sources. Raises UserError 4 if more rows are rejected than `max_rejects` allows."""
    settings = replace(settings, sources=_sources(settings.sources))
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
    protocol = PROTOCOLS[plan.settings["protocol"]].for_template(template)
    rows = (row for split in SPLITS for row in read_rows(find_rows(folder, split)))
    for _, row in zip(range(count), rows, strict=False):
        record = from_row(row)
        yield f"── {record.id}  {record.source}  {record.task}  {record.split}"
        for rendered in rendering.render(record, protocol, template):
            yield rendering.show(rendered, _mark)


def stored(folder: Path) -> Iterator[dict[str, Any]]:
    """The records of a finished prep, for `--rows -`."""
    for split in SPLITS:
        yield from read_rows(find_rows(folder, split))


def _sources(given: Sequence[str]) -> tuple[str, ...]:
    """`bfcl:simple_python,multiple` is two sources."""
    if not given:
        fix = "agentlite prep dialogs.jsonl, or - for stdin, or bfcl:multiple."
        raise UserError("no SOURCE is given.", fix, place="prep.sources")
    found: list[str] = []
    for source in given:
        scheme, colon, rest = source.partition(":")
        found += [f"bfcl:{part}" for part in rest.split(",")] if colon and scheme == "bfcl" else [source]
    return tuple(found)


def _plan(settings: config.Prep, place: Place, stdin: BinaryIO) -> tuple[Way, Plan]:
    name = settings.model or (config.GPU_MODEL if config.has_gpu() else config.CPU_MODEL)
    model = find_model(name, place.run)
    template = load_template(model.base)
    protocol = choose(settings.protocol, template)
    settings = replace(settings, model=name, protocol=protocol.name)
    inputs = {source: _digest(source, stdin) for source in settings.sources}
    stored_as = "parquet" if settings.rows == "parquet" else "jsonl"
    kept = {**config.plain_settings(settings), "rows": stored_as}
    plan = Plan("prep", kept, {**inputs, "model": model.digest}, stages.versions())
    return Way(settings, model, template, protocol), plan


def _digest(source: str, stdin: BinaryIO) -> str:
    if source == "-":
        stdin.seek(0)
        return hashlib.sha256(stdin.read()).hexdigest()
    return ",".join(stages.file_digest(path)[:16] for path in raw_files(source))


def _fill_or_fail(stage: stages.Stage, way: Way, stdin: BinaryIO) -> None:
    try:
        _fill(stage, way, stdin)
    except UserError:
        stage.fail()
        raise


def _fill(stage: stages.Stage, way: Way, stdin: BinaryIO) -> None:
    gathered, sizes = _gather(way, stdin)
    counts = _counts(gathered)
    write_rows(stage.folder / "rejects.jsonl", [_reject_row(reject) for reject in gathered.rejects])
    _refuse_rejects(stage.folder, way.settings, gathered)
    splits = assign_splits(gathered.kept, dev=way.settings.dev, test=way.settings.test, seed=way.settings.seed,
                           by=way.settings.split_by)  # fmt: skip
    for note in splits.notes:
        console.notice(note)
    records = [replace(record, split=split) for record, split in zip(gathered.kept, splits.splits, strict=True)]
    rows = {split: [record for record in records if record.split == split] for split in SPLITS}
    in_splits = {split: len(rows[split]) for split in SPLITS}
    rows["train"] = _augmented(rows["train"], way, sizes)
    written = [record for split in SPLITS for record in rows[split]]
    measured = [sizes.get(record.id) or measure(record, way.protocol, way.template) for record in written]
    suffix = "parquet" if way.settings.rows == "parquet" else "jsonl"
    files = [f"{split}.{suffix}" for split in SPLITS]
    for split, file in zip(SPLITS, files, strict=True):
        write_rows(stage.folder / file, [to_row(record) for record in rows[split]])
    figures = {**counts, **in_splits, "groups": splits.groups, "train_rows": len(rows["train"]),
               "trained_tokens": sum(size.trained for size in measured[: len(rows["train"])])}  # fmt: skip
    statistics = _statistics(gathered, records, measured)
    write_json(stage.folder / "stats.json", {**figures, **statistics, "notes": splits.notes})
    stage.finish([*files, "rejects.jsonl", "stats.json"], figures)


def _gather(way: Way, stdin: BinaryIO) -> tuple[Gathered, dict[str, Sized]]:
    """Reads every row; each ends kept, rejected, as a duplicate, or filtered. Sizes by record id."""
    rejects: list[Reject] = []
    records: list[Record] = []
    sizes: dict[str, Sized] = {}
    read = filtered = 0
    started = time.monotonic()
    for raw, source in _raw_rows(way.settings, stdin):
        read += 1
        try:
            record = _record(raw, source, way.settings)
            sizes[record.id] = size = measure(record, way.protocol, way.template)
            if size.longest > way.settings.max_length and way.settings.long_rows == "filter":
                filtered += 1
                continue
            _refuse_long(size, way.settings.max_length)
            records.append(record)
        except RowError as error:
            rejects.append(Reject(raw, error))
        if time.monotonic() - started > console.EVERY_SECONDS:
            started = time.monotonic()
            console.notice(f"prep: {read} rows read")
    unique, twins = drop_duplicates(records)
    chosen = sample(unique, way.settings.limit, way.settings.seed)
    filtered += len(unique) - len(chosen)
    kept = [unique[index] for index in chosen]
    return Gathered(read, kept, rejects, len(twins), filtered), sizes


def _raw_rows(settings: config.Prep, stdin: BinaryIO) -> Iterator[tuple[Raw, str]]:
    for source in settings.sources:
        stdin.seek(0)
        for raw in read_raw(source, stdin):
            yield raw, source


def _record(raw: Raw, source: str, settings: config.Prep) -> Record:
    if raw.error:
        raise raw.error
    name = None if settings.format == "auto" else settings.format
    record = to_record(raw.value, name, no_call_answer=settings.no_call_answer)
    validate(record)
    return replace(record, source=record.source or ("stdin" if source == "-" else Path(source).name))


def measure(record: Record, protocol: Protocol, template: Template) -> Sized:
    """Renders, reads back and masks a record. Raises RowError if any of it fails."""
    rows = rendering.render(record, protocol, template)
    rendering.check_reading(record, rows, protocol, template)
    encoded = rendering.training_rows(record, protocol, template)
    trained = sum(label != rendering.IGNORED for row in encoded for label in row.labels)
    return Sized(sum(len(row.input_ids) for row in encoded), trained, max(len(row.input_ids) for row in encoded))


def _refuse_long(size: Sized, max_length: int) -> None:
    if size.longest > max_length:
        reason = (
            f"{size.longest} tokens, max_length is {max_length}: raise it, or --long-rows filter leaves such rows out"
        )
        raise RowError("E217", reason)


def _augmented(train: list[Record], way: Way, sizes: dict[str, Sized]) -> list[Record]:
    """Train rows with foreign tools, and several in a dialog; one that would get too long stays as it was."""
    settings = way.settings
    if settings.distractors:
        train = _fitting(add_distractors(train, n=settings.distractors, seed=settings.seed), train, way, sizes)
    if settings.join > 1:
        room = settings.join_tokens or settings.max_length
        train = join_dialogs(train, k=settings.join, seed=settings.seed,
                             fits=lambda slot: sum(sizes[one.id].tokens for one in slot) <= room)  # fmt: skip
    return [replace(record, split="train") for record in train]


def _fitting(changed: Sequence[Record], originals: Sequence[Record], way: Way, sizes: dict[str, Sized]) -> list[Record]:
    """Each changed record, or the original where the changed one is too long. Adds to `sizes`."""
    sizes |= {record.id: measure(record, way.protocol, way.template) for record in changed}
    room = way.settings.max_length
    return [new if sizes[new.id].longest <= room else old for new, old in zip(changed, originals, strict=True)]


def _refuse_rejects(folder: Path, settings: config.Prep, gathered: Gathered) -> None:
    rejected, read = len(gathered.rejects), gathered.read
    for line in _reject_lines(gathered.rejects):
        console.notice(line)
    file = str(folder / "rejects.jsonl")
    if rejected > 1 and rejected > settings.max_rejects * read:
        fix = f"Mend them, or allow more: --max-rejects {min(1.0, rejected / read + 0.005):.2f}."
        raise UserError(f"{rejected} of {read} rows rejected, {settings.max_rejects:.0%} allowed.", fix, place=file,
                        exit_code=REJECTS)  # fmt: skip
    if not gathered.kept:
        raise UserError(f"no row left of {read} read.", "The reasons are in that file.", place=file, exit_code=REJECTS)


def _reject_lines(rejects: Sequence[Reject]) -> list[str]:
    """One line a kind, with the first place and how many more."""
    first: dict[str, Reject] = {}
    for reject in rejects:
        first.setdefault(reject.error.code, reject)
    counts = Counter(reject.error.code for reject in rejects)
    return [
        f"{reject.raw.place}: {code} {reject.error.reason}"
        + (f"  [+{counts[code] - 1} more]" if counts[code] > 1 else "")
        for code, reject in first.items()
    ]


def _reject_row(reject: Reject) -> dict[str, str]:
    row = {"place": reject.raw.place, "code": reject.error.code, "reason": reject.error.reason}
    try:
        return {**row, "raw": reject.raw.content.decode("utf-8")}
    except UnicodeDecodeError:
        return {**row, "raw_base64": base64.b64encode(reject.raw.content).decode("ascii")}


def _counts(gathered: Gathered) -> dict[str, int]:
    counts = {"read": gathered.read, "kept": len(gathered.kept), "rejected": len(gathered.rejects),
              "duplicates": gathered.duplicates, "filtered": gathered.filtered}  # fmt: skip
    assert counts["read"] == sum(list(counts.values())[1:]), counts
    return counts


def _statistics(gathered: Gathered, records: Sequence[Record], sizes: Sequence[Sized]) -> dict[str, Any]:
    tokens, trained = sum(size.tokens for size in sizes), sum(size.trained for size in sizes)
    return {
        "by_source": Counter(record.source for record in records),
        "by_task": Counter(record.task for record in records),
        "by_reject": Counter(reject.error.code for reject in gathered.rejects),
        "tokens": {"all": tokens, "trained": trained, "longest_row": max(size.longest for size in sizes)},
    }


def _dry_run(way: Way, plan: Plan, place: Place, stdin: BinaryIO) -> Result:
    """Everything but the writing."""
    started = time.monotonic()
    if not place.force:
        stages.compare(place.folder, plan)
    gathered, _ = _gather(way, stdin)
    _refuse_rejects(place.folder, way.settings, gathered)
    return Result("prep", "dry run", str(place.folder), _counts(gathered), [], round(time.monotonic() - started, 1))


@contextmanager
def _spooled(sources: Sequence[str]) -> Iterator[BinaryIO]:
    """stdin, kept so that it can be hashed and then read; empty where it is not a source."""
    if "-" not in sources:
        yield io.BytesIO()
        return
    import shutil
    import tempfile

    with tempfile.TemporaryFile() as file:
        with disk_errors(Path(tempfile.gettempdir())):
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield file


def _mark(piece: str) -> str:
    return f"⟦{piece}⟧"
