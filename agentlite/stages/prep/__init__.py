"""Raw rows -> train, dev and test records, rejects with reasons, and counts that add up."""

import hashlib
import io
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from msgspec.structs import replace

from agentlite.config import gpu_profiles, resolve
from agentlite.config.settings import CPU_MODEL, GPU_MODEL, PrepSettings
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.records import Record, canonical, digest
from agentlite.core.row_files import disk_errors, write_rows
from agentlite.data.augment import learnable
from agentlite.data.curation.decontaminate import read_held_out
from agentlite.data.curation.keep import parse_keep
from agentlite.data.curation.replay_buffer import BufferState, find_buffer
from agentlite.data.formats import Raw, RawLine, raw_files, read_lines
from agentlite.data.ingest import Ingested, ingest, read_all, totals
from agentlite.data.ingest_row import (
    IngestContext,
    IngestedRow,
    clean,
    readable,
    reader_options,
)
from agentlite.data.rejects import reject_row
from agentlite.data.tool_catalogue import may_declare, read_catalogue
from agentlite.rendering import choose as choose_protocol
from agentlite.rendering import native_problem
from agentlite.retrieval.offer_tools import counted
from agentlite.stages.prep import check
from agentlite.stages.prep.candidates import (
    ChosenCandidates,
    chosen_candidates,
    in_words,
    inputs_of,
)
from agentlite.stages.prep.select import Selection, SelectionContext, select
from agentlite.stages.prep.write import by_file, happened, write_all
from agentlite.stages.tool_retrieval import digest_of, offers
from agentlite.workspace import run_folder
from agentlite.workspace.digests import file_digest
from agentlite.workspace.model_source import find_model, load_template
from agentlite.workspace.run_folder import Plan, Result, RunTarget

SCORES = "scores of "  # an input of the plan: a file of candidates


class Job(NamedTuple):
    """What is to be prepared: how, from where, and with which buffer of earlier records.
    `candidates`: of each source that is a file of them, those that are learned.
    """

    context: IngestContext
    stdin: BinaryIO
    buffer: BufferState | None
    candidates: Mapping[str, ChosenCandidates] = {}

    @property
    def settings(self) -> PrepSettings:
        return self.context.settings

    def digests(self) -> dict[str, str]:
        """Of every file of rows, now."""
        return _digests(self.settings, self.stdin)

    def rows(self) -> Iterator[IngestedRow]:
        """What became of every row."""
        return read_all(_lines(self), self.context)


def run(settings: PrepSettings, target: RunTarget) -> Result:
    """Prepares the sources. Raises UserError 4 for more rejects than `max_rejects` allows."""
    settings = check.checked(check.with_earlier_stages(settings, target.run))
    with console.stdout_to_stderr(), _kept_stdin(settings.sources) as stdin:
        job, plan = _plan(settings, target, stdin)
        if target.dry_run:
            return _dry_run(_prepared(job, target.run), plan, target)
        if target.has_work(plan):
            check.refuse_missing_packages(settings)
        with run_folder.open_stage(target.folder, plan, force=target.force) as stage:
            if stage.status != "done":
                rejects = stage.folder / "rejects.jsonl"
                try:
                    job = _prepared(job, target.run)
                    with ingest(job.rows(), stage.folder) as ingested:
                        check.refuse_changed(plan.inputs, job.digests())
                        write_rows(rejects, map(reject_row, ingested.rejects))
                        check.refuse_rejects(job.settings, ingested, rejects)
                        check.refuse_unscored(job.settings, ingested)
                        check.note_repairs(ingested)
                        check.name_invalid_schemas(ingested)
                        check.note_undescribed(ingested, len(job.context.catalogue))
                        check.note_for_tests(ingested)
                        selection = _select(job, ingested)
                        check.refuse_nothing_left(ingested, selection, rejects)
                        files, figures = write_all(
                            stage.folder, job.context, ingested, selection, job.buffer
                        )
                    for note in selection.notes:
                        console.notice(note)
                    stage.finish([*files, rejects.name], figures)
                except UserError:
                    stage.fail()
                    raise
            data = "" if target.out == "prep" else f" --data {shlex.quote(target.out)}"
            return stage.result(target.next("agentlite sft" + data))


def key_figure(figures: Mapping[str, object]) -> str:
    """The one line about a finished prep."""
    return f"{figures['kept']} of {figures['read']} rows kept"


def _dry_run(job: Job, plan: Plan, target: RunTarget) -> Result:
    """Everything but the writing."""
    started, rejects = time.monotonic(), target.folder / "rejects.jsonl"
    if not target.force:
        run_folder.compare(target.folder, plan)
    with ingest(job.rows(), None) as ingested:
        check.refuse_changed(plan.inputs, job.digests())
        check.refuse_rejects(job.settings, ingested, rejects)
        check.refuse_unscored(job.settings, ingested)
        check.note_repairs(ingested)
        check.name_invalid_schemas(ingested)
        check.note_undescribed(ingested, len(job.context.catalogue))
        check.note_for_tests(ingested)
        selection = _select(job, ingested)
        check.refuse_nothing_left(ingested, selection, rejects)
    for note in selection.notes:
        console.notice(note)
    figures = {
        **totals(ingested.by_file(selection.ends)),
        **happened(ingested, selection),
        **selection.figures,
        "by_file": by_file(ingested, selection),
    }
    seconds = round(time.monotonic() - started, 1)
    return Result("prep", "dry run", str(target.folder), figures, [], seconds)


# --- the plan ---


def _plan(settings: PrepSettings, target: RunTarget, stdin: BinaryIO) -> tuple[Job, Plan]:
    """The job, and the plan of its folder: the settings, and a digest of each input."""
    name = settings.model or (GPU_MODEL if gpu_profiles.has_gpu() else CPU_MODEL)
    model = find_model(name, target.run, target.begun)
    template = load_template(model.base)
    mixture = choose_protocol(settings.protocol, template, settings.seed)
    if "auto" in settings.protocol and template.takes_tools and (why := native_problem(template)):
        console.notice(
            f"prep: auto takes protocol hermes, since the chat template of {name} itself {why}"
        )
    if template.folds_system:
        console.notice(
            f"prep: the chat template of {name} has no system role: a system turn begins the first "
            "user turn, here and in training, eval, serve and export"
        )
    settings = replace(settings, model=name, protocol=mixture.name)
    inputs = {**_digests(settings, stdin), "model": model.digest}
    rows = "parquet" if settings.rows == "parquet" else "jsonl"
    planned = {**resolve.plan_settings("prep", settings), "rows": rows}
    buffer = None
    for file, name in check.of_candidates(settings, target.run).items():
        inputs[SCORES + file] = inputs_of(run_folder.find_stage(name, target.run))
    if settings.replay:
        buffer = find_buffer(Path(settings.replay), _run_key(planned, inputs))
        inputs["replay"] = buffer.rows
    if settings.retrieve:
        inputs["retriever"] = digest_of(settings, target.run)
    context = IngestContext(settings, template, mixture)
    return Job(context, stdin, buffer), Plan("prep", planned, inputs, run_folder.versions())


def _run_key(settings: Mapping[str, object], inputs: Mapping[str, str]) -> str:
    """What a run is known by in a replay buffer: its settings and the contents of its inputs,
    whatever the names and the order of the files.
    """
    names = ("sources", "holdout", "tools", "replay", "rows")
    chosen = {name: value for name, value in settings.items() if name not in names}
    return digest(canonical([chosen, sorted(inputs.values())]))


def _digests(settings: PrepSettings, stdin: BinaryIO) -> dict[str, str]:
    """Of every file of rows."""
    digests = {source: _digest(source, stdin) for source in settings.sources}
    digests |= {f"tools {file}": _digest(file, stdin) for file in settings.tools}
    return digests | {f"holdout {file}": _digest(file, stdin) for file in settings.holdout}


def _digest(source: str, stdin: BinaryIO) -> str:
    if source == "-":
        stdin.seek(0)
        digest = hashlib.sha256()
        while piece := stdin.read(1 << 20):
            digest.update(piece)
        return digest.hexdigest()
    return ",".join(file_digest(path)[:16] for path in raw_files(source))


# --- what the steps read ---


@contextmanager
def _kept_stdin(sources: Sequence[str]) -> Iterator[BinaryIO]:
    """A copy of stdin, so that it can be hashed and then read; empty where it is not a source."""
    if "-" not in sources:
        yield io.BytesIO()
        return
    with tempfile.TemporaryFile() as file:
        with disk_errors(Path(tempfile.gettempdir())):
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield file


def _prepared(job: Job, run: Path) -> Job:
    """With all that rows are read with, which may take time: candidates, declared tools, tools of a
    retriever.
    """
    keep, stages = parse_keep(job.settings.keep), check.of_candidates(job.settings, run)
    candidates = {file: chosen_candidates(name, keep, run) for file, name in stages.items()}
    return _with_tools(job._replace(candidates=candidates), run)


def _with_tools(job: Job, run: Path) -> Job:
    """With the tools that rows name by ids alone, wherever their declarations stand among the rows;
    and with tools of a retriever for each record, where the user wants them: it loads a model.
    """
    with console.waiting("prep: looking for declarations of tools"):
        catalogue = read_catalogue(job.settings.tools, _declarations(job))
    job = job._replace(context=job.context._replace(catalogue=catalogue))
    if not job.settings.retrieve:
        return job
    chosen = offers(job.settings, run, "added")

    def add_tools(record: Record) -> tuple[Record, Counter[str]]:
        record = chosen.offer(record)
        return record, counted(record)

    return job._replace(context=job.context._replace(add_tools=add_tools))


def _declarations(job: Job) -> Iterator[Raw]:
    for source, line in _lines(job):
        # BFCL's rows are none, and are slow to read twice
        if not source.startswith("bfcl:") and line.error is None and may_declare(line.content):
            yield readable(line, job.settings.repair)[0]


def _lines(job: Job) -> Iterator[tuple[str, RawLine]]:
    """The rows of all sources, each with its source."""
    for source in job.settings.sources:
        job.stdin.seek(0)
        chosen = job.candidates.get(source)
        for line in chosen.lines if chosen else read_lines(source, job.stdin):
            yield source, line


def _select(job: Job, ingested: Ingested) -> Selection:
    """What select() selects, with the figures of the candidates."""
    selection = select(_selection_context(job, ingested))
    for file, chosen in job.candidates.items():
        selection.notes.append(in_words(file, chosen.figures))
        selection.figures.setdefault("candidates", {})[file] = chosen.figures
    return selection


def _selection_context(job: Job, ingested: Ingested) -> SelectionContext:
    settings = job.settings
    with console.waiting("prep: reading the held-out files"):
        # masked as the others are, so that the same question stays the same
        held_out = read_held_out(
            settings.holdout,
            reader_options(settings, job.context.catalogue),
            lambda record: clean(record, settings)[0],
        )
    if held_out.unread:
        console.notice(
            f"prep: {held_out.unread.total()} rows of the held-out files cannot be read: "
            f"{', '.join(sorted(held_out.unread))}"
        )
    return SelectionContext(
        settings,
        ingested,
        held_out,
        job.buffer,
        lambda record: learnable(record, job.context),
    )
