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
from agentlite.scoring.judge.llm_judge import judge
from agentlite.scoring.judge.rate_answers import item_at
from agentlite.scoring.metrics.confidence import Summary, summary
from agentlite.stages.teacher import answers

VERDICTS = "verdicts.jsonl"
Scores = Mapping[tuple[str, str], int]  # by protocol and record


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


def measured(
    settings: TemplatesSettings,
    teacher: Served,
    judging: Endpoint,
    benchmark: Mapping[str, Protocol],
    templates: Mapping[str, Protocol],
    records: Sequence[Record],
    replies: Path,
) -> MeasuredTemplates:
    """Raises UserError 8; what was answered is kept in `replies` and beside it."""
    every = {**benchmark, **templates}
    places = [(name, record) for name in every for record in records]
    wanted = [_question(settings, record, every[name]) for name, record in places]
    found = answers(teacher, wanted, settings, replies, "templates: answers")
    texts = {
        (name, record.id): reply.words
        for (name, record), reply in zip(places, found, strict=True)
        if not reply.problem
    }
    by_id = {record.id: record for record in records}
    items = [
        item_at(f"{name} {key}", by_id[key], _turn(by_id[key]), text)
        for (name, key), text in texts.items()
    ]
    with console.progress("templates: scores", len(items)) as advance:
        result = judge(items, judging, replies.with_name(VERDICTS), advance=advance)
    if len(result.unanswered) > settings.max_failures * len(items):
        refuse_unanswered(result.unanswered, len(items), "--judge-endpoint", "")
    scores = {
        place: result.scores[f"{place[0]} {place[1]}"]
        for place in texts
        if f"{place[0]} {place[1]}" in result.scores
    }
    differences = {}
    for name, protocol in templates.items():
        own = [by_id[key] for one, key in texts if one == name]
        read = [not protocol.read(texts[name, one.id], one.tools).problem for one in own]
        points, score = difference(name, [*benchmark], [one.id for one in records], scores)
        differences[name] = TemplateDifference(
            summary(points, settings.seed) if points else None,
            score,
            fmean(read) if read else 0.0,
        )
    means = {name: score for name in benchmark if (score := _mean(name, scores)) is not None}
    return MeasuredTemplates(
        differences, means, result.problems, result.prompt_tokens + result.completion_tokens
    )


def difference(
    name: str, benchmark: Sequence[str], records: Sequence[str], scores: Scores
) -> tuple[list[float], float | None]:
    """The points by which a template is above the mean of the benchmarks, record by record, where
    all of them have a score; and its mean score.
    """
    points = [
        scores[name, record] - fmean(scores[one, record] for one in benchmark)
        for record in records
        if all((one, record) in scores for one in (name, *benchmark))
    ]
    return points, _mean(name, scores)


def _mean(name: str, scores: Scores) -> float | None:
    own = [score for (one, _), score in scores.items() if one == name]
    return fmean(own) if own else None


def _question(settings: TemplatesSettings, record: Record, protocol: Protocol) -> SimulatorQuestion:
    messages = first_messages(record, _turn(record), protocol)
    return SimulatorQuestion("teacher", tuple(messages), (("max_tokens", settings.max_new_tokens),))


def _turn(record: Record) -> int:
    return record.turns[0]
