"""Train records -> the same records, with tools of other records among those that are offered."""

import random
from collections.abc import Sequence

from msgspec.structs import replace

from agentlite.core.records import Record, canonical, digest
from agentlite.data.curation.hard_negatives import expected_by_query
from agentlite.data.curation.traits import always_expects_calls, first_query


def add_distractors(records: Sequence[Record], *, n: int, seed: int) -> list[Record]:
    """The records in their own order; each that has one tool gets 0 to `n` tools of the others, in
    a seeded order.

    0 is among them, so that a single tool does not show that no call is expected. A foreign tool
    has another name than its own, and is expected in no record with the same first query.
    """
    tools = {
        canonical(tool.schema): tool
        for record in records
        if "made" not in record.meta
        for tool in record.tools
    }
    # one of each name: of several, the one whose schema sorts first
    pool = {tools[schema].name: tools[schema] for schema in sorted(tools, reverse=True)}
    names, expected = sorted(pool), expected_by_query(records)

    def add(record: Record) -> Record:
        # the pool has the tool of a variant by its own name
        if len(record.tools) != 1 or not always_expects_calls(record) or "made" in record.meta:
            return record
        chance = random.Random(digest(f"{seed} foreign {record.id}"))
        barred = expected[first_query(record)] | {record.tools[0].name}
        sampled = chance.sample(names, min(len(names), n + len(barred)))
        foreign = [pool[name] for name in sampled if name not in barred][: chance.randint(0, n)]
        offered = [*record.tools, *foreign]
        chance.shuffle(offered)
        if not foreign:
            return record
        return replace(record, tools=tuple(offered), parent=record.parent or record.id)

    return [add(record) for record in records]
