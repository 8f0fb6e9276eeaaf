"""Training records + a model -> prompt templates that are better than known protocols, as files.

The Meta-Agent of seed 003 writes a template for like requests. Templates and known protocols answer
the same requests; a judge scores the answers. Those that are better are rows for prep as well.
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

from msgspec import to_builtins

from agentlite.config.settings import TemplatesSettings
from agentlite.core import console
from agentlite.core.errors import RowError, UserError, exceeds_share
from agentlite.core.kept_replies import KeptReply, ask_once
from agentlite.core.openai_client import Endpoint, Question, refuse_unanswered
from agentlite.core.records import Record, from_row, to_row
from agentlite.core.row_files import read_rows, replacing, row_file, write_rows
from agentlite.data.curation.mix import sample
from agentlite.data.curation.validate import end_with
from agentlite.engine.remote import make_endpoints
from agentlite.rendering import Protocol, first_messages, parse_mixture, reading_problem
from agentlite.rendering.protocols import prompt_template
from agentlite.rendering.template import Template
from agentlite.retrieval.rankers import words
from agentlite.scoring.judge import llm_judge
from agentlite.scoring.metrics.confidence import Summary, summary
from agentlite.scoring.metrics.figures import JudgeRun
from agentlite.stages import teacher
from agentlite.stages.frame import Figures, Files, Work, plan_of, run_stage
from agentlite.workspace import lookup
from agentlite.workspace.input_files import load_template
from agentlite.workspace.lookup import Result, RunTarget, model_of_prep

TEMPLATES = "templates.jsonl"
INSTANCES = "instances.jsonl"
LEAST_READABLE = 0.5  # share of a template's answers that must read
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
# format() fills in {requests} and {style}, and leaves {tools} of {{tools}}, for the model to write
META_PROMPT = """You design prompts for agents that use tools. Write one prompt template for an agent that gets requests such as these:
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
OPENING_TAG = re.compile(rf"<({'|'.join(prompt_template.SLOTS)})>")
CLOSING_TAG = re.compile(rf"</({'|'.join(prompt_template.SLOTS)})>")


class Draft(NamedTuple):
    """A template that was written. `fault`: why it is not kept, with a `detail`; "" if it is.

    On the requests where it and every benchmark have a score: how many `points`, of 5, it is above
    the mean of the benchmarks. `score`: its own mean; `readable`: the share of its answers that
    read; `instances`: those that read and are more than epsilon above the benchmarks, as records,
    each with its points.
    """

    number: int
    template: prompt_template.PromptTemplate
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


def run(settings: TemplatesSettings, target: RunTarget) -> Result:
    """What was answered is kept, whatever ends it."""
    endpoints = teacher.endpoints_of(settings, "make templates")
    judge = _judge_endpoint(settings)
    benchmark = parse_mixture(settings.benchmark).protocols
    if native := next((name for name, protocol in benchmark.items() if protocol.native), ""):
        raise UserError(
            f"'{native}' is written by the server's own chat template.",
            "Name others: --benchmark autogpt,toolllama.",
            location="--benchmark",
        )
    prep = lookup.find_finished_stage(settings.data, target.run, "prep")
    rows = row_file(prep.folder, "train")
    usable = [record for record in map(from_row, read_rows(rows)) if _is_usable(record, benchmark)]
    if not usable:
        raise UserError(
            "holds no training record with tools whose first turn can be asked.",
            "Name another prep: --data NAME.",
            location=f"--data {shlex.quote(settings.data)}",
        )
    records = [usable[index] for index in sample(usable, settings.num_queries, settings.seed)]

    def work() -> Work:
        answers = len(records) * (settings.num_templates + len(benchmark))
        counts = {"requests": len(records), "templates": settings.num_templates}
        stage = yield {**counts, "answers": answers, "scores": answers}
        path, questions = stage.folder / teacher.REPLIES, _questions(settings, usable)
        replies = teacher.ask(endpoints, questions, settings, path, "templates: written")
        template = load_template(model_of_prep(str(prep.folder), target.run).base)
        drafts = [_read_draft(number, reply, template) for number, reply in enumerate(replies)]
        prompt_templates = [draft.template for draft in drafts if not draft.fault]
        judge_run = None
        if prompt_templates:
            protocols = {**benchmark, **{t.name: t.protocol for t in prompt_templates}}
            texts, judged = _ask_and_judge(
                settings, endpoints, judge, protocols, records, stage.folder
            )
            judge_run = judged.run
            drafts = [
                draft
                if draft.fault
                else _measure(settings, draft, benchmark, records, texts, judged.scores)
                for draft in drafts
            ]
        return _write(stage.folder, drafts, judge_run)

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
        keep=[teacher.REPLIES],
    )


def _write(folder: Path, drafts: Sequence[Draft], judge: JudgeRun | None) -> tuple[Files, Figures]:
    """Writes the templates that are good enough, and their best answers as records."""
    kept_drafts = [draft for draft in drafts if not draft.fault]
    write_rows(folder / TEMPLATES, (draft.row for draft in drafts))
    instances = [instance for draft in kept_drafts for instance in draft.instances]
    best: dict[str, Record] = {}  # of each request: prep takes copies out
    for _, record in sorted(instances, key=lambda instance: -instance[0]):
        best.setdefault(record.meta["instance"]["record"], record)
    write_rows(folder / INSTANCES, map(to_row, best.values()))
    figures = {
        "written": len(drafts),
        "kept": len(kept_drafts),
        "dropped": dict(Counter(draft.fault for draft in drafts if draft.fault).most_common()),
        "instances": len(best),
        "judge": to_builtins(judge),
    }
    teacher.write_stats(
        folder,
        figures,
        "no template is good enough",
        "a stronger model, more templates (-n), another --epsilon or --threshold",
    )
    files = {
        f"{draft.template.name}{prompt_template.SUFFIX}": prompt_template.to_text(draft.template)
        for draft in kept_drafts
    }
    for name, text in files.items():
        with replacing(folder / name) as file:
            file.write(text.encode())
    outputs = [TEMPLATES, INSTANCES, teacher.REPLIES, llm_judge.VERDICTS, teacher.STATS, *files]
    return outputs, figures


def key_figure(figures: Mapping[str, Any]) -> str:
    return f"{figures['kept']} of {figures['written']} templates"


def _judge_endpoint(settings: TemplatesSettings) -> Endpoint:
    """The judge's server; where none is named, the first of the teacher's."""
    url = settings.judge_endpoint
    model = settings.judge_model or ("" if url else settings.model)
    key = settings.judge_key if url else settings.endpoint_key
    urls = (url or settings.endpoint[0],)
    return make_endpoints(urls, model, key, "--judge-endpoint", settings.requests)[0]


def _is_usable(record: Record, benchmark: Mapping[str, Protocol]) -> bool:
    """Whether a record has tools, and its first turn can be asked in every benchmark."""
    turn = next(iter(record.turns), 0)
    is_asked = any(message.role == "user" for message in record.messages[:turn])
    if not record.tools or not is_asked or turn not in record.prompted_turns:
        return False
    try:
        for protocol in benchmark.values():
            first_messages(record, turn, protocol)
    except RowError:
        return False
    return True


def _questions(settings: TemplatesSettings, records: Sequence[Record]) -> list[Question]:
    """What the model is asked for each candidate: a request with those that share most words with
    it, and another style.
    """
    messages = (m for record in records for m in record.messages)
    words_of = {m.content: {*words(m.content)} for m in messages if m.role == "user"}
    questions = []
    for number in range(settings.num_templates):
        request = Random(f"{settings.seed} template {number}").choice([*words_of])
        similarity = {
            other: len(words_of[request] & others) / max(1, len(words_of[request] | others))
            for other, others in words_of.items()
        }
        near = sorted(similarity, key=lambda other: (other != request, -similarity[other], other))
        style, requests = STYLES[number % len(STYLES)], teacher.bullet_list(near[: settings.near])
        text = META_PROMPT.format(requests=requests, style=style)
        questions.append(teacher.question(settings, text, settings.seed * 1000 + number))
    return questions


def _read_draft(number: int, reply: KeptReply, template: Template) -> Draft:
    formats, listings = [*prompt_template.FORMATS], [*prompt_template.LISTINGS]
    text, fault, detail = teacher.read_reply(reply)
    opening, closings = OPENING_TAG.search(text), [*CLOSING_TAG.finditer(text)]
    if not fault and not opening:
        fault, detail = "no template", f"{text[:60]!r}"
    if opening and closings and closings[-1].end() > opening.start():
        text = text[opening.start() : closings[-1].end()]  # without what it says around them
    # all ways to write a call come first with one way to list the tools, then with the next
    prompt = prompt_template.PromptTemplate(
        f"meta-{number + 1:02d}",
        text,
        formats[number % len(formats)],
        listings[number // len(formats) % len(listings)],
    )
    if not fault:
        fault, detail = prompt_template.slot_problem(text)
    if not fault and (detail := reading_problem(prompt.protocol, template)):
        fault = "not read back"
    return Draft(number, prompt, fault, detail)


def _ask_and_judge(
    settings: TemplatesSettings,
    endpoints: Sequence[Endpoint],
    judge: Endpoint,
    protocols: Mapping[str, Protocol],
    records: Sequence[Record],
    folder: Path,
) -> tuple[dict[str, str], llm_judge.JudgeResult]:
    """Answers to the first turn of each record in each protocol, and a judge's scores of them, both
    by the protocol's name and the record's id: "meta-01 0123456789abcdef". What was answered is
    kept, whatever ends this.
    """
    greedy = {"temperature": 0, "max_tokens": settings.max_new_tokens}
    steps = {f"{name} {record.id}": (name, record) for name in protocols for record in records}
    questions = [
        Question(first_messages(record, record.turns[0], protocols[name]), greedy)
        for name, record in steps.values()
    ]
    path = folder / teacher.REPLIES
    replies = teacher.ask(endpoints, questions, settings, path, "templates: answers")
    texts = {
        key: teacher.read_reply(reply)[0]
        for key, reply in zip(steps, replies, strict=True)
        if not reply.problem
    }
    items = [
        llm_judge.item_at(key, record, record.turns[0], texts[key])
        for key, (_, record) in steps.items()
        if key in texts
    ]
    questions = [llm_judge.question_of(item) for item in items]
    with console.progress("templates: scores", len(items)) as advance:
        verdicts = ask_once([judge], questions, folder / llm_judge.VERDICTS, advance=advance)
    judged = llm_judge.read_scores(items, verdicts, judge)
    # a judge that thinks until it is cut off says nothing either: `unanswered` has such replies too
    if exceeds_share(len(judged.unanswered), len(items), settings.max_failures):
        refuse_unanswered(judged.unanswered, len(items), "--judge-endpoint", "")
    return texts, judged


def _measure(
    settings: TemplatesSettings,
    draft: Draft,
    benchmark: Iterable[str],
    records: Sequence[Record],
    texts: Mapping[str, str],
    scores: Mapping[str, int],
) -> Draft:
    """What a template has over the benchmark. `texts`, `scores`: see `_ask_and_judge`."""
    name, protocol = draft.template.name, draft.template.protocol

    def by_record(protocol_name: str) -> dict[str, int]:
        ids = (record.id for record in records)
        return {id: scores[key] for id in ids if (key := f"{protocol_name} {id}") in scores}

    own_scores, other_scores = by_record(name), [by_record(other) for other in benchmark]
    points_by_id = {
        id: score - fmean(other[id] for other in other_scores)
        for id, score in own_scores.items()
        if all(id in other for other in other_scores)
    }
    answers = [
        (record, protocol.read(texts[key], record.tools))
        for record in records
        if (key := f"{name} {record.id}") in texts
    ]
    readable = fmean(not answer.problem for _, answer in answers) if answers else 0.0
    instances = []
    for record, answer in answers:
        gain = points_by_id.get(record.id, -5)
        if not answer.problem and gain > settings.epsilon:
            origin = {"protocol": name, "instance": {"record": record.id, "points": gain}}
            prompt, meta = record.messages[: record.turns[0]], {**record.meta, **origin}
            if instance := end_with(record, prompt, answer, gold={}, meta=meta):
                instances.append((gain, instance))
    points = summary([*points_by_id.values()], settings.seed) if points_by_id else None
    score = fmean(own_scores.values()) if own_scores else None
    faults = {
        "no score": points is None or score is None,
        "not better": points is not None and points.mean <= settings.epsilon,
        "below the threshold": score is not None and score <= settings.threshold,
        "answers that do not read": readable < LEAST_READABLE,
    }
    fault = next((fault for fault, is_so in faults.items() if is_so), "")
    return Draft(draft.number, draft.template, fault, "", points, score, readable, instances)
