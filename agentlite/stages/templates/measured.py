"""Templates and known protocols on the same requests -> answers, a judge's scores, differences."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from agentlite.config.settings import TemplatesSettings
from agentlite.core import console
from agentlite.core.endpoint_pool import refuse_unanswered
from agentlite.core.openai_client import Endpoint
from agentlite.core.records import Record
from agentlite.engine.remote import Served
from agentlite.environments.simulators import SimulatorQuestion
from agentlite.rendering import Protocol, first_messages
from agentlite.scoring.judge.llm_judge import item_at, judge
from agentlite.scoring.metrics.confidence import Summary, summary
from agentlite.stages.teacher import answers

VERDICTS = "verdicts.jsonl"


class TemplateDifference(NamedTuple):
    """Of a template, on the requests where it and every benchmark have a score: how many points, of
    5, it is above the mean of the benchmarks; its own mean; the share of its answers that read.
    """

    points: Summary | None
    score: float | None
    readable: float


class MeasuredTemplates(NamedTuple):
    """`problems`: why the judge gave no score, with their numbers. `scores`: means by protocol."""

    differences: dict[str, TemplateDifference]
    scores: dict[str, float]
    problems: dict[str, int]
    tokens: int


def measure(
    settings: TemplatesSettings,
    teacher: Served,
    judging: Endpoint,
    benchmark: Mapping[str, Protocol],
    templates: Mapping[str, Protocol],
    records: Sequence[Record],
    replies: Path,
) -> MeasuredTemplates:
    """What was answered is kept in `replies` and beside it, whatever ends this."""
    every = {**benchmark, **templates}
    limit = ("max_tokens", settings.max_new_tokens)
    asked = {
        f"{name} {record.id}": (
            record,
            SimulatorQuestion(
                "teacher", tuple(first_messages(record, record.turns[0], protocol)), (limit,)
            ),
        )
        for name, protocol in every.items()
        for record in records
    }
    questions = [question for _, question in asked.values()]
    given = answers(teacher, questions, settings, replies, "templates: answers")
    texts = {
        place: reply.words for place, reply in zip(asked, given, strict=True) if not reply.problem
    }
    items = [
        item_at(place, asked[place][0], asked[place][0].turns[0], text)
        for place, text in texts.items()
    ]
    with console.progress("templates: scores", len(items)) as advance:
        result = judge(items, judging, replies.with_name(VERDICTS), advance=advance)
    if len(result.unanswered) > settings.max_failures * len(items):
        refuse_unanswered(result.unanswered, len(items), "--judge-endpoint", "")
    # by protocol and record
    scores = {
        name: {
            record.id: result.scores[place]
            for record in records
            if (place := f"{name} {record.id}") in result.scores
        }
        for name in every
    }
    means = {name: fmean(of.values()) for name, of in scores.items() if of}
    differences = {}
    for name, protocol in templates.items():
        points = [
            score - fmean(scores[other][record] for other in benchmark)
            for record, score in scores[name].items()
            if all(record in scores[other] for other in benchmark)
        ]
        read = [
            not protocol.read(texts[place], record.tools).problem
            for record in records
            if (place := f"{name} {record.id}") in texts
        ]
        differences[name] = TemplateDifference(
            summary(points, settings.seed) if points else None,
            means.get(name),
            fmean(read) if read else 0.0,
        )
    return MeasuredTemplates(
        differences,
        {name: means[name] for name in benchmark if name in means},
        result.problems,
        result.prompt_tokens + result.completion_tokens,
    )
