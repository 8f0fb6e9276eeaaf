"""Training records + a model -> prompt templates that are better than known protocols, as files."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from agentlite.config.settings import TemplatesSettings
from agentlite.core.errors import RowError, UserError
from agentlite.core.openai_client import Endpoint
from agentlite.core.records import Record, from_row
from agentlite.core.row_files import find_rows, read_rows, replacing, write_json, write_rows
from agentlite.data.curation.mix import sample
from agentlite.engine.remote import behind
from agentlite.rendering import Protocol, first_messages, protocols_of
from agentlite.rendering.protocols.prompt_template import SUFFIX, to_text
from agentlite.stages.frame import Figures, Files, plan_of, run_stage
from agentlite.stages.teacher import REPLIES, answers, nothing_kept, teacher_of
from agentlite.stages.templates.measured import VERDICTS, measure
from agentlite.stages.templates.meta_agent import (
    WrittenTemplate,
    faults,
    questions,
    read_templates,
)
from agentlite.workspace import run_folder
from agentlite.workspace.lineage import model_of_prep
from agentlite.workspace.model_source import load_template
from agentlite.workspace.run_folder import Result, RunTarget, StageFolder

TEMPLATES = "templates.jsonl"


def run(settings: TemplatesSettings, target: RunTarget) -> Result:
    """What was answered is kept, whatever ends it."""
    teacher = teacher_of(settings, "make templates", target.begun)
    judge = _judge(settings)
    benchmark = _benchmark(settings)
    data = run_folder.find_stage(settings.data, target.run)
    prepared = run_folder.finished(data, "prep")
    rows = find_rows(data, "train")
    requests, records = _requests(settings, rows, benchmark)

    def dry_run() -> Figures:
        wanted = len(records) * (settings.num_templates + len(benchmark))
        planned = {"requests": len(records), "templates": settings.num_templates}
        return {**planned, "answers": wanted, "scores": wanted}

    def work(stage: StageFolder) -> tuple[Files, Figures]:
        replies = stage.folder / REPLIES
        asked = questions(settings, requests)
        texts = answers(teacher, asked, settings, replies, "templates: written")
        template = load_template(model_of_prep(str(data), target.run).base)
        written = read_templates(texts, records, template)
        fitting = {
            draft.template.name: draft.template.protocol for draft in written if not draft.fault
        }
        if not fitting:
            write_rows(stage.folder / TEMPLATES, _rows(written, {}, ()))
            raise _none(faults(written), "every template has a fault")
        by = measure(settings, teacher, judge, benchmark, fitting, records, replies)
        differences = {name: difference._asdict() for name, difference in by.differences.items()}
        points = {name: difference.points for name, difference in by.differences.items()}
        kept = [name for name, of in points.items() if of and of.mean > settings.epsilon]
        write_rows(stage.folder / TEMPLATES, _rows(written, differences, kept))
        scored = sum(mean is not None for mean in points.values())
        unscored = {"not better": scored - len(kept), "no score": len(points) - scored}
        dropped = {**faults(written), **unscored}
        figures: dict[str, Any] = {
            "written": len(written),
            "kept": len(kept),
            "dropped": {name: count for name, count in dropped.items() if count},
            "differences": to_builtins(differences),
            "benchmark": by.scores,
            "judge_problems": by.problems,
            "judge_tokens": by.tokens,
        }
        write_json(stage.folder / "stats.json", figures)
        if not kept:
            raise _none(figures["dropped"], "no template is better than the benchmark")
        templates = {draft.template.name: draft.template for draft in written}
        files = {f"{name}{SUFFIX}": to_text(templates[name]) for name in kept}
        for name, text in files.items():
            with replacing(stage.folder / name) as file:
                file.write(text.encode())
        return [TEMPLATES, REPLIES, VERDICTS, "stats.json", *files], figures

    # the rows that the prep has read
    sources = run_folder.read_plan(data).settings.get("sources") or ["dialogs.jsonl"]
    options = ["--protocol", f"hermes,{target.folder}", "--out", f"prep-{target.out}"]
    return run_stage(
        plan_of(
            "templates",
            settings,
            {"data": prepared.outputs[rows.name], "model": teacher.digest},
        ),
        target,
        dry_run=dry_run,
        work=work,
        next_command=shlex.join(["agentlite", "prep", *map(str, sources), *options]),
        keep=[REPLIES],
        token_budget=settings.token_budget,
    )


def _judge(settings: TemplatesSettings) -> Endpoint:
    """The model that scores answers: one of its own, or the one that writes."""
    own = settings.judge_endpoint
    return behind(
        (own or settings.endpoint[0],),
        settings.judge_model or ("" if own else settings.model),
        settings.judge_key if own else settings.endpoint_key,
        "--judge-endpoint",
        settings,
    ).endpoints[0]


def _benchmark(settings: TemplatesSettings) -> Mapping[str, Protocol]:
    """The protocols to be better than. Raises UserError for one that a server writes itself."""
    benchmark = protocols_of(settings.benchmark).protocols
    if native := next((name for name, protocol in benchmark.items() if protocol.native), ""):
        raise UserError(
            f"'{native}' is written by the server's own chat template.",
            "Name others: --benchmark autogpt,toolllama.",
            location="--benchmark",
        )
    return benchmark


def _rows(
    written: Sequence[WrittenTemplate], differences: Mapping[str, Any], kept: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Every template that was written, with its fault or with what it has over the benchmark."""
    for draft in written:
        name = draft.template.name
        row = {"number": draft.number, **to_builtins(draft.template), "kept": name in kept}
        why = {"fault": draft.fault, "detail": draft.detail}
        yield row | (why if draft.fault else to_builtins(differences[name]))


def key_figure(figures: Mapping[str, Any]) -> str:
    return f"{figures['kept']} of {figures['written']} templates"


def _requests(
    settings: TemplatesSettings, rows: Path, benchmark: Mapping[str, Protocol]
) -> tuple[list[str], list[Record]]:
    """What users ask first, each once; and the records on which templates are measured."""
    records = [
        record for record in map(from_row, read_rows(rows)) if _can_be_measured(record, benchmark)
    ]
    if not records:
        raise UserError(
            "holds no training record with tools whose first turn can be asked.",
            "Name another prep: --data NAME.",
            location=f"--data {shlex.quote(settings.data)}",
        )
    every = (
        message.content
        for record in records
        for message in record.messages
        if message.role == "user"
    )
    chosen = sample(records, settings.num_queries, settings.seed)
    return [*dict.fromkeys(every)], [records[index] for index in chosen]


def _can_be_measured(record: Record, benchmark: Mapping[str, Protocol]) -> bool:
    """Whether its first turn can be asked in every benchmark."""
    if not record.tools or not record.turns or record.turns[0] not in record.prompted_turns:
        return False
    if all(message.role != "user" for message in record.messages[: record.turns[0]]):
        return False
    try:
        for protocol in benchmark.values():
            first_messages(record, record.turns[0], protocol)
    except RowError:
        return False
    return True


def _none(dropped: Mapping[str, int], problem: str) -> UserError:
    return nothing_kept(
        "agentlite make templates",
        problem,
        dropped,
        f"Read {TEMPLATES} in the stage's folder; take a stronger model, more templates (-n) or "
        "another --epsilon, with --force.",
    )
