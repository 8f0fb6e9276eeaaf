"""Training records + a model -> prompt templates that are better than known protocols, as files."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from agentlite.config import resolve
from agentlite.config.settings import TemplatesSettings
from agentlite.core import console, server_usage
from agentlite.core.errors import REJECTS, RowError, UserError
from agentlite.core.openai_client import Endpoint, check
from agentlite.core.records import Record, from_row
from agentlite.core.row_files import find_rows, read_rows, replacing, write_json, write_rows
from agentlite.data.curation.sample import sample
from agentlite.rendering import Protocol, first_messages, protocols_of
from agentlite.rendering.protocols.prompt_template import SUFFIX, to_text
from agentlite.stages.teacher import REPLIES, answers, teacher_of
from agentlite.stages.templates.measured import (
    VERDICTS,
    MeasuredTemplates,
    TemplateDifference,
    measured,
)
from agentlite.stages.templates.meta_agent import WrittenTemplate, faults, questions, written
from agentlite.workspace import run_folder
from agentlite.workspace.lineage import model_of_prep
from agentlite.workspace.model_source import load_template
from agentlite.workspace.run_folder import Plan, Result, RunTarget

TEMPLATES = "templates.jsonl"


def run(settings: TemplatesSettings, target: RunTarget) -> Result:
    """Raises UserError 2, 3, 4, 5, 8, 74 or 75; what was answered is kept."""
    teacher = teacher_of(settings, "make templates", target.begun)
    judging = _judge(settings)
    benchmark = _benchmark(settings)
    data = run_folder.find_stage(settings.data, target.run)
    prepared = run_folder.finished(data, "prep")
    rows = find_rows(data, "train")
    plan = Plan(
        "templates",
        resolve.plan_settings("templates", settings),
        {"data": prepared.outputs[rows.name], "model": teacher.digest},
        run_folder.versions(),
    )
    requests, records = _requests(settings, rows, benchmark)
    if target.dry_run:
        status = "new" if target.force else run_folder.compare(target.folder, plan)
        replies_wanted = len(records) * (settings.num_templates + len(benchmark))
        planned: dict[str, Any] = {"folder": status, "requests": len(records)}
        planned |= {
            "templates": settings.num_templates,
            "answers": replies_wanted,
            "scores": replies_wanted,
        }
        return Result("templates", "dry run", str(target.folder), planned, [], 0.0)
    with (
        console.stdout_to_stderr(),
        run_folder.open_stage(target.folder, plan, force=target.force) as stage,
        server_usage.counted(stage.folder, settings.token_budget) as usage,
    ):
        if stage.status != "done":
            replies = stage.folder / REPLIES
            texts = answers(
                teacher, questions(settings, requests), settings, replies, "templates: written"
            )
            template = load_template(model_of_prep(str(data), target.run).base)
            found = written(texts, records, template)
            fitting = {one.template.name: one.template.protocol for one in found if not one.fault}
            if not fitting:
                write_rows(stage.folder / TEMPLATES, (_row(one, {}, ()) for one in found))
                raise _none(faults(found), "every template has a fault")
            by = measured(settings, teacher, judging, benchmark, fitting, records, replies)
            kept = [name for name in fitting if _is_better(by, name, settings.epsilon)]
            figures = _figures(found, by, kept)
            write_rows(stage.folder / TEMPLATES, (_row(one, by.differences, kept) for one in found))
            write_json(stage.folder / "stats.json", figures)
            if not kept:
                raise _none(figures["dropped"], "no template is better than the benchmark")
            files = [*_write(stage.folder, [one for one in found if one.template.name in kept])]
            stage.finish([TEMPLATES, REPLIES, VERDICTS, "stats.json", *files], figures)
        return stage.result(_next(prepared_sources(data), target), usage.figures())


def key_figure(figures: Mapping[str, Any]) -> str:
    return f"{figures['kept']} of {figures['written']} templates"


def prepared_sources(data: Path) -> list[str]:
    """The rows that a prep read."""
    return [*map(str, run_folder.read_plan(data).settings.get("sources", ()))]


def _next(sources: Sequence[str], target: RunTarget) -> str:
    rows = sources or ["dialogs.jsonl"]
    options = ["--protocol", f"hermes,{target.folder}", "--out", f"prep-{target.out}"]
    return target.next(shlex.join(["agentlite", "prep", *rows, *options]))


def _judge(settings: TemplatesSettings) -> Endpoint:
    """Raises UserError 2."""
    own = settings.judge_endpoint
    if own and not settings.judge_model:
        raise UserError(
            "which of its models?",
            "Add --judge-model NAME, as the server calls it.",
            location="--judge-endpoint",
        )
    endpoint = Endpoint(
        own or settings.endpoint[0],
        settings.judge_model or settings.model,
        settings.judge_key if own else settings.endpoint_key,
        settings.requests.seconds,
        settings.requests.tries,
        concurrency=settings.requests.concurrency,
    )
    check(endpoint, "--judge-endpoint")
    return endpoint


def _benchmark(settings: TemplatesSettings) -> dict[str, Protocol]:
    """Raises UserError 2 for a protocol whose prompt is not agentlite's."""
    found = {name: one.protocol for name, one in protocols_of(settings.benchmark).items()}
    if native := next((name for name, one in found.items() if one.native), ""):
        raise UserError(
            f"'{native}' is written by the server's own chat template.",
            "Name others: --benchmark autogpt,toolllama.",
            location="--benchmark",
        )
    return found


def _requests(
    settings: TemplatesSettings, rows: Path, benchmark: Mapping[str, Protocol]
) -> tuple[list[str], list[Record]]:
    """What users ask first, each once; and the records on which templates are measured. Raises
    UserError 2.
    """
    records = [
        record for record in map(from_row, read_rows(rows)) if _can_be_measured(record, benchmark)
    ]
    if not records:
        raise UserError(
            "holds no training record with tools whose first turn can be asked.",
            "Name another prep: --data NAME.",
            location=f"--data {shlex.quote(settings.data)}",
        )
    every = (one.content for record in records for one in record.messages if one.role == "user")
    chosen = sample(records, settings.num_queries, settings.seed)
    return [*dict.fromkeys(every)], [records[index] for index in chosen]


def _can_be_measured(record: Record, benchmark: Mapping[str, Protocol]) -> bool:
    """Whether its first turn can be asked in every benchmark."""
    if not record.tools or not record.turns or record.turns[0] not in record.prompted_turns:
        return False
    if all(one.role != "user" for one in record.messages[: record.turns[0]]):
        return False
    try:
        for protocol in benchmark.values():
            first_messages(record, record.turns[0], protocol)
    except RowError:
        return False
    return True


def _is_better(by: MeasuredTemplates, name: str, epsilon: float) -> bool:
    points = by.differences[name].points
    return points is not None and points.mean > epsilon


def _row(
    one: WrittenTemplate, differences: Mapping[str, TemplateDifference], kept: Sequence[str]
) -> dict[str, Any]:
    name = one.template.name
    row = {"number": one.number, **to_builtins(one.template), "kept": name in kept}
    if one.fault:
        return {**row, "fault": one.fault, "detail": one.detail}
    return {**row, **to_builtins(differences[name]._asdict())}


def _figures(
    found: Sequence[WrittenTemplate], by: MeasuredTemplates, kept: Sequence[str]
) -> dict[str, Any]:
    worse = sum(one.points is not None for one in by.differences.values()) - len(kept)
    unjudged = sum(one.points is None for one in by.differences.values())
    dropped = {**faults(found), "not better": worse, "no score": unjudged}
    return {
        "written": len(found),
        "kept": len(kept),
        "dropped": {name: count for name, count in dropped.items() if count},
        "differences": {name: to_builtins(one._asdict()) for name, one in by.differences.items()},
        "benchmark": by.scores,
        "judge_problems": by.problems,
        "judge_tokens": by.tokens,
    }


def _none(dropped: Mapping[str, int], problem: str) -> UserError:
    reasons = ", ".join(f"{kind} {count}" for kind, count in dropped.items())
    return UserError(
        f"{problem}: {reasons}.",
        f"Read {TEMPLATES} in the stage's folder; take a stronger model, more templates (-n) or "
        "another --epsilon, with --force.",
        location="agentlite make templates",
        exit_code=REJECTS,
    )


def _write(folder: Path, kept: Sequence[WrittenTemplate]) -> Sequence[str]:
    """A file for each template; the names of the files."""
    names = [f"{one.template.name}{SUFFIX}" for one in kept]
    for name, one in zip(names, kept, strict=True):
        with replacing(folder / name) as file:
            file.write(to_text(one.template).encode())
    return names
