"""train records -> more of what is hard in them: foreign tools beside their own, several exchanges
in one dialog.

Records in which no call is due stay as they are: nobody has checked whether a foreign tool could
answer them.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from agentlite.core.records import Gold, Message, Record, Tool, canonical, digest
from agentlite.data.curation.traits import expected_tools, first_query

Slot = list[Record]


def add_distractors(records: Sequence[Record], *, n: int, seed: int) -> list[Record]:
    """The records in their own order; each that has one tool gets 0 to `n` tools of the others, in
    a seeded order.

    0 is among them, so that a single tool is no sign of a call not being due. A foreign tool has
    another name than its own, and is due in no record with the same first query.
    """
    pool = _tools_by_name([record for record in records if "made" not in record.meta])
    names = sorted(pool)
    expected: dict[str, set[str]] = defaultdict(set)
    for record in records:
        expected[first_query(record)] |= expected_tools(record)
    return [
        _with_foreign(record, pool, names, expected[first_query(record)], n, seed)
        for record in records
    ]


def join_dialogs(
    records: Sequence[Record], *, k: int, seed: int, fits: Callable[[Sequence[Record]], bool]
) -> list[Record]:
    """Dialogs of up to `k` exchanges made of single-turn records, each used once, and the other
    records unchanged.

    No two of a dialog have a tool of one name or the same query; together they satisfy `fits`.
    `parent` is the first one's id, meta["joined"] has all. Ordered by seed and id, whatever the
    order given.
    """
    ordered = sorted(records, key=lambda record: digest(f"{seed} join {record.id}"))
    joined: list[Record] = []
    open_slots: dict[tuple[str, str, str], list[Slot]] = defaultdict(list)
    for record in ordered:
        if not _is_joinable(record):
            joined.append(record)
            continue
        slots = open_slots[_system(record), record.split, str(record.meta.get("protocol"))]
        slot = next(
            (slot for slot in slots if _admits(slot, record) and fits([*slot, record])), None
        )
        if slot is None:
            slot = []
            slots.append(slot)
        slot.append(record)
        if len(slot) >= k:
            slots.remove(slot)
            joined.append(_join(slot, seed))
    return joined + [_join(slot, seed) for slots in open_slots.values() for slot in slots]


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
        len(record.tools) != 1 or not _always_expected(record) or "made" in record.meta
    ):  # the pool has its tool's own name
        return record
    chance = random.Random(digest(f"{seed} foreign {record.id}"))
    forbidden = forbidden | {record.tools[0].name}
    drawn = chance.sample(names, min(len(names), n + len(forbidden)))
    foreign = [pool[name] for name in drawn if name not in forbidden][: chance.randint(0, n)]
    tools = [*record.tools, *foreign]
    chance.shuffle(tools)
    return (
        replace(record, tools=tuple(tools), parent=record.parent or record.id)
        if foreign
        else record
    )


def _always_expected(record: Record) -> bool:
    """Whether some call is due, and no turn says that none is."""
    return bool(expected_tools(record)) and all(gold.calls for gold in record.gold.values())


def _is_joinable(record: Record) -> bool:
    roles = [message.role for message in record.messages if message.role != "system"]
    return roles == ["user", "assistant"] and bool(record.tools) and _always_expected(record)


def _system(record: Record) -> str:
    return next((message.content for message in record.messages if message.role == "system"), "")


def _admits(slot: Slot, record: Record) -> bool:
    names = {tool.name for one in slot for tool in one.tools}
    other_query = all(first_query(one) != first_query(record) for one in slot)
    return other_query and names.isdisjoint(tool.name for tool in record.tools)


def _join(slot: Slot, seed: int) -> Record:
    first = slot[0]
    if len(slot) == 1:
        return first
    messages: list[Message] = [message for message in first.messages if message.role == "system"]
    gold: dict[int, Gold] = {}
    for record in slot:
        (turn,) = record.turns
        if turn in record.gold:
            gold[len(messages) + 1] = record.gold[turn]
        messages += _exchange(record, sum(len(message.calls) for message in messages))
    ids = [record.id for record in slot]
    tools = [tool for record in slot for tool in record.tools]
    random.Random(digest(f"{seed} tools {ids}")).shuffle(tools)
    return replace(
        first,
        messages=tuple(messages),
        tools=tuple(tools),
        gold=gold,
        parent=first.id,
        meta={**first.meta, "joined": [record.parent or record.id for record in slot]},
    )


def _exchange(record: Record, calls: int) -> Iterator[Message]:
    """Its user and assistant turns, the calls numbered on: ids name one call of a dialog."""
    for message in record.messages:
        if message.role != "system":
            numbered = enumerate(message.calls, calls)
            yield replace(
                message,
                calls=tuple(replace(call, id=f"call_{number}") for number, call in numbered),
            )
