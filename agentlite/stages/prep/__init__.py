"""raw rows -> train, dev and test records, rejects.jsonl with a reason a row, and counts that add
up.
"""

import hashlib
import io
import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from msgspec.structs import replace

from agentlite.config import hardware, resolve
from agentlite.config import settings as config
from agentlite.core import console
from agentlite.core.errors import OTHER_PLAN, REJECTS, UserError, nearest
from agentlite.core.records import SPLITS, Record, canonical, digest, from_row, to_row
from agentlite.core.reject_codes import CODES
from agentlite.core.row_files import (
    Row,
    check_parquet,
    disk_errors,
    find_rows,
    read_rows,
    refuse_unwritable,
    write_json,
    write_rows,
)
from agentlite.data.augment import augmented, augments, learnable
from agentlite.data.curation.coreset import LOSSES, STRATEGIES, Coreset, coreset, proxy_loss
from agentlite.data.curation.decontaminate import HeldOut, check_held_out, leaks, read_held_out
from agentlite.data.curation.dedup import near_text
from agentlite.data.curation.fingerprints import dialog_text
from agentlite.data.curation.loss_cache import all_losses, losses_file
from agentlite.data.curation.mix import check_task_weights, parse_mix
from agentlite.data.curation.replay_buffer import (
    BufferState,
    add_to_buffer,
    buffer_rows,
    find_buffer,
    replayed,
)
from agentlite.data.curation.select import End, Selection, check_duplicates, choose
from agentlite.data.curation.split import assign_splits
from agentlite.data.curation.stats import Sized, statistics
from agentlite.data.curation.traits import Traits, traits
from agentlite.data.formats import RawLine, check_format, files_of, raw_files, read_lines
from agentlite.data.formats.json_repair import WAYS
from agentlite.data.ingest import ENDS, Ingested, Spool, gather, ways_of
from agentlite.data.ingest_row import IngestContext, changed, measure, told
from agentlite.data.rejects import Edits, Reject, edited_rows, reject_row
from agentlite.engine import check_libraries
from agentlite.rendering import choose as choose_protocol
from agentlite.rendering import encoding, renderer, settled
from agentlite.retrieval.offer_tools import counted
from agentlite.stages.tool_retrieval import check_packages, digest_of, offers
from agentlite.workspace import run_folder
from agentlite.workspace.digests import cache_folder, file_digest
from agentlite.workspace.model_source import Source, find_model, load_template
from agentlite.workspace.run_folder import Plan, Result, RunTarget

# how it is done, not what comes out
NOT_OF_THE_PLAN = ("workers",)
UNKNOWN = ("E104", "E105")  # nobody knows how many rows such a reject stands for
# settings that do nothing without another one
IDLE = {
    "coreset_loss": "coreset_strategy",
    "coreset_model": "coreset_strategy",
    "continual_buffer_size": "replay",
    "continual_replay_ratio": "replay",
    "join_tokens": "join",
    "retrieve_by": "retrieve",
    "retriever": "retrieve",
}


class Job(NamedTuple):
    """What is to be prepared: how, from where, with which buffer of earlier records. `model`: whose
    losses count.
    """

    way: IngestContext
    stdin: BinaryIO
    buffer: BufferState | None
    model: Source

    @property
    def settings(self) -> config.PrepSettings:
        return self.way.settings


def run(settings: config.PrepSettings, target: RunTarget) -> Result:
    """Prepares the sources. Raises UserError 4 if more rows are rejected than `max_rejects`
    allows.
    """
    settings = replace(settings, sources=_sources(settings.sources))
    _refuse_mistakes(settings)
    held_out = _sources(settings.holdout) if settings.holdout else ()
    settings = replace(settings, holdout=tuple(check_held_out(held_out, settings.sources)))
    if settings.retry_rejects and Path(settings.retry_rejects).resolve().is_relative_to(
        target.folder.resolve()
    ):
        raise UserError(
            "is in the folder that is written anew.",
            "Copy it elsewhere, and add --out NAME to keep both.",
            location=settings.retry_rejects,
        )
    with console.stdout_to_stderr(), _spooled(settings.sources) as stdin:
        job, plan = _plan(settings, target, stdin)
        if target.dry_run:
            return _dry_run(_with_offers(job, target.run), plan, target)
        if target.has_work(plan):
            _check_packages(settings)
        with run_folder.open_stage(target.folder, plan, force=target.force) as stage:
            if stage.status != "done":
                _fill_or_fail(stage, _with_offers(job, target.run))
            return stage.result(
                target.next(
                    "agentlite sft" + ("" if target.out == "prep" else f" --data {target.out}")
                )
            )


def key_figure(figures: Mapping[str, Any]) -> str:
    return f"{figures['kept']} of {figures['read']} rows kept"


def _with_offers(job: Job, run: Path) -> Job:
    """With what brings tools, where that is asked for: a model is loaded for it."""
    if not job.settings.retrieve:
        return job
    chosen = offers(job.settings, run, "added")

    def add_tools(record: Record) -> tuple[Record, Counter[str]]:
        record = chosen.one(record)
        return record, counted(record)

    return job._replace(way=job.way._replace(add_tools=add_tools))


def shown(folder: Path, count: int) -> Iterator[str]:
    """The first training records of a finished prep, rendered, the trained tokens between ⟦ and
    ⟧.
    """
    plan = run_folder.read_plan(folder)
    template = load_template(find_model(plan.settings["model"], folder.parent).base)
    mixture = settled(plan.settings["protocol"], template)
    rows = (row for split in SPLITS for row in read_rows(find_rows(folder, split)))
    for _, row in zip(range(count), rows, strict=False):
        record = from_row(row)
        protocol = mixture.of(record)
        yield f"── {record.id}  {record.source}  {record.task}  {record.split}  {protocol.name}"
        for rendered in renderer.render(record, protocol, template):
            yield encoding.show(rendered, _mark)


def stored(folder: Path) -> Iterator[dict[str, Any]]:
    """The records of a finished prep, for `--rows -`."""
    for split in SPLITS:
        yield from read_rows(find_rows(folder, split))


def _sources(given: Sequence[str]) -> tuple[str, ...]:
    """`bfcl:simple_python,multiple` is two sources; a folder is the files in it."""
    if not given:
        fix = "agentlite prep dialogs.jsonl, or - for stdin, or bfcl:multiple."
        raise UserError("no SOURCE is given.", fix, location="prep.sources")
    found: list[str] = []
    for source in given:
        scheme, colon, rest = source.partition(":")
        found += (
            [f"bfcl:{part}" for part in rest.split(",")]
            if colon and scheme == "bfcl"
            else files_of(source)
        )
    return tuple(found)


def _refuse_mistakes(settings: config.PrepSettings) -> None:
    if settings.format != "auto":
        check_format(settings.format)
    for way in settings.repair:
        if way not in WAYS:
            raise UserError(
                f"no way to repair is called '{way}'.", nearest(way, WAYS), location="--repair"
            )
    check_duplicates(settings.duplicates)
    check_task_weights(settings.task_weights)
    parse_mix(settings.mix)
    strategy, size = settings.coreset_strategy, settings.coreset_target_size
    if strategy and strategy not in STRATEGIES:
        raise UserError(
            f"no strategy is called '{strategy}'.",
            nearest(strategy, STRATEGIES),
            location="prep.coreset_strategy",
        )
    if bool(strategy) != bool(size):
        lacking = "coreset_target_size=500" if strategy else "coreset_strategy=hybrid"
        raise UserError(
            "a coreset needs a strategy and a size.",
            f"Add --set prep.{lacking}.",
            location="prep.coreset",
        )
    for name, other in IDLE.items():
        if not _is_default(settings, name) and _is_default(settings, other):
            console.notice(f"prep: {name} does nothing without {other}")
    if (
        not _is_default(settings, "near")
        and "near" not in settings.duplicates
        and not settings.holdout
    ):
        console.notice("prep: near does nothing without --duplicates near or --holdout")


def _check_packages(settings: config.PrepSettings) -> None:
    """Raises UserError 5 or 74 before a row is read."""
    if settings.rows == "parquet":
        check_parquet()
    if settings.coreset_strategy in LOSSES and settings.coreset_loss == "model":
        check_libraries("unsloth")
    if settings.retrieve:
        check_packages(settings)
    if settings.replay:
        refuse_unwritable(Path(settings.replay))


def _is_default(settings: config.PrepSettings, name: str) -> bool:
    return bool(getattr(settings, name) == config.default("prep", name))


def _plan(settings: config.PrepSettings, target: RunTarget, stdin: BinaryIO) -> tuple[Job, Plan]:
    name = settings.model or (config.GPU_MODEL if hardware.has_gpu() else config.CPU_MODEL)
    model = find_model(name, target.run)
    template = load_template(model.base)
    mixture = choose_protocol(settings.protocol, template, settings.seed)
    settings = replace(settings, model=name, protocol=mixture.name)
    inputs = _digests(settings, stdin)
    coreset_model = (
        find_model(settings.coreset_model, target.run) if settings.coreset_model else model
    )
    if coreset_model.base != model.base:
        raise UserError(
            f"is made of {coreset_model.base}, and the rows are tokens of {model.base}.",
            f"Name {model.base} or an adapter of it.",
            location="--coreset-model",
        )
    inputs |= {"coreset_model": coreset_model.digest} if settings.coreset_model else {}
    stored_as = "parquet" if settings.rows == "parquet" else "jsonl"
    kept = {**resolve.plain_settings(settings, NOT_OF_THE_PLAN), "rows": stored_as}
    inputs = {**inputs, "model": model.digest}
    buffer = find_buffer(Path(settings.replay), _key(kept, inputs)) if settings.replay else None
    inputs |= {"replay": buffer.rows} if buffer else {}
    inputs |= {"retriever": digest_of(settings, target.run)} if settings.retrieve else {}
    job = Job(IngestContext(settings, template, mixture), stdin, buffer, coreset_model)
    return job, Plan("prep", kept, inputs, run_folder.versions())


def _key(settings: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """What a run is known by in a buffer: what was asked and given, whatever the names and the
    order of the files.
    """
    asked = {
        name: value
        for name, value in settings.items()
        if name not in ("sources", "holdout", "replay", "rows")
    }
    return digest(canonical([asked, sorted(inputs.values())]))


def _held_out(settings: config.PrepSettings) -> HeldOut:
    """Changed as the other records are, so that what was masked there is masked here; none is
    dropped.
    """
    if not settings.holdout:
        return HeldOut([], [], Counter())
    how = replace(settings, personal="off" if settings.personal == "drop" else settings.personal)
    found = read_held_out(settings.holdout, told(settings), lambda record: changed(record, how, {}))
    if found.unread:
        console.notice(
            f"prep: {found.unread.total()} rows of the held-out files cannot be read: "
            f"{', '.join(sorted(found.unread))}"
        )
    return found


def _digests(settings: config.PrepSettings, stdin: BinaryIO) -> dict[str, str]:
    """Of every file of rows."""
    found = {source: _digest(source, stdin) for source in settings.sources}
    if settings.retry_rejects:
        found["retry_rejects"] = ",".join(
            file_digest(path) for path in raw_files(settings.retry_rejects)
        )
    return found | {f"holdout {source}": _digest(source, stdin) for source in settings.holdout}


def _refuse_changed(job: Job, plan: Plan) -> None:
    """What was read must be what the plan says, and not half of one file and half of another.
    Raises UserError 3.
    """
    for name, found in _digests(job.settings, job.stdin).items():
        if found != plan.inputs[name]:
            raise UserError(
                "was changed while it was read.",
                "Run the same command again, once nobody writes to it.",
                location=name,
                exit_code=OTHER_PLAN,
            )


def _digest(source: str, stdin: BinaryIO) -> str:
    if source == "-":
        stdin.seek(0)
        digest = hashlib.sha256()
        while piece := stdin.read(1 << 20):
            digest.update(piece)
        return digest.hexdigest()
    return ",".join(file_digest(path)[:16] for path in raw_files(source))


def _fill_or_fail(stage: run_folder.StageFolder, job: Job) -> None:
    try:
        with Spool(stage.folder) as spool, Spool(stage.folder) as ways:
            gathered = gather(_lines(job), job.way, spool, ways)
            _refuse_changed(job, stage.plan)
            _fill(stage, job, gathered)
    except UserError:
        stage.fail()
        raise


def _fill(stage: run_folder.StageFolder, job: Job, gathered: Ingested) -> None:
    with console.waiting(
        f"prep: looking for copies and leaks among {len(gathered.traits)} records"
    ):
        choice = _chosen(job, gathered)
    write_rows(stage.folder / "rejects.jsonl", map(reject_row, gathered.rejects))
    _refuse_rejects(stage.folder, job.settings, gathered, choice)
    with console.waiting(f"prep: splitting {len(choice.kept)} records"):
        sides, groups = _splits(job.settings, choice)
    figures = _take_coreset(job, gathered, choice, sides) | choice.told
    gathered.tally(choice.ends)
    train = [index for index, side in sides.items() if side == "train"]
    again = _again(job, gathered, choice, sides) if job.buffer else []
    made: dict[str, Counter[str]] = {}
    with console.waiting(f"prep: writing {len(sides)} records"):
        files, written = _write_splits(stage.folder, job, gathered, sides, again, made)
    figures |= {"made": {kind: dict(counts) for kind, counts in made.items()}} if made else {}
    write_rows(
        stage.folder / "ways.jsonl",
        chain(ways_of(gathered, choice.ends, sides), map(_replayed_way, again)),
    )
    files += _write_cuts(stage.folder, gathered.cuts)
    if job.buffer:
        figures |= {"replayed": len(again), "buffer": _add_to_buffer(job, gathered, train)}
    trained = [sized for traits, sized in written if traits.split == "train"]
    counts = Counter(sides.values())
    figures = {
        **gathered.counts,
        **{split: counts[split] for split in SPLITS},
        "groups": groups,
        "new_tools": _new_tools(gathered, sides),
        "train_rows": len(trained),
        "trained_tokens": sum(sized.trained for sized in trained),
        **_told(gathered),
        **figures,
        **statistics(*map(list, zip(*written, strict=True))),
        "by_file": _by_file(gathered),
    }
    for note in choice.notes:
        console.notice(note)
    write_json(stage.folder / "stats.json", {**figures, "notes": choice.notes})
    stage.finish([*files, "rejects.jsonl", "ways.jsonl", "stats.json"], figures)


def _chosen(job: Job, gathered: Ingested) -> Selection:
    choice = Selection(
        job.settings,
        gathered.traits,
        gathered.sources,
        gathered.sketches,
        lambda index: near_text(gathered.record(index)),
        _held_out(job.settings),
    )
    choose(choice)
    return choice


def _splits(settings: config.PrepSettings, choice: Selection) -> tuple[dict[int, str], int]:
    """The side of each record that stays, and how many groups there are. Leaves out what reaches
    over two sides.
    """
    here = choice.here
    found = assign_splits(
        here, dev=settings.dev, test=settings.test, seed=settings.seed, by=settings.split_by
    )
    sides = dict(zip(choice.kept, found.splits, strict=True))
    choice.leave_out(
        {place: End("F332", here[stays].id) for place, stays in found.crossing.items()}
        | {place: End("F333") for place in found.torn}
    )
    choice.notes += found.notes
    return {index: sides[index] for index in choice.kept}, found.groups


def _new_tools(gathered: Ingested, sides: Mapping[int, str]) -> int:
    """How many test records call none of the tools that are called in training."""
    called = {
        name
        for index, side in sides.items()
        if side == "train"
        for name in gathered.traits[index].tools
    }
    tools = [gathered.traits[index].tools for index, side in sides.items() if side == "test"]
    return sum(bool(names) and called.isdisjoint(names) for names in tools)


def _take_coreset(job: Job, gathered: Ingested, choice: Selection, sides: dict[int, str]) -> Row:
    """Leaves the train records out that the coreset does not choose. Returns what it chose by
    what.
    """
    if not job.settings.coreset_strategy:
        return {}
    train = [index for index, side in sides.items() if side == "train"]
    found = _coreset(job, gathered, train)
    choice.notes += found.notes
    for index in {*train} - {train[place] for place in found.chosen}:
        choice.ends[index] = End("F341")
        del sides[index]
    return {"coreset": found.counts}


def _coreset(job: Job, gathered: Ingested, train: Sequence[int]) -> Coreset:
    settings = job.settings
    chooses = settings.coreset_strategy in LOSSES and (settings.coreset_target_size or 0) < len(
        train
    )
    losses = _losses(job, gathered, train) if chooses else None
    return coreset(
        [gathered.traits[index].id for index in train],
        strategy=settings.coreset_strategy,
        target=settings.coreset_target_size,
        seed=settings.seed,
        losses=losses,
        text=lambda place: dialog_text(gathered.record(train[place])),
    )


def _losses(job: Job, gathered: Ingested, train: Sequence[int]) -> dict[str, float]:
    """By the model, each computed once on this machine; or the proxy."""
    way, places = job.way, {gathered.traits[index].id: index for index in train}
    if job.settings.coreset_loss == "proxy":
        return {
            record_id: proxy_loss(gathered.record(index)) for record_id, index in places.items()
        }
    from agentlite.engine.load import Loading
    from agentlite.engine.record_losses import record_losses

    def rows(record_id: str) -> Any:
        record = gathered.record(places[record_id])
        return encoding.training_rows(record, way.mixture.of(record), way.template)

    seed = (
        job.settings.seed if len(way.mixture.protocols) > 1 else 0
    )  # it decides who is rendered how
    key = digest(canonical([job.model.digest, way.mixture.name, way.template.name, seed]))
    loading = Loading(engine="unsloth", max_length=job.settings.max_length)
    return all_losses(
        losses_file(cache_folder() / "losses", key),
        list(places),
        lambda ids: record_losses(ids, rows, job.model, loading),
    )


def _again(job: Job, gathered: Ingested, choice: Selection, sides: Mapping[int, str]) -> list[Row]:
    """Rows of the buffer to learn again, changed as others are: none that was read here, whatever
    became of it, none that gives away what is held out or asked in dev or test, and none that does
    not fit any more.
    """
    assert job.buffer
    records = [
        record for row in buffer_rows(job.buffer) if (record := learnable(from_row(row), job.way))
    ]
    asked = [gathered.traits[index] for index, side in sides.items() if side != "train"]
    leaking = leaks(
        [traits(record) for record in records],
        [*choice.held_out.traits, *asked],
        threshold=job.settings.near,
    )
    free = [to_row(record) for index, record in enumerate(records) if index not in leaking]
    count = list(sides.values()).count("train")
    rows = replayed(
        free,
        {one.id for one in gathered.traits},
        count,
        ratio=job.settings.continual_replay_ratio,
        seed=job.settings.seed,
        buffer=job.buffer.rows,
    )
    wanted = math.floor(count * job.settings.continual_replay_ratio)
    if len(rows) < wanted:
        choice.notes.append(
            f"replay: {wanted} rows asked for, the buffer has {len(rows)} that may be learned here"
        )
    return rows


def _replayed_way(row: Row) -> Row:
    return {
        "id": row["id"],
        "place": "the buffer",
        "format": "agentlite",
        "end": "kept",
        "split": "train",
    }


def _add_to_buffer(job: Job, gathered: Ingested, train: Sequence[int]) -> int:
    """The number of rows that it has then."""
    assert job.buffer
    ids = [gathered.traits[index].id for index in train]
    return add_to_buffer(
        job.buffer,
        ids,
        lambda place: next(gathered.spool.rows([train[place]])),
        capacity=job.settings.continual_buffer_size,
        seed=job.settings.seed,
    ).rows


def _write_splits(
    folder: Path,
    job: Job,
    gathered: Ingested,
    sides: Mapping[int, str],
    again: Sequence[Row],
    made: dict[str, Counter[str]],
) -> tuple[list[str], list[tuple[Traits, Sized]]]:
    """The files, and what was written to them. `made`: see augmented."""
    suffix = "parquet" if job.settings.rows == "parquet" else "jsonl"
    written: list[tuple[Traits, Sized]] = []
    for split in SPLITS:
        here = [index for index, side in sides.items() if side == split]
        rows: Iterator[Row] = ({**row, "split": split} for row in gathered.spool.rows(here))
        if split == "train" and (again or augments(job.settings)):
            records = augmented(
                [from_row({**row, "split": split}) for row in (*rows, *again)], job.way, made
            )
            rows = map(to_row, records)
            written += [(traits(record), measure(record, job.way)) for record in records]
        else:
            for index in here:
                gathered.traits[index] = gathered.traits[index]._replace(split=split)
            written += [(gathered.traits[index], gathered.sizes[index]) for index in here]
        write_rows(folder / f"{split}.{suffix}", rows)
    return [f"{split}.{suffix}" for split in SPLITS], written


def _write_cuts(folder: Path, cuts: list[Row]) -> list[str]:
    """The ledger is there only where something was cut."""
    if cuts:
        write_rows(folder / "cuts.jsonl", cuts)
    return ["cuts.jsonl"] if cuts else []


def _told(gathered: Ingested) -> dict[str, Any]:
    """What is told only where it happened."""
    told: dict[str, Any] = {
        "rejects": dict(Counter(reject.code for reject in gathered.rejects).most_common()),
        "left_out": dict((+gathered.left_out).most_common()),
        "cut": len(gathered.cuts),
        "repaired": dict(gathered.repaired),
        "personal": dict(gathered.personal),
        "retrieved": dict(gathered.retrieved),
    }
    return {name: value for name, value in told.items() if value}


def _by_file(gathered: Ingested) -> dict[str, dict[str, Any]]:
    return {
        source: {
            "formats": dict(gathered.formats[source]),
            **{end: counts[end] for end in ("read", *ENDS.values())},
        }
        for source, counts in gathered.by_file.items()
    }


def _lines(job: Job) -> Iterator[tuple[str, RawLine]]:
    """The rows of all sources, edited where that is asked for, each with its source."""
    settings, stdin = job.settings, job.stdin
    edits = Edits(edited_rows(Path(settings.retry_rejects)) if settings.retry_rejects else {})
    for source in settings.sources:
        stdin.seek(0)
        for line in read_lines(source, stdin):
            yield source, edits(line)
    if unused := list(edits.unused()):
        raise UserError(
            f"no source has {unused[0]}.",
            "Name the sources as they were named when it was rejected.",
            location=settings.retry_rejects,
        )


def _refuse_rejects(
    folder: Path, settings: config.PrepSettings, gathered: Ingested, choice: Selection
) -> None:
    rejected, read = (
        len(gathered.rejects),
        sum(counts["read"] for counts in gathered.by_file.values()),
    )
    for line in _reject_lines(gathered.rejects):
        console.notice(line)
    file = str(folder / "rejects.jsonl")
    if settings.max_rejects < 1 and (
        rest := [one for one in gathered.rejects if one.code in UNKNOWN]
    ):
        fix = "Fetch or mend the file; or take what was read of it: --max-rejects 1."
        raise UserError(
            f"{rest[0].reason}: rows may be missing.",
            fix,
            location=rest[0].place,
            exit_code=REJECTS,
        )
    if rejected > 1 and rejected > settings.max_rejects * read:
        fix = f"Mend them, or allow more: --max-rejects {min(1.0, rejected / read + 0.005):.2f}."
        raise UserError(
            f"{rejected} of {read} rows rejected, {settings.max_rejects:.0%} allowed.",
            fix,
            location=file,
            exit_code=REJECTS,
        )
    if not choice.kept:
        left_out = gathered.left_out + Counter(end.code for end in choice.ends.values())
        if not left_out:
            raise UserError(
                f"no row left of {read} read.",
                "The reasons are in that file.",
                location=file,
                exit_code=REJECTS,
            )
        codes = ", ".join(f"{code} {count}" for code, count in left_out.most_common())
        raise UserError(
            f"no row left of {read} read: {rejected} rejected, {codes}.",
            CODES[left_out.most_common(1)[0][0]].hint,
            exit_code=REJECTS,
        )


def _reject_lines(rejects: Sequence[Reject]) -> list[str]:
    """One line a kind, with the first place and how many more."""
    first: dict[str, Reject] = {}
    for reject in rejects:
        first.setdefault(reject.code, reject)
    counts = Counter(reject.code for reject in rejects)
    return [
        f"{reject.place}: {code} {reject.reason}"
        + (f"  [+{counts[code] - 1} more]" if counts[code] > 1 else "")
        for code, reject in first.items()
    ]


def _dry_run(job: Job, plan: Plan, target: RunTarget) -> Result:
    """Everything but the writing, and what needs a model: the coreset."""
    started = time.monotonic()
    if not target.force:
        run_folder.compare(target.folder, plan)
    with Spool(None) as spool, Spool(None) as ways:
        gathered = gather(_lines(job), job.way, spool, ways)
        _refuse_changed(job, plan)
        choice = _chosen(job, gathered)
    _refuse_rejects(target.folder, job.settings, gathered, choice)
    _splits(job.settings, choice)
    gathered.tally(choice.ends)
    if job.settings.coreset_strategy:
        choice.notes.append(
            f"of the train records, the coreset will choose {job.settings.coreset_target_size}: "
            "not tried here, since it may take a model"
        )
    for note in choice.notes:
        console.notice(note)
    figures = {**gathered.counts, **_told(gathered), **choice.told, "by_file": _by_file(gathered)}
    return Result(
        "prep", "dry run", str(target.folder), figures, [], round(time.monotonic() - started, 1)
    )


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
