"""Seed queries + a model -> new queries like them: no copies, no leaks, counted by cluster."""

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import isqrt
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from agentlite.config.settings import QueriesSettings
from agentlite.core.errors import UserError
from agentlite.core.kept_replies import KeptReply
from agentlite.core.openai_client import Question
from agentlite.core.records import Message, Record, Tool, from_row
from agentlite.core.row_files import find_rows, read_rows, write_rows
from agentlite.data.curation.duplicates import leaks, read_held_out
from agentlite.data.curation.minhash import copies_among
from agentlite.data.curation.stats import script_of
from agentlite.data.curation.traits import Traits, normal, traits
from agentlite.data.formats.raw_rows import files_of, raw_files
from agentlite.data.prompt_records import Prompts
from agentlite.engine import sentence_encoder
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
from agentlite.workspace.digests import file_digest
from agentlite.workspace.model_source import find_encoder
from agentlite.workspace.stage_folder import Result, RunTarget

QUERIES, DROPPED = "queries.jsonl", "dropped.jsonl"
ROUNDS = 4  # of requests, where too few of the queries could be kept
LONGEST_READ = 96  # tokens of a query that the encoder reads
SHORTEST, LONGEST = 8, 2000  # bytes and characters of a query
LONGEST_SHOWN = 500  # characters of a near query, and of what its tools do
MOST_TOOLS = 12
# a place that was to be filled: <city>, [your name], {date}, "..."
PLACE = re.compile(r"<[A-Za-z_ ]{2,30}>|\[[A-Za-z_ ]{2,30}\]|\{[A-Za-z_ ]{1,30}\}|^\W*\.\.\.\W*$")
LETTER = re.compile(r"[^\W\d_]")
REPEATED = re.compile(r"(.{1,20}?)\1{7,}", re.DOTALL)
ASK = """These are requests that users make of an assistant with tools:
{near}
{tools}
Write {count} new requests of the same kind by other users, in the same language. Each must ask for something else, with names, dates and numbers of its own, and say all that is needed. Vary length, tone and order.
Answer with a JSON list of {count} strings and nothing else."""  # noqa: E501  (a paragraph of the prompt is one line)


class SeedQuery(NamedTuple):
    """`tools`: those on offer where it was asked."""

    text: str
    tools: tuple[Tool, ...] = ()


class NewQuery(NamedTuple):
    """`near`: the seeds that its request has shown, of one `cluster`; the first is their anchor.
    `fault`: the kind of why it is not kept; "" if it is.
    """

    text: str
    cluster: int
    near: Sequence[SeedQuery]
    fault: str = ""


class Clusters:
    """Seeds that are alike: `labels` has the cluster of each, the largest first. Equal seeds share
    one, so that there may be fewer than are wanted.
    """

    def __init__(self, settings: QueriesSettings, seeds: Sequence[SeedQuery], encoder: Any):
        import numpy
        from sklearn.cluster import KMeans

        self.settings, self.seeds = settings, seeds
        self.vectors = sentence_encoder.embed(encoder, [seed.text for seed in seeds])
        wanted = settings.clusters or max(1, isqrt(len(seeds) // 2))
        count = min(wanted, len(numpy.unique(self.vectors, axis=0)))
        means = KMeans(count, n_init=10, random_state=settings.seed)
        found = means.fit(self.vectors).labels_.tolist()
        rank = {label: place for place, (label, _) in enumerate(Counter(found).most_common())}
        self.labels = [rank[label] for label in found]

    def near(self, number: int) -> tuple[int, list[SeedQuery]]:
        """What request `number` shows: a cluster, in turn, and the seeds next to an anchor in
        it.
        """
        cluster = number % (max(self.labels) + 1)
        members = [place for place, label in enumerate(self.labels) if label == cluster]
        anchor = Random(f"{self.settings.seed} queries {number}").choice(members)
        likeness = self.vectors @ self.vectors[anchor]
        members.sort(key=lambda place: (place != anchor, -likeness[place], place))
        return cluster, [self.seeds[place] for place in members[: self.settings.near]]


def run(settings: QueriesSettings, target: RunTarget) -> Result:
    """What was answered is kept, whatever ends it."""
    teacher = teacher_of(settings, "make queries")
    seeds, inputs = find_seeds(settings, target.run)
    source = find_encoder(settings.encoder, target.run)
    held = [file for rows in settings.holdout for file in files_of(rows)]
    inputs |= {"model": settings.endpoint[0], "encoder": source.digest}
    inputs |= {f"holdout {file}": ",".join(map(file_digest, raw_files(file))) for file in held}

    def work() -> Work:
        stage = yield {"seeds": len(seeds), "wanted": settings.num_queries}
        held_out = read_held_out(held).traits if held else []
        clusters = Clusters(settings, seeds, sentence_encoder.load(source, LONGEST_READ))
        made: list[NewQuery] = []
        requests = 0
        for _ in range(ROUNDS):
            missing = settings.num_queries - sum(not query.fault for query in made)
            if missing <= 0:
                break
            numbers = range(requests, requests + -(-missing // settings.per_request))
            near = [clusters.near(number) for number in numbers]
            asked = [
                _request(settings, shown, number)
                for number, (_, shown) in zip(numbers, near, strict=True)
            ]
            replies = answers(teacher, asked, settings, stage.folder, "queries: requests")
            for reply, (cluster, shown) in zip(replies, near, strict=True):
                scripts = {script_of(seed.text) for seed in shown}
                read = _read_reply(reply, scripts)
                made += [NewQuery(text, cluster, shown, fault) for text, fault in read]
            made = _compare(made, seeds, held_out)
            requests = numbers.stop
        return _write(settings, stage.folder, clusters, made, requests)

    path = shlex.quote(str(target.folder / QUERIES))
    return run_stage(
        plan_of("queries", settings, inputs),
        target,
        work(),
        next_command=f"agentlite pairs --data {path} --endpoint URL --model NAME",
        keep=[REPLIES],
    )


def _write(
    settings: QueriesSettings,
    folder: Path,
    clusters: Clusters,
    made: Sequence[NewQuery],
    requests: int,
) -> tuple[Files, Figures]:
    """The queries that are kept are prompts as `pairs --data` reads them, with the tools of the
    seed that each was made near.
    """
    kept = [query for query in made if not query.fault][: settings.num_queries]
    dropped = [{"text": query.text, "fault": query.fault} for query in made if query.fault]
    write_rows(folder / DROPPED, dropped)
    of_seeds = Counter(clusters.labels)
    of_new = Counter(query.cluster for query in kept)
    figures = {
        "wanted": settings.num_queries,
        "kept": len(kept),
        "requests": requests,
        "seeds": len(clusters.seeds),
        "dropped": dict(Counter(row["fault"] for row in dropped).most_common()),
        "clusters": [
            {
                "example": clusters.seeds[clusters.labels.index(number)].text[:80],
                "seeds": of_seeds[number],
                "new": of_new[number],
            }
            for number in sorted(of_seeds)
        ],
    }
    tell(folder, figures, "no query could be kept", "a stronger model")
    rows = (
        {
            "prompt": query.text,
            "tools": [tool.schema for tool in query.near[0].tools],
            "meta": {"cluster": query.cluster, "near": [seed.text for seed in query.near]},
        }
        for query in kept
    )
    write_rows(folder / QUERIES, rows)
    return [QUERIES, DROPPED, REPLIES, STATS], figures


def key_figure(figures: Mapping[str, Any]) -> str:
    return f"{figures['kept']} of {figures['wanted']} queries"


def find_seeds(settings: QueriesSettings, run: Path) -> tuple[list[SeedQuery], dict[str, str]]:
    """The queries to begin with, each once: those of the training records of a prep, or of a file
    of prompts. With the digest of the input, by its name in a plan.
    """
    if settings.queries:
        records = Prompts(settings.queries, "", "", False).records()
        inputs = {settings.queries: file_digest(Path(settings.queries))}
    else:
        prep = stage_folder.find_finished(settings.data, run, "prep")
        rows = find_rows(prep.folder, "train")
        records = map(from_row, read_rows(rows))
        inputs = {"data": prep.outputs[rows.name]}
    first: dict[str, SeedQuery] = {}
    for record in records:
        texts = (message.content for message in record.messages if message.role == "user")
        if (text := next(texts, "")).strip():
            first.setdefault(normal(text), SeedQuery(text, record.tools))
    if not first:
        raise UserError(
            "holds no query.",
            "Name a prep whose training records begin with a user, or a file: --queries FILE.",
            location=settings.queries or f"--data {shlex.quote(settings.data)}",
        )
    return [*first.values()], inputs


def _request(settings: QueriesSettings, near: Sequence[SeedQuery], number: int) -> Question:
    shown = "\n".join(f"- {_line(seed.text)}" for seed in near)
    tools = [f"- {tool.name}: {_line(tool.description)}" for tool in near[0].tools]
    about = "\nThe tools:\n" + "\n".join(tools[:MOST_TOOLS]) + "\n" if tools else ""
    text = ASK.format(near=shown, tools=about, count=settings.per_request)
    return question(settings, text, settings.seed * 100_000 + number)


def _line(text: str) -> str:
    return " ".join(text.split())[:LONGEST_SHOWN]


def _read_reply(reply: KeptReply, scripts: set[str]) -> Iterator[tuple[str, str]]:
    """The queries of a reply, with what is wrong with each by itself; one with a fault for a reply
    that is not a list.
    """
    fault, _ = fault_of(reply)
    written = words_of(reply)
    if fault:
        yield reply.problem or written, fault
        return
    try:
        values = json.JSONDecoder().raw_decode(written, written.index("["))[0]
    except (ValueError, RecursionError):
        yield written, "not a list"
        return
    for value in values:
        if not isinstance(value, str):
            yield json.dumps(value, ensure_ascii=False), "not a text"
            continue
        text = value.strip()
        fault = "" if script_of(text) in scripts else "other language"
        # half a sentence, a place to fill, one thing over and over, or no words at all
        is_short = len(text.encode("utf-8", "replace")) < SHORTEST or len(text) > LONGEST
        if is_short or not LETTER.search(text) or PLACE.search(text) or REPEATED.search(text):
            fault = "nonsense"
        yield text, fault


def _compare(
    made: Sequence[NewQuery], seeds: Sequence[SeedQuery], held_out: Sequence[Traits]
) -> list[NewQuery]:
    """With the faults that only the other queries show: copies of a seed or of an earlier query,
    and leaks of a held-out one.
    """
    whole = [place for place, query in enumerate(made) if not query.fault]
    faults: dict[int, str] = {}
    if held_out:
        records = {at: traits(Record(messages=(Message("user", made[at].text),))) for at in whole}
        faults |= dict.fromkeys(leaks(records, held_out), "leak")
    left = [place for place in whole if place not in faults]
    texts = [normal(seed.text) for seed in seeds] + [normal(made[place].text) for place in left]
    # a seed may be near another seed: only what comes behind them is dropped
    for at in copies_among(range(len(texts)), texts.__getitem__):
        if at >= len(seeds):
            faults[left[at - len(seeds)]] = "copy"
    return [
        query._replace(fault=faults.get(place, query.fault)) for place, query in enumerate(made)
    ]
