"""Seed queries + a model -> new queries like them: no copies, no leaks, counted by cluster."""

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import isqrt
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from agentlite.config.settings import QueriesSettings
from agentlite.core.errors import UserError
from agentlite.core.kept_replies import KeptReply
from agentlite.core.openai_client import Question
from agentlite.core.records import Message, Record, Tool, to_json
from agentlite.core.row_files import write_rows
from agentlite.data.curation.duplicates import leaks, read_held_out
from agentlite.data.curation.minhash import copies_among
from agentlite.data.curation.traits import Traits, normalize, script_of, traits
from agentlite.data.formats.raw_rows import files_of, raw_files
from agentlite.data.prompt_records import Prompts, prompts_of_prep
from agentlite.engine import sentence_encoder
from agentlite.stages import teacher
from agentlite.stages.frame import Figures, Files, Work, plan_of, run_stage
from agentlite.workspace.input_files import file_digest
from agentlite.workspace.lookup import Result, RunTarget, find_encoder

QUERIES, DROPPED = "queries.jsonl", "dropped.jsonl"
ROUNDS = 4  # of requests, where too few of the queries could be kept
LONGEST_READ = 96  # tokens of a query that the encoder reads
SHORTEST, LONGEST = 8, 2000  # bytes and characters of a query
MOST_TOOLS = 12
# what was to be filled in: <city>, [your name], {date}, "..."
PLACEHOLDER = re.compile(
    r"<[A-Za-z_ ]{2,30}>|\[[A-Za-z_ ]{2,30}\]|\{[A-Za-z_ ]{1,30}\}|^\W*\.\.\.\W*$"
)
LETTER = re.compile(r"[^\W\d_]")
# at most 20 characters, eight times in a row: "ha ha ha ha ha ha ha ha "
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


def cluster_seeds(
    settings: QueriesSettings, seeds: Sequence[SeedQuery], encoder: Any
) -> tuple[list[int], Callable[[int], tuple[int, list[SeedQuery]]]]:
    """The cluster of each seed, the largest first; and what request `number` shows: a cluster, in
    turn, and the seeds next to an anchor in it. Equal seeds share a cluster, so that there may be
    fewer than are wanted.
    """
    import numpy
    from sklearn.cluster import KMeans

    vectors = sentence_encoder.embed(encoder, [seed.text for seed in seeds])
    count = settings.clusters or max(1, isqrt(len(seeds) // 2))
    count = min(count, len(numpy.unique(vectors, axis=0)))
    labels = KMeans(count, n_init=10, random_state=settings.seed).fit(vectors).labels_.tolist()
    # cluster 0 is the largest one
    rank = {label: number for number, (label, _) in enumerate(Counter(labels).most_common())}
    cluster_of = [rank[label] for label in labels]

    def seeds_to_show(number: int) -> tuple[int, list[SeedQuery]]:
        cluster = number % len(rank)
        members = [index for index, other in enumerate(cluster_of) if other == cluster]
        anchor = Random(f"{settings.seed} queries {number}").choice(members)
        similarity = vectors @ vectors[anchor]
        members.sort(key=lambda index: (index != anchor, -similarity[index], index))
        return cluster, [seeds[index] for index in members[: settings.near]]

    return cluster_of, seeds_to_show


def run(settings: QueriesSettings, target: RunTarget) -> Result:
    """What was answered is kept, whatever ends it."""
    endpoints = teacher.endpoints_of(settings, "make queries")
    seeds, inputs = find_seeds(settings, target.run)
    source = find_encoder(settings.encoder, target.run)
    holdout = [file for rows in settings.holdout for file in files_of(rows)]
    inputs |= {"model": settings.endpoint[0], "encoder": source.digest}
    inputs |= {f"holdout {file}": ",".join(map(file_digest, raw_files(file))) for file in holdout}

    def work() -> Work:
        stage = yield {"seeds": len(seeds), "wanted": settings.num_queries}
        held_out = read_held_out(holdout)
        encoder = sentence_encoder.load(source, LONGEST_READ)
        cluster_of, seeds_to_show = cluster_seeds(settings, seeds, encoder)
        queries: list[NewQuery] = []
        requests = 0
        for _ in range(ROUNDS):
            missing = settings.num_queries - sum(not query.fault for query in queries)
            if missing <= 0:
                break
            # rounded up: 7 queries at 5 a request are 2 requests
            numbers = range(requests, requests + -(-missing // settings.per_request))
            shown = [seeds_to_show(number) for number in numbers]
            questions = [
                _request(settings, near, number)
                for number, (_, near) in zip(numbers, shown, strict=True)
            ]
            path = stage.folder / teacher.REPLIES
            replies = teacher.ask(endpoints, questions, settings, path, "queries: requests")
            for reply, (cluster, near) in zip(replies, shown, strict=True):
                queries += _read_queries(reply, cluster, near)
            queries = _mark_copies(queries, seeds, held_out)
            requests = numbers.stop
        return _write(settings, stage.folder, seeds, cluster_of, queries, requests)

    path = shlex.quote(str(target.folder / QUERIES))
    return run_stage(
        plan_of("queries", settings, inputs),
        target,
        work(),
        next_command=f"agentlite pairs --data {path} --endpoint URL --model NAME",
        keep=[teacher.REPLIES],
    )


def _write(
    settings: QueriesSettings,
    folder: Path,
    seeds: Sequence[SeedQuery],
    cluster_of: Sequence[int],
    queries: Sequence[NewQuery],
    requests: int,
) -> tuple[Files, Figures]:
    """The queries that are kept are prompts as `pairs --data` reads them, with the tools of the
    seed that each was made near.
    """
    kept_queries = [query for query in queries if not query.fault][: settings.num_queries]
    dropped = [{"text": query.text, "fault": query.fault} for query in queries if query.fault]
    write_rows(folder / DROPPED, dropped)
    seed_counts = Counter(cluster_of)
    new_counts = Counter(query.cluster for query in kept_queries)
    figures = {
        "wanted": settings.num_queries,
        "kept": len(kept_queries),
        "requests": requests,
        "seeds": len(seeds),
        "dropped": dict(Counter(row["fault"] for row in dropped).most_common()),
        "clusters": [
            {
                "example": seeds[cluster_of.index(cluster)].text[:80],
                "seeds": seed_counts[cluster],
                "new": new_counts[cluster],
            }
            for cluster in sorted(seed_counts)
        ],
    }
    teacher.write_stats(folder, figures, "no query could be kept", "a stronger model")
    rows = (
        {
            "prompt": query.text,
            "tools": [tool.schema for tool in query.near[0].tools],
            "meta": {"cluster": query.cluster, "near": [seed.text for seed in query.near]},
        }
        for query in kept_queries
    )
    write_rows(folder / QUERIES, rows)
    return [QUERIES, DROPPED, teacher.REPLIES, teacher.STATS], figures


def key_figure(figures: Mapping[str, Any]) -> str:
    return f"{figures['kept']} of {figures['wanted']} queries"


def find_seeds(settings: QueriesSettings, run: Path) -> tuple[list[SeedQuery], dict[str, str]]:
    """The queries to begin with, each once: those of the training records of a prep, or of a file
    of prompts. With the digest of the input, by its name in a plan.
    """
    if settings.queries:
        prompts = Prompts(settings.queries, file_digest(Path(settings.queries)), "", False)
    else:
        prompts = prompts_of_prep(settings.data, "train", run)
    by_text: dict[str, SeedQuery] = {}
    for record in prompts.records():
        texts = (message.content for message in record.messages if message.role == "user")
        if (text := next(texts, "")).strip():
            by_text.setdefault(normalize(text), SeedQuery(text, record.tools))
    if not by_text:
        raise UserError(
            "holds no query.",
            "Name a prep whose training records begin with a user, or a file: --queries FILE.",
            location=settings.queries or f"--data {shlex.quote(settings.data)}",
        )
    return [*by_text.values()], {settings.queries or "data": prompts.digest}


def _request(settings: QueriesSettings, near: Sequence[SeedQuery], number: int) -> Question:
    tools = teacher.bullet_list(
        f"{tool.name}: {tool.description}" for tool in near[0].tools[:MOST_TOOLS]
    )
    paragraph = f"\nThe tools:\n{tools}\n" if tools else ""
    seeds = teacher.bullet_list(seed.text for seed in near)
    text = ASK.format(near=seeds, tools=paragraph, count=settings.per_request)
    return teacher.question(settings, text, settings.seed * 100_000 + number)


def _read_queries(reply: KeptReply, cluster: int, near: Sequence[SeedQuery]) -> list[NewQuery]:
    """The queries of a reply, with what is wrong with each by itself; one with a fault for a reply
    that is not a list. `near`: the seeds that its request has shown.
    """
    text, fault, _ = teacher.read_reply(reply)
    if fault:
        return [NewQuery(reply.problem or text, cluster, near, fault)]
    try:
        values = json.JSONDecoder().raw_decode(text, text.index("["))[0]
    except (ValueError, RecursionError):
        return [NewQuery(text, cluster, near, "not a list")]
    scripts = {script_of(seed.text) for seed in near}
    return [
        NewQuery(value.strip(), cluster, near, _fault_of(value.strip(), scripts))
        if isinstance(value, str)
        else NewQuery(to_json(value), cluster, near, "not a text")
        for value in values
    ]


def _fault_of(text: str, scripts: set[str]) -> str:
    # half a sentence, a place to fill, one thing over and over, or no words at all
    is_short = len(text.encode("utf-8", "replace")) < SHORTEST or len(text) > LONGEST
    if is_short or not LETTER.search(text) or PLACEHOLDER.search(text) or REPEATED.search(text):
        return "nonsense"
    return "" if script_of(text) in scripts else "other language"


def _mark_copies(
    queries: Sequence[NewQuery], seeds: Sequence[SeedQuery], held_out: Sequence[Traits]
) -> list[NewQuery]:
    """With the faults that only the other queries show: copies of a seed or of an earlier query,
    and leaks of a held-out one.
    """
    good = {index: query.text for index, query in enumerate(queries) if not query.fault}
    faults: dict[int, str] = {}
    if held_out:
        records = {i: traits(Record(messages=(Message("user", text),))) for i, text in good.items()}
        faults |= dict.fromkeys(leaks(records, held_out), "leak")
    others = [index for index in good if index not in faults]
    texts = [*map(normalize, [*(seed.text for seed in seeds), *(good[i] for i in others)])]
    # a seed may be near another seed: only what comes behind them is dropped
    for position in copies_among(range(len(texts)), texts.__getitem__):
        if position >= len(seeds):
            faults[others[position - len(seeds)]] = "copy"
    return [
        query._replace(fault=faults.get(index, query.fault)) for index, query in enumerate(queries)
    ]
