"""Train records -> the same records, with tools of other records among those that are offered."""

import random
from collections.abc import Sequence

from msgspec.structs import replace

from agentlite.core.records import Record, Tool, canonical, digest
from agentlite.data.curation.hard_negatives import expected_by_query
from agentlite.data.curation.traits import always_expects_calls, first_query


def add_distractors(records: Sequence[Record], *, n: int, seed: int) -> list[Record]:
    """The records in their own order; each that has one tool gets 0 to `n` tools of the others, in
    a seeded order.

    0 is among them, so that a single tool does not show that no call is expected. A foreign tool
    has another name than its own, and is expected in no record with the same first query.
    """
    pool = _tools_by_name([record for record in records if "made" not in record.meta])
    names = sorted(pool)
    expected = expected_by_query(records)
    return [
        _with_foreign(record, pool, names, expected[first_query(record)], n, seed)
        for record in records
    ]


def _tools_by_name(records: Sequence[Record]) -> dict[str, Tool]:
    """One tool of each name: of several, the one whose schema sorts first."""
    tools = {canonical(tool.schema): tool for record in records for tool in record.tools}
    return {tools[schema].name: tools[schema] for schema in sorted(tools, reverse=True)}


def _with_foreign(
    record: Record,
    pool: dict[str, Tool],
    names: Sequence[str],
    forbidden: set[str],
    n: int,
    seed: int,
) -> Record:
    if (
        len(record.tools) != 1 or not always_expects_calls(record) or "made" in record.meta
    ):  # the pool has its tool's own name
        return record
    chance = random.Random(digest(f"{seed} foreign {record.id}"))
    forbidden = forbidden | {record.tools[0].name}
    sampled = chance.sample(names, min(len(names), n + len(forbidden)))
    foreign = [pool[name] for name in sampled if name not in forbidden][: chance.randint(0, n)]
    tools = [*record.tools, *foreign]
    chance.shuffle(tools)
    return (
        replace(record, tools=tuple(tools), parent=record.parent or record.id)
        if foreign
        else record
    )
