"""Seed queries + a model -> new queries like them: no copies, no leaks, counted by cluster."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from math import isqrt
from typing import Any, NamedTuple

from agentlite.config import resolve
from agentlite.config.settings import QueriesSettings
from agentlite.core import console, server_usage
from agentlite.core.errors import REJECTS, UserError
from agentlite.core.records import Message, Record
from agentlite.core.row_files import write_json, write_rows
from agentlite.data.curation.decontaminate import leaks, read_held_out
from agentlite.data.curation.dedup import text_copies
from agentlite.data.curation.traits import Traits, normal, traits
from agentlite.data.formats import files_of, raw_files
from agentlite.engine import sentence_encoder
from agentlite.retrieval.clusters import clusters, nearest_cluster
from agentlite.stages.queries.requests import NewQuery, near_queries, read_reply, request
from agentlite.stages.queries.seeds import SeedQuery, Seeds, find_seeds
from agentlite.stages.teacher import REPLIES, answers, teacher_of
from agentlite.workspace import run_folder
from agentlite.workspace.digests import file_digest
from agentlite.workspace.encoder_source import find_encoder
from agentlite.workspace.run_folder import Plan, Result, RunTarget

QUERIES, DROPPED = "queries.jsonl", "dropped.jsonl"
ROUNDS = 4  # of requests, where too few of the queries could be kept
LONGEST_READ = 96  # tokens of a query that the encoder reads


class Grouped(NamedTuple):
    """The seeds with their vectors and clusters, and the centres of these."""

    seeds: list[SeedQuery]
    vectors: Any
    labels: list[int]
    centres: Any
    encoder: Any


def run(settings: QueriesSettings, target: RunTarget) -> Result:
    """Raises UserError 2, 3, 4, 5, 8, 74 or 75; what was answered is kept."""
    teacher = teacher_of(settings, "make queries", target.begun)
    found = find_seeds(settings, target.run)
    source = find_encoder(settings.encoder, target.run)
    held = [file for one in settings.holdout for file in files_of(one)]
    plan = Plan(
        "queries",
        resolve.plan_settings("queries", settings),
        {found.name: found.digest, "model": teacher.digest, "encoder": source.digest}
        | {f"holdout {one}": ",".join(map(file_digest, raw_files(one))) for one in held},
        run_folder.versions(),
    )
    if target.dry_run:
        status = "new" if target.force else run_folder.compare(target.folder, plan)
        planned = {"folder": status, "seeds": len(found.queries), "wanted": settings.num_queries}
        return Result("queries", "dry run", str(target.folder), planned, [], 0.0)
    held_out = read_held_out(held).traits if held else []
    with (
        console.stdout_to_stderr(),
        run_folder.open_stage(target.folder, plan, force=target.force) as stage,
        server_usage.counted(stage.folder, settings.token_budget) as usage,
    ):
        if stage.status != "done":
            encoder = sentence_encoder.load(source, LONGEST_READ)
            grouped = _grouped(settings, found, encoder)
            made: list[NewQuery] = []
            requests = 0
            for _ in range(ROUNDS):
                missing = settings.num_queries - sum(not one.fault for one in made)
                if missing <= 0:
                    break
                numbers = range(requests, requests + -(-missing // settings.per_request))
                requests = numbers.stop
                near = [
                    near_queries(settings, grouped.labels, grouped.vectors, number)
                    for number in numbers
                ]
                replies = answers(
                    teacher,
                    [
                        request(settings, one, grouped.seeds, number)
                        for one, number in zip(near, numbers, strict=True)
                    ],
                    settings,
                    stage.folder / REPLIES,
                    "queries: requests",
                )
                new = [
                    query
                    for one, reply in zip(near, replies, strict=True)
                    for query in read_reply(reply, one, grouped.seeds)
                ]
                made = _checked([*made, *new], grouped.seeds, held_out)
            kept = [one for one in made if not one.fault][: settings.num_queries]
            figures = _figures(settings, grouped, made, kept, requests)
            write_rows(
                stage.folder / DROPPED,
                ({"text": one.text, "fault": one.fault} for one in made if one.fault),
            )
            write_json(stage.folder / "stats.json", figures)
            if not kept:
                raise _none(figures["dropped"])
            write_rows(stage.folder / QUERIES, _rows(grouped, kept))
            stage.finish([QUERIES, DROPPED, REPLIES, "stats.json"], figures)
        path = target.folder / QUERIES
        answer = f"agentlite pairs --data {shlex.quote(str(path))} --endpoint URL --model NAME"
        return stage.result(target.next(answer), usage.figures())


def key_figure(figures: Mapping[str, Any]) -> str:
    return f"{figures['kept']} of {figures['wanted']} queries"


def _grouped(settings: QueriesSettings, found: Seeds, encoder: Any) -> Grouped:
    texts = [one.text for one in found.queries]
    vectors = sentence_encoder.embed(encoder, texts)
    count = settings.clusters or max(1, isqrt(len(texts) // 2))
    labels, centres = clusters(vectors, min(count, len(texts)), settings.seed)
    return Grouped(found.queries, vectors, labels, centres, encoder)


def _checked(
    made: Sequence[NewQuery], seeds: Sequence[SeedQuery], held_out: Sequence[Traits]
) -> list[NewQuery]:
    """With the faults that only the other queries show: copies of a seed or of an earlier query,
    and leaks of a held-out one.
    """
    whole = [place for place, one in enumerate(made) if not one.fault]
    faults: dict[int, str] = {}
    if held_out:
        records = [_traits(made[place].text) for place in whole]
        faults |= {whole[at]: "leak" for at in leaks(records, held_out)}
    left = [place for place in whole if place not in faults]
    texts = [normal(one.text) for one in seeds] + [normal(made[place].text) for place in left]
    # a seed may be near another seed: only what comes behind them is dropped
    for at in text_copies(texts):
        if at >= len(seeds):
            faults[left[at - len(seeds)]] = "copy"
    return [one._replace(fault=faults.get(place, one.fault)) for place, one in enumerate(made)]


def _traits(text: str) -> Traits:
    return traits(Record(messages=(Message("user", text),)))


def _rows(grouped: Grouped, kept: Sequence[NewQuery]) -> list[dict[str, Any]]:
    """Prompts, as `pairs --data` reads them: with the tools of the seed that each was made near."""
    return [
        {
            "prompt": one.text,
            "tools": [tool.schema for tool in grouped.seeds[one.near.seeds[0]].tools],
            "meta": {
                "cluster": label,
                "near": [grouped.seeds[number].text for number in one.near.seeds],
            },
        }
        for one, label in zip(kept, _labels(grouped, kept), strict=True)
    ]


def _labels(grouped: Grouped, kept: Sequence[NewQuery]) -> list[int]:
    vectors = sentence_encoder.embed(grouped.encoder, [one.text for one in kept])
    return nearest_cluster(vectors, grouped.centres)


def _figures(
    settings: QueriesSettings,
    grouped: Grouped,
    made: Sequence[NewQuery],
    kept: Sequence[NewQuery],
    requests: int,
) -> dict[str, Any]:
    of_seeds = Counter(grouped.labels)
    of_new = Counter(_labels(grouped, kept)) if kept else Counter[int]()
    return {
        "wanted": settings.num_queries,
        "kept": len(kept),
        "requests": requests,
        "seeds": len(grouped.seeds),
        "dropped": dict(Counter(one.fault for one in made if one.fault).most_common()),
        "clusters": [
            {
                "example": grouped.seeds[grouped.labels.index(number)].text[:80],
                "seeds": of_seeds[number],
                "new": of_new[number],
            }
            for number in range(len(grouped.centres))
        ],
    }


def _none(dropped: Mapping[str, int]) -> UserError:
    reasons = ", ".join(f"{kind} {count}" for kind, count in dropped.items())
    return UserError(
        f"no query could be kept: {reasons}.",
        f"Read {DROPPED} in the stage's folder; take a stronger model, with --force.",
        location="agentlite make queries",
        exit_code=REJECTS,
    )
