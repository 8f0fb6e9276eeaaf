"""Training records + a model -> prompt templates that are better than known protocols, as files.

The Meta-Agent of seed 003 writes a template for like requests. Templates and known protocols answer
the same requests; a judge scores the answers. Those that are better are rows for prep as well.
"""

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

from msgspec import to_builtins
from msgspec.structs import replace

from agentlite.config.settings import TemplatesSettings
from agentlite.core import console
from agentlite.core.errors import RowError, UserError
from agentlite.core.kept_replies import KeptReply, ask_kept
from agentlite.core.openai_client import Endpoint, Question, refuse_unanswered
from agentlite.core.records import Message, Parsed, Record, from_row, to_row
from agentlite.core.row_files import find_rows, read_rows, replacing, write_rows
from agentlite.data.curation.mix import sample
from agentlite.data.curation.validate import validate
from agentlite.engine.remote import behind
from agentlite.rendering import Protocol, first_messages, protocols_of, reading_problem
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
from agentlite.scoring.judge.llm_judge import VERDICTS, item_at, question_of, read_scores
from agentlite.scoring.metrics.confidence import Summary, summary
from agentlite.scoring.metrics.figures import JudgeRun
from agentlite.stages.frame import Figures, Files, Work, plan_of, run_stage
from agentlite.stages.teacher import (
    REPLIES,
    STATS,
    answers,
    fault_of,
    question,
    teacher_of,
    tell,
    words_of,
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


class Draft(NamedTuple):
    """A template that was written. `fault`: why it is not kept, with a `detail`; "" if it is.

    On the requests where it and every benchmark have a score: how many `points`, of 5, it is above
    the mean of the benchmarks. `score`: its own mean; `readable`: the share of its answers that
    read; `instances`: those that read and are more than epsilon above the benchmarks, as records,
    each with its points.
    """

    number: int
    template: PromptTemplate
    fault: str = ""
    detail: str = ""
    points: Summary | None = None
    score: float | None = None
    readable: float = 0.0
    instances: Sequence[tuple[float, Record]] = ()

    @property
    def row(self) -> dict[str, Any]:
        row = {**self._asdict(), "instances": len(self.instances), "kept": not self.fault}
        template = row.pop("template")
        return {**to_builtins(template), **to_builtins(row)}


class JudgedAnswer(NamedTuple):
    """To the first turn of a record, in some protocol; the judge may have given it no score."""

    record: Record
    text: str
    score: int | None


def run(settings: TemplatesSettings, target: RunTarget) -> Result:
    """What was answered is kept, whatever ends it."""
    teacher = teacher_of(settings, "make templates")
    judge = _judge_of(settings)
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
        replies = answers(teacher, asked, settings, stage.folder, "templates: written")
        template = load_template(model_of_prep(str(prep.folder), target.run).base)
        drafts = [_read(number, reply, template) for number, reply in enumerate(replies)]
        whole = {one.template.name: one.template.protocol for one in drafts if not one.fault}
        run = None
        if whole:
            protocols = {**benchmark, **whole}
            answered, run = _answer(settings, teacher, judge, protocols, records, stage.folder)
            levels = _levels([answered[name] for name in benchmark])
            drafts = [
                one if one.fault else _measure(settings, one, answered[one.template.name], levels)
                for one in drafts
            ]
        return _keep(stage.folder, drafts, run)

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


def _keep(folder: Path, drafts: Sequence[Draft], run: JudgeRun | None) -> tuple[Files, Figures]:
    """Writes the templates that are good enough, and their best answers as records."""
    kept = [draft for draft in drafts if not draft.fault]
    write_rows(folder / TEMPLATES, (draft.row for draft in drafts))
    instances = [instance for draft in kept for instance in draft.instances]
    best: dict[str, Record] = {}  # of each request: prep takes copies out
    for _, record in sorted(instances, key=lambda instance: -instance[0]):
        best.setdefault(record.meta["instance"]["record"], record)
    write_rows(folder / INSTANCES, map(to_row, best.values()))
    dropped = Counter(draft.fault for draft in drafts if draft.fault)
    figures = {
        "written": len(drafts),
        "kept": len(kept),
        "dropped": dict(dropped.most_common()),
        "instances": len(best),
        "judge": to_builtins(run),
    }
    fix = "a stronger model, more templates (-n), another --epsilon or --threshold"
    tell(folder, figures, "no template is good enough", fix)
    files = {f"{draft.template.name}{SUFFIX}": to_text(draft.template) for draft in kept}
    for name, text in files.items():
        with replacing(folder / name) as file:
            file.write(text.encode())
    return [TEMPLATES, INSTANCES, REPLIES, VERDICTS, STATS, *files], figures


def key_figure(figures: Mapping[str, Any]) -> str:
    return f"{figures['kept']} of {figures['written']} templates"


def _judge_of(settings: TemplatesSettings) -> Endpoint:
    own = settings.judge_endpoint
    url, model = own or settings.endpoint[0], settings.judge_model
    key = settings.judge_key if own else settings.endpoint_key
    model = model or ("" if own else settings.model)
    return behind((url,), model, key, "--judge-endpoint", settings.requests)[0]


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
        text = META.format(requests="\n".join(lines), style=STYLES[number % len(STYLES)])
        asked.append(question(settings, text, settings.seed * 1000 + number))
    return asked


def _read(number: int, reply: KeptReply, template: Template) -> Draft:
    formats, listings = [*FORMATS], [*LISTINGS]
    text = words_of(reply)
    first, last = FIRST.search(text), [*LAST.finditer(text)]
    fault, detail = fault_of(reply)
    if not fault and not first:
        fault, detail = "no template", f"{text[:60]!r}"
    if first and last and last[-1].end() > first.start():
        text = text[first.start() : last[-1].end()]  # without what it says around the template
    written = PromptTemplate(
        f"meta-{number + 1:02d}",
        text,
        formats[number % len(formats)],
        listings[number // len(formats) % len(listings)],
    )
    if not fault:
        fault, detail = slot_problem(text)
    if not fault and (detail := reading_problem(written.protocol, template)):
        fault = "not read back"
    return Draft(number, written, fault, detail)


def _answer(
    settings: TemplatesSettings,
    teacher: Sequence[Endpoint],
    judge: Endpoint,
    protocols: Mapping[str, Protocol],
    records: Sequence[Record],
    folder: Path,
) -> tuple[dict[str, list[JudgedAnswer]], JudgeRun]:
    """Answers to the first turn of each record, by protocol, with a judge's scores of them. What
    was answered is kept, whatever ends this.
    """
    greedy = {"temperature": 0, "max_tokens": settings.max_new_tokens}
    places = [(name, record) for name in protocols for record in records]
    questions = [
        Question(first_messages(record, record.turns[0], protocols[name]), greedy)
        for name, record in places
    ]
    replies = answers(teacher, questions, settings, folder, "templates: answers")
    replied = zip(places, replies, strict=True)
    whole = [(*place, words_of(reply)) for place, reply in replied if not reply.problem]
    items = [
        item_at(f"{name} {record.id}", record, record.turns[0], text)
        for name, record, text in whole
    ]
    with console.progress("templates: scores", len(items)) as advance:
        questions = [question_of(item) for item in items]
        verdicts = ask_kept([judge], questions, folder / VERDICTS, advance=advance)
    scores, unanswered, run = read_scores(items, verdicts, judge)
    if len(unanswered) > settings.max_failures * len(items):
        refuse_unanswered(unanswered, len(items), "--judge-endpoint", "")
    answered: dict[str, list[JudgedAnswer]] = {name: [] for name in protocols}
    for (name, record, text), item in zip(whole, items, strict=True):
        answered[name].append(JudgedAnswer(record, text, scores.get(item.name)))
    return answered, run


def _levels(benchmarks: Sequence[Sequence[JudgedAnswer]]) -> dict[str, float]:
    """The mean score of the benchmarks, by record; without those that lack one."""
    scores = defaultdict[str, list[int]](list)
    for answer in chain(*benchmarks):
        if answer.score is not None:
            scores[answer.record.id].append(answer.score)
    return {id: fmean(of) for id, of in scores.items() if len(of) == len(benchmarks)}


def _measure(
    settings: TemplatesSettings,
    draft: Draft,
    answered: Sequence[JudgedAnswer],
    levels: Mapping[str, float],
) -> Draft:
    """What a template has over the benchmark."""
    protocol = draft.template.protocol
    scores = {one.record.id: one.score for one in answered if one.score is not None}
    points = {id: score - levels[id] for id, score in scores.items() if id in levels}
    parsed = [(one.record, protocol.read(one.text, one.record.tools)) for one in answered]
    read = [(record, answer) for record, answer in parsed if not answer.problem]
    better = [
        (points[record.id], instance)
        for record, answer in read
        if points.get(record.id, -5) > settings.epsilon
        and (instance := _instance(record, draft.template.name, answer, points[record.id]))
    ]
    gained = summary([*points.values()], settings.seed) if points else None
    score = fmean(scores.values()) if scores else None
    readable = len(read) / len(parsed) if parsed else 0.0
    if not gained or score is None:
        fault = "no score"
    elif gained.mean <= settings.epsilon:
        fault = "not better"
    elif score <= settings.threshold:
        fault = "below the threshold"
    else:
        fault = "" if readable >= READABLE else "answers that do not read"
    return Draft(draft.number, draft.template, fault, "", gained, score, readable, better)
