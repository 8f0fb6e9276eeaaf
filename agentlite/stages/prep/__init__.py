"""Raw rows -> train, dev and test records, rejects with reasons, and counts that add up.

Rows are read, checked, selected and written.
"""

import hashlib
import io
import shlex
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from agentlite.config import this_machine
from agentlite.config.settings import CPU_MODEL, GPU_MODEL, PrepSettings
from agentlite.core import console
from agentlite.core.conditions import parse_keep, refuse_unknown
from agentlite.core.records import Record, canonical, digest
from agentlite.core.row_files import disk_errors, write_rows
from agentlite.data.curation.coreset import BufferState, find_buffer
from agentlite.data.curation.duplicates import read_held_out
from agentlite.data.formats.raw_rows import Raw, raw_files, read_lines
from agentlite.data.hub_data import licences
from agentlite.data.ingest import IngestContext, IngestedRows, clean, decode_row, reader_options
from agentlite.data.rejects import reject_row
from agentlite.data.tool_catalogue import SIGNS, read_catalogue
from agentlite.rendering import choose as choose_protocol
from agentlite.rendering import native_problem
from agentlite.stages.frame import Work, plan_of, run_stage
from agentlite.stages.prep import check
from agentlite.stages.prep.candidates import choose_candidates, scoring_digest
from agentlite.stages.prep.select import Selection, select
from agentlite.stages.prep.write import figures_of, write_all
from agentlite.stages.tool_retrieval import count_record, offers, retriever_digest
from agentlite.workspace import lookup
from agentlite.workspace.input_files import file_digest, load_template
from agentlite.workspace.lookup import Plan, Result, RunTarget, find_model

Stdin = io.BufferedRandom | io.BytesIO  # a copy of it: it is hashed, and then read
PROGRESS_ROWS = 50  # between two steps of the bar, which cost more than a row


class Job(NamedTuple):
    """What is to be prepared: how, from where, and with which buffer of earlier records.
    `candidates`: the folder of each source that is a file of candidates.
    """

    context: IngestContext
    plan: Plan
    stdin: Stdin
    buffer: BufferState | None
    candidates: Mapping[str, Path]


def run(settings: PrepSettings, target: RunTarget) -> Result:
    """Prepares the sources: reads, checks, selects and writes. Raises UserError 4 for more rejects
    than `max_rejects` allows.
    """
    folders = [lookup.find_stage(name, target.run) for name in settings.trajectories]
    stage_files = {check.stage_file(folder): folder for folder in folders}
    candidates = {file: folder for (file, is_sampled), folder in stage_files.items() if is_sampled}
    sources = (*settings.sources, *(file for file, _ in stage_files))
    settings = check.expand_settings(replace(settings, sources=sources), target.old_plan)
    with tempfile.TemporaryFile() if "-" in settings.sources else io.BytesIO() as stdin:
        if "-" in settings.sources:
            with disk_errors(Path(tempfile.gettempdir())):
                shutil.copyfileobj(sys.stdin.buffer, stdin)
        job = _make_job(settings, candidates, target, stdin)

        def work() -> Work:
            # of a dry run the rows are on disk in the system's folder for temporary files
            with IngestedRows(None if target.dry_run else target.folder) as ingested:
                selection = _select(job, ingested, target)
                stage = yield figures_of(selection)
                return write_all(stage.folder, selection)

        data = "" if target.out == "prep" else f" --data {shlex.quote(target.out)}"
        if data and lookup.is_stage(target.run / "sft"):  # that one has other data
            data += f" --out {shlex.quote(f'sft-{target.out}')}"
        return run_stage(
            job.plan,
            target,
            work(),
            before_work=lambda: check.refuse_missing_packages(settings),
            next_command=f"agentlite sft{data}",
        )


def key_figure(figures: Mapping[str, object]) -> str:
    """The one line about a finished prep."""
    return f"{figures['kept']} of {figures['read']} rows kept"


def _select(job: Job, ingested: IngestedRows, target: RunTarget) -> Selection:
    """Reads, checks and selects, and writes the rejects, but in a dry run."""
    settings, rejects_file = job.context.settings, target.folder / "rejects.jsonl"
    keep = parse_keep(settings.keep)
    choices = {file: choose_candidates(stage, keep) for file, stage in job.candidates.items()}
    lines = partial(_lines, job, {file: rows for file, (rows, _) in choices.items()})
    context = _with_tools(job.context, lines(), target.run)
    with console.progress("prep: rows read:", None) as advance:
        for count, (source, line) in enumerate(lines(), 1):
            ingested.add(source, line, context)
            if count % PROGRESS_ROWS == 0:
                advance(count)
    if not target.dry_run:
        write_rows(rejects_file, map(reject_row, ingested.rejects))
    check.refuse_rejects(settings, ingested, rejects_file)
    if "scores" in ingested.done:  # of a rollout
        refuse_unknown(keep.conditions, ingested.done["scores"], "--keep")
    for note in check.notes(ingested, len(context.catalogue)):
        console.notice(f"prep: {note}")
    with console.waiting("prep: reading the held-out files"):
        # masked as the others are, so that the same question stays the same
        held_out = read_held_out(
            settings.holdout,
            reader_options(settings, context.catalogue),
            lambda record: clean(record, settings)[0],
        )
    selection = select(Selection(ingested, context, held_out, job.buffer))
    if choices:
        selection.figures["candidates"] = {file: counts for file, (_, counts) in choices.items()}
    for note in (*selection.notes, *check.doubt_notes(selection)):
        console.notice(note)
    check.refuse_nothing_left(selection, rejects_file)
    return selection


# --- the plan ---


def _make_job(
    settings: PrepSettings, candidates: Mapping[str, Path], target: RunTarget, stdin: Stdin
) -> Job:
    """The job with the plan of its folder: the settings, and a digest of each input."""
    name = settings.model or (GPU_MODEL if this_machine.has_gpu() else CPU_MODEL)
    model = find_model(name, target.run, target.old_plan)
    template = load_template(model.base)
    mixture = choose_protocol(settings.protocol, template, settings.seed)
    problem = native_problem(template) if "auto" in settings.protocol else ""
    if problem and template.prints_tools:
        console.notice(
            f"prep: auto takes protocol hermes, since the chat template of {name} itself {problem}"
        )
    if template.folds_system:
        console.notice(
            f"prep: the chat template of {name} has no system role: a system turn begins the first "
            "user turn, here and in training, eval, serve and export"
        )
    settings = replace(settings, model=name, protocol=mixture.setting)
    inputs = {**_digests(settings, stdin), **licences(settings.sources), "model": model.digest}
    inputs |= {f"scores of {file}": scoring_digest(folder) for file, folder in candidates.items()}
    rows = "parquet" if settings.rows == "parquet" else "jsonl"
    plan = plan_of("prep", settings, inputs, rows=rows)
    buffer = None
    if settings.replay:
        buffer = find_buffer(Path(settings.replay), _run_key(plan))
        plan.inputs["replay"] = buffer.previous_file
    if settings.retrieve:
        plan.inputs["retriever"] = retriever_digest(
            lookup.find_finished_stage(settings.retriever, target.run, "retriever")
        )
    return Job(IngestContext(settings, template, mixture), plan, stdin, buffer, candidates)


def _run_key(plan: Plan) -> str:
    """What a run is known by in a replay buffer: its settings and the contents of its inputs,
    whatever the names and the order of the files.
    """
    names = ("sources", "holdout", "tools", "replay", "rows")
    settings = {name: value for name, value in plan.settings.items() if name not in names}
    return digest(canonical([settings, sorted(plan.inputs.values())]))


def _digests(settings: PrepSettings, stdin: Stdin) -> dict[str, str]:
    """The digest of every file of rows, as it is now."""

    def rows_digest(source: str) -> str:
        if source != "-":
            return ",".join(file_digest(path)[:16] for path in raw_files(source))
        stdin.seek(0)
        return hashlib.file_digest(stdin, "sha256").hexdigest()

    return {
        **{source: rows_digest(source) for source in settings.sources},
        **{f"tools {file}": rows_digest(file) for file in settings.tools},
        **{f"holdout {file}": rows_digest(file) for file in settings.holdout},
    }


# --- what the steps read ---


def _lines(job: Job, candidates: Mapping[str, list[Raw]]) -> Iterator[tuple[str, Raw]]:
    """The rows of all sources, each with its source. `candidates`: of the files of candidates."""
    for source in job.context.settings.sources:
        # all rows are read twice: first for the tools that they declare
        job.stdin.seek(0)
        for line in candidates[source] if source in candidates else read_lines(source, job.stdin):
            yield source, line


def _with_tools(
    context: IngestContext, lines: Iterable[tuple[str, Raw]], run: Path
) -> IngestContext:
    """The context with the tools that rows name by ids alone, wherever they are declared; and with
    tools of a retriever for each record, where the user wants them: it loads a model.
    """
    settings = context.settings
    declarations = (
        decode_row(line, settings.fix)[0]
        for source, line in lines
        # BFCL's rows are none, and are slow to read twice
        if not source.startswith("bfcl:") and line.error is None
        if all(sign in line.content for sign in SIGNS)
    )
    with console.waiting("prep: looking for declarations of tools"):
        context = context._replace(catalogue=read_catalogue(settings.tools, declarations))
    if not settings.retrieve:
        return context
    retriever = lookup.find_finished_stage(settings.retriever, run, "retriever")
    tool_offers = offers(retriever, settings.retrieve, settings.retrieve_by, "added")

    def add_tools(record: Record) -> tuple[Record, Counter[str]]:
        record = tool_offers.offer(record)
        return record, count_record(record)

    return context._replace(add_tools=add_tools)
