"""Training records + a model -> prompt templates that are better than known protocols, as files.

The Meta-Agent of seed 003 writes a template for like requests. Templates and known protocols answer
the same requests; a judge scores the answers. Those that are better are rows for prep as well.
"""

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

from msgspec import to_builtins
from msgspec.structs import replace

from agentlite.config.settings import TemplatesSettings
from agentlite.core import console
from agentlite.core.errors import RowError, UserError
from agentlite.core.openai_client import Endpoint, Question, refuse_unanswered
from agentlite.core.records import Message, Parsed, Record, from_row, to_row
from agentlite.core.row_files import find_rows, read_rows, replacing, write_json, write_rows
from agentlite.data.curation.mix import sample
from agentlite.data.curation.validate import validate
from agentlite.engine.remote import behind
from agentlite.rendering import (
    Protocol,
    first_messages,
    protocols_of,
    reading_problem,
)
from agentlite.rendering.protocols.prompt_template import (
    FORMATS,
    LISTINGS,
    SLOTS,
    SUFFIX,
    PromptTemplate,
    slot_problem,
    to_text,
)
from agentlite.rendering.template import Template
from agentlite.retrieval.rankers import words
from agentlite.scoring.judge.llm_judge import VERDICTS, item_at, score_items
from agentlite.scoring.metrics.confidence import Summary, summary
from agentlite.stages.frame import Figures, Files, Work, plan_of, run_stage
from agentlite.stages.teacher import (
    REPLIES,
    TeacherReply,
    answers,
    no_rows_error,
    question,
    reply_fault,
    teacher_of,
)
from agentlite.workspace import stage_folder
from agentlite.workspace.model_source import load_template, model_of_prep
from agentlite.workspace.stage_folder import Result, RunTarget

TEMPLATES = "templates.jsonl"
INSTANCES = "instances.jsonl"
READABLE = 0.5  # share of a template's answers that must read
LONGEST_REQUEST = 500  # characters of a request that are shown
STYLES = (
    "short and dry, like a form",
    "like the handbook of a new employee",
    "as a list of numbered rules",
    "as a friendly talk",
    "with a heading before each part",
    "strict, with what must never be done",
    "as a role that the agent plays",
    "for an expert, in few words",
)
META = """You design prompts for agents that use tools. Write one prompt template for an agent that gets requests such as these:
{requests}

Write it in the language of these requests, {style}. The template must fit any other request and any other tools, so name none.
It has six parts. Each part stands between its tags exactly once; their order is yours.
<Profile>who the agent is</Profile>
<Instruction>how the agent works</Instruction>
<Tools>your words around {{tools}}</Tools>
<Goal>your words around {{goal}}</Goal>
<Memory>your words around {{memory}}</Memory>
<Format>your words around {{format}}</Format>
The four words in braces are replaced later, by the list of tools, the request, what was said and done so far, and how the next step is to be written. Each of them stands exactly once, with its braces, in its own part. Use no other braces.
Write the template and nothing else."""  # noqa: E501  (a paragraph of the prompt is one line)
FIRST, LAST = re.compile(rf"<({'|'.join(SLOTS)})>"), re.compile(rf"</({'|'.join(SLOTS)})>")


class WrittenTemplate(NamedTuple):
    """`fault`: why the candidate cannot be used, as a kind, and its `detail`; "" if it can."""

    number: int
    template: PromptTemplate
    fault: str = ""
    detail: str = ""


class TemplateDifference(NamedTuple):
    """Of a template, on the requests where it and every benchmark have a score: how many points, of
    5, it is above the mean of the benchmarks; its own mean; the share of its answers that read.
    `instances`: the answers that read and are more than epsilon above the benchmarks, as records,
    each with its points.
    """

    points: Summary | None
    score: float | None
    readable: float
    instances: list[tuple[float, Record]]

    @property
    def figures(self) -> dict[str, Any]:
        return dict(to_builtins(self._asdict() | {"instances": len(self.instances)}))

    def shortfall(self, settings: TemplatesSettings) -> str:
        """Why the template is not kept; "" if it is."""
        if not self.points or self.score is None:
            return "no score"
        if self.points.mean <= settings.epsilon:
            return "not better"
        if self.score <= settings.threshold:
            return "below the threshold"
        return "" if self.readable >= READABLE else "answers that do not read"


def run(settings: TemplatesSettings, target: RunTarget) -> Result:
    """What was answered is kept, whatever ends it."""
    teacher = teacher_of(settings, "make templates")
    own = settings.judge_endpoint
    [judge] = behind(
        (own or settings.endpoint[0],),
        settings.judge_model or ("" if own else settings.model),
        settings.judge_key if own else settings.endpoint_key,
        "--judge-endpoint",
        settings.requests,
    )
    benchmark = protocols_of(settings.benchmark).protocols
    if native := next((name for name, protocol in benchmark.items() if protocol.native), ""):
        raise UserError(
            f"'{native}' is written by the server's own chat template.",
            "Name others: --benchmark autogpt,toolllama.",
            location="--benchmark",
        )
    prep = stage_folder.find_finished(settings.data, target.run, "prep")
    rows = find_rows(prep.folder, "train")
    usable = [record for record in map(from_row, read_rows(rows)) if _is_usable(record, benchmark)]
    if not usable:
        raise UserError(
            "holds no training record with tools whose first turn can be asked.",
            "Name another prep: --data NAME.",
            location=f"--data {shlex.quote(settings.data)}",
        )
    records = [usable[index] for index in sample(usable, settings.num_queries, settings.seed)]

    def work() -> Work:
        wanted = len(records) * (settings.num_templates + len(benchmark))
        planned = {"requests": len(records), "templates": settings.num_templates}
        stage = yield {**planned, "answers": wanted, "scores": wanted}
        asked = _questions(settings, usable)
        texts = answers(teacher, asked, settings, stage.folder / REPLIES, "templates: written")
        template = load_template(model_of_prep(str(prep.folder), target.run).base)
        written = [_read(number, reply, template) for number, reply in enumerate(texts)]
        fitting = {
            draft.template.name: draft.template.protocol for draft in written if not draft.fault
        }
        differences: dict[str, TemplateDifference] = {}
        figures: dict[str, Any] = {}
        if fitting:
            differences, figures = _measure(
                settings, teacher, judge, benchmark, fitting, records, stage.folder
            )
        return _keep(settings, stage.folder, written, differences, figures)

    def next_command(figures: Figures) -> str:
        # the rows that the prep has read
        sources = [*map(str, prep.settings.get("sources") or ["dialogs.jsonl"])]
        sources += [str(target.folder / INSTANCES)] * bool(figures.get("instances"))
        options = ["--protocol", f"hermes,{target.folder}", "--out", f"prep-{target.out}"]
        return shlex.join(["agentlite", "prep", *sources, *options])

    inputs = {"data": prep.outputs[rows.name], "model": settings.endpoint[0]}
    return run_stage(
        plan_of("templates", settings, inputs),
        target,
        work(),
        next_command=next_command,
        keep=[REPLIES],
    )


def _keep(
    settings: TemplatesSettings,
    folder: Path,
    written: Sequence[WrittenTemplate],
    differences: Mapping[str, TemplateDifference],
    measured: Mapping[str, Any],
) -> tuple[Files, Figures]:
    """Writes the templates that are good enough, and their best answers as records."""
    shortfalls = {name: of.shortfall(settings) for name, of in differences.items()}
    kept = [name for name, shortfall in shortfalls.items() if not shortfall]
    templates = {draft.template.name: draft.template for draft in written}
    rows: list[dict[str, Any]] = []
    for draft in written:
        name = draft.template.name
        row = {"number": draft.number, **to_builtins(draft.template), "kept": name in kept}
        fault = {"fault": draft.fault, "detail": draft.detail}
        rows.append(row | (differences[name].figures if name in differences else fault))
    write_rows(folder / TEMPLATES, rows)
    instances = [instance for name in kept for instance in differences[name].instances]
    best: dict[str, Record] = {}  # of each request: prep takes copies out
    for _, record in sorted(instances, key=lambda instance: -instance[0]):
        best.setdefault(record.meta["instance"]["record"], record)
    write_rows(folder / INSTANCES, map(to_row, best.values()))
    dropped = Counter(draft.fault for draft in written) + Counter(shortfalls.values())
    figures = {
        "written": len(written),
        "kept": len(kept),
        "dropped": {reason: count for reason, count in dropped.most_common() if reason},
        "instances": len(best),
        **measured,
    }
    write_json(folder / "stats.json", figures)
    if not kept:
        better = "no template is good enough"
        raise no_rows_error(
            "agentlite make templates",
            better if differences else "every template has a fault",
            figures["dropped"],
            f"Read {TEMPLATES} in the stage's folder; take a stronger model, more templates "
            "(-n), another --epsilon or --threshold, with --force.",
        )
    files = {f"{name}{SUFFIX}": to_text(templates[name]) for name in kept}
    for name, text in files.items():
        with replacing(folder / name) as file:
            file.write(text.encode())
    return [TEMPLATES, INSTANCES, REPLIES, VERDICTS, "stats.json", *files], figures


def key_figure(figures: Mapping[str, Any]) -> str:
    return f"{figures['kept']} of {figures['written']} templates"


def _is_usable(record: Record, benchmark: Mapping[str, Protocol]) -> bool:
    """Whether a record has tools, and its first turn can be asked in every benchmark."""
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


def _instance(record: Record, name: str, answer: Parsed, points: float) -> Record | None:
    """A record up to its first turn, ended by the answer in the template `name`; None for an answer
    that cannot be learned.
    """
    message = Message("assistant", answer.content, answer.calls)
    made = replace(
        record,
        messages=(*record.messages[: record.turns[0]], message),
        gold={},
        split="train",
        parent=record.parent or record.id,
        meta={**record.meta, "protocol": name, "instance": {"record": record.id, "points": points}},
    )
    try:
        validate(made)
    except RowError:
        return None
    return made


def _questions(settings: TemplatesSettings, records: Sequence[Record]) -> list[Question]:
    """What the model is asked for each candidate: a request with those that share most words with
    it, and another style.
    """
    every = (message for record in records for message in record.messages)
    requests = [*dict.fromkeys(message.content for message in every if message.role == "user")]
    words_of = {request: {*words(request)} for request in requests}
    asked = []
    for number in range(settings.num_templates):
        first = Random(f"{settings.seed} template {number}").choice(requests)
        own = words_of[first]
        shared = {
            other: len(own & theirs) / max(1, len(own | theirs))
            for other, theirs in words_of.items()
        }
        alike = sorted(requests, key=lambda other: (other != first, -shared[other], other))
        lines = [
            f"- {' '.join(request.split())[:LONGEST_REQUEST]}" for request in alike[: settings.near]
        ]
        asked.append(
            question(
                META.format(requests="\n".join(lines), style=STYLES[number % len(STYLES)]),
                temperature=settings.temperature,
                max_tokens=settings.max_new_tokens,
                seed=settings.seed * 1000 + number,
            )
        )
    return asked


def _read(number: int, reply: TeacherReply, template: Template) -> WrittenTemplate:
    formats, listings = [*FORMATS], [*LISTINGS]
    text = reply.words
    first, last = FIRST.search(text), [*LAST.finditer(text)]
    if first and last and last[-1].end() > first.start():
        text = text[first.start() : last[-1].end()]  # without what it says around the template
    draft = PromptTemplate(
        f"meta-{number + 1:02d}",
        text,
        formats[number % len(formats)],
        listings[number // len(formats) % len(listings)],
    )
    fault, detail = reply_fault(reply)
    if not fault and not first:
        fault, detail = "no template", f"{reply.words[:60]!r}"
    if not fault:
        fault, detail = slot_problem(text)
    if not fault and (detail := reading_problem(draft.protocol, template)):
        fault = "not read back"
    return WrittenTemplate(number, draft, fault, detail)


def _measure(
    settings: TemplatesSettings,
    teacher: Sequence[Endpoint],
    judge: Endpoint,
    benchmark: Mapping[str, Protocol],
    templates: Mapping[str, Protocol],
    records: Sequence[Record],
    folder: Path,
) -> tuple[dict[str, TemplateDifference], dict[str, Any]]:
    """Answers to the first turn of each record, a judge's scores of them, and what each template
    has over the benchmark; with the figures. What was answered is kept, whatever ends this.
    """
    asked: dict[str, Record] = {}  # by protocol and record
    questions, greedy = [], {"temperature": 0, "max_tokens": settings.max_new_tokens}
    for name, protocol in {**benchmark, **templates}.items():
        for record in records:
            asked[f"{name} {record.id}"] = record
            shown = first_messages(record, record.turns[0], protocol)
            questions.append(Question(shown, greedy))
    replies = answers(teacher, questions, settings, folder / REPLIES, "templates: answers")
    texts = {
        place: reply.words for place, reply in zip(asked, replies, strict=True) if not reply.problem
    }
    items = [
        item_at(place, asked[place], asked[place].turns[0], text) for place, text in texts.items()
    ]
    with console.progress("templates: scores", len(items)) as advance:
        result = score_items(items, judge, folder / VERDICTS, advance=advance)
    if len(result.unanswered) > settings.max_failures * len(items):
        refuse_unanswered(result.unanswered, len(items), "--judge-endpoint", "")
    scores = {
        name: {
            record.id: result.scores[place]
            for record in records
            if (place := f"{name} {record.id}") in result.scores
        }
        for name in (*benchmark, *templates)
    }
    means = {name: fmean(of.values()) for name, of in scores.items() if of}
    differences = {}
    for name, protocol in templates.items():
        points = {
            record: score - fmean(scores[other][record] for other in benchmark)
            for record, score in scores[name].items()
            if all(record in scores[other] for other in benchmark)
        }
        parsed = {
            record.id: protocol.read(texts[place], record.tools)
            for record in records
            if (place := f"{name} {record.id}") in texts
        }
        read = {id: answer for id, answer in parsed.items() if not answer.problem}
        better = [
            (points[record.id], instance)
            for record in records
            if record.id in read
            and points.get(record.id, -5) > settings.epsilon
            and (instance := _instance(record, name, read[record.id], points[record.id]))
        ]
        differences[name] = TemplateDifference(
            summary([*points.values()], settings.seed) if points else None,
            means.get(name),
            len(read) / len(parsed) if parsed else 0.0,
            better,
        )
    figures = {
        "differences": {name: of.figures for name, of in differences.items()},
        "benchmark": {name: means[name] for name in benchmark if name in means},
        "judge_problems": result.run.problems,
        "judge_tokens": result.run.prompt_tokens + result.run.completion_tokens,
    }
    return differences, figures
