"""Seed queries + a model -> new queries like them: no copies, no leaks, counted by cluster."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from math import isqrt
from typing import Any

from agentlite.config.settings import QueriesSettings
from agentlite.core.records import Message, Record
from agentlite.core.row_files import write_json, write_rows
from agentlite.data.curation.duplicates import leaks, read_held_out
from agentlite.data.curation.minhash import text_copies
from agentlite.data.curation.traits import Traits, normal, traits
from agentlite.data.formats import files_of, raw_files
from agentlite.engine import sentence_encoder
from agentlite.retrieval.clusters import clusters, nearest_cluster
from agentlite.stages.frame import Figures, Files, plan_of, run_stage
from agentlite.stages.queries.requests import NewQuery, near_queries, read_reply, request
from agentlite.stages.queries.seeds import SeedQuery, find_seeds
from agentlite.stages.teacher import REPLIES, answers, nothing_kept, teacher_of
from agentlite.workspace.digests import file_digest
from agentlite.workspace.encoder_source import find_encoder
from agentlite.workspace.run_folder import Result, RunTarget, StageFolder

QUERIES, DROPPED = "queries.jsonl", "dropped.jsonl"
ROUNDS = 4  # of requests, where too few of the queries could be kept
LONGEST_READ = 96  # tokens of a query that the encoder reads


def run(settings: QueriesSettings, target: RunTarget) -> Result:
    """What was answered is kept, whatever ends it."""
    teacher = teacher_of(settings, "make queries", target.begun)
    seed_input = find_seeds(settings, target.run)
    seeds = seed_input.queries
    source = find_encoder(settings.encoder, target.run)
    held = [file for rows in settings.holdout for file in files_of(rows)]
    inputs = {seed_input.name: seed_input.digest, "model": teacher.digest, "encoder": source.digest}
    inputs |= {f"holdout {file}": ",".join(map(file_digest, raw_files(file))) for file in held}

    def work(stage: StageFolder) -> tuple[Files, Figures]:
        held_out = read_held_out(held).traits if held else []
        encoder = sentence_encoder.load(source, LONGEST_READ)
        vectors = sentence_encoder.embed(encoder, [seed.text for seed in seeds])
        count = settings.clusters or max(1, isqrt(len(seeds) // 2))
        labels, centres = clusters(vectors, min(count, len(seeds)), settings.seed)

        def ask(numbers: range) -> list[NewQuery]:
            near = [near_queries(settings, labels, vectors, number) for number in numbers]
            asked = [
                request(settings, near_seeds, seeds, number)
                for near_seeds, number in zip(near, numbers, strict=True)
            ]
            replies = answers(teacher, asked, settings, stage.folder / REPLIES, "queries: requests")
            pairs = zip(near, replies, strict=True)
            return [query for one, reply in pairs for query in read_reply(reply, one, seeds)]

        made: list[NewQuery] = []
        requests = 0
        for _ in range(ROUNDS):
            missing = settings.num_queries - sum(not query.fault for query in made)
            if missing <= 0:
                break
            numbers = range(requests, requests + -(-missing // settings.per_request))
            requests = numbers.stop
            made = _compare([*made, *ask(numbers)], seeds, held_out)
        kept = [query for query in made if not query.fault][: settings.num_queries]
        dropped = [query for query in made if query.fault]
        write_rows(
            stage.folder / DROPPED,
            ({"text": query.text, "fault": query.fault} for query in dropped),
        )
        new_labels: list[int] = []
        if kept:
            new_vectors = sentence_encoder.embed(encoder, [query.text for query in kept])
            new_labels = nearest_cluster(new_vectors, centres)
        figures: dict[str, Any] = {
            "wanted": settings.num_queries,
            "kept": len(kept),
            "requests": requests,
            "seeds": len(seeds),
            "dropped": dict(Counter(query.fault for query in dropped).most_common()),
            "clusters": _cluster_figures(seeds, labels, new_labels, len(centres)),
        }
        write_json(stage.folder / "stats.json", figures)
        if not kept:
            raise nothing_kept(
                "agentlite make queries",
                "no query could be kept",
                figures["dropped"],
                f"Read {DROPPED} in the stage's folder; take a stronger model, with --force.",
            )
        rows = (_row(query, label, seeds) for query, label in zip(kept, new_labels, strict=True))
        write_rows(stage.folder / QUERIES, rows)
        return [QUERIES, DROPPED, REPLIES, "stats.json"], figures

    path = shlex.quote(str(target.folder / QUERIES))
    return run_stage(
        plan_of("queries", settings, inputs),
        target,
        dry_run=lambda: {"seeds": len(seeds), "wanted": settings.num_queries},
        work=work,
        next_command=f"agentlite pairs --data {path} --endpoint URL --model NAME",
        keep=[REPLIES],
        token_budget=settings.token_budget,
    )


def _cluster_figures(
    seeds: Sequence[SeedQuery], labels: Sequence[int], new_labels: Sequence[int], count: int
) -> list[dict[str, Any]]:
    """An example of each cluster, its seeds and its new queries."""
    of_seeds, of_new = Counter(labels), Counter(new_labels)
    return [
        {
            "example": seeds[labels.index(number)].text[:80],
            "seeds": of_seeds[number],
            "new": of_new[number],
        }
        for number in range(count)
    ]


def key_figure(figures: Mapping[str, Any]) -> str:
    return f"{figures['kept']} of {figures['wanted']} queries"


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
    for at in text_copies(texts):
        if at >= len(seeds):
            faults[left[at - len(seeds)]] = "copy"
    return [
        query._replace(fault=faults.get(place, query.fault)) for place, query in enumerate(made)
    ]


def _row(query: NewQuery, label: int, seeds: Sequence[SeedQuery]) -> dict[str, Any]:
    """A prompt, as `pairs --data` reads it: with the tools of the seed that it was made near."""
    near = [seeds[number] for number in query.near.seeds]
    return {
        "prompt": query.text,
        "tools": [tool.schema for tool in near[0].tools],
        "meta": {"cluster": label, "near": [seed.text for seed in near]},
    }
