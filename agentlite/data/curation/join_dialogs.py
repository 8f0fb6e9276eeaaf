"""Joins single-turn records into dialogs of several exchanges.

Records in which no call is expected stay as they are: nobody has checked whether a tool of another
record could answer them.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from agentlite.core.records import Gold, Record, digest
from agentlite.data.curation.traits import always_expects_calls, first_query

Slot = list[Record]
JOINABLE = (["user", "assistant"], ["system", "user", "assistant"])


def join_dialogs(
    records: Sequence[Record], *, k: int, seed: int, fits: Callable[[Sequence[Record]], bool]
) -> list[Record]:
    """Dialogs of up to `k` exchanges made of single-turn records, each used once, and the other
    records unchanged.

    No two of a dialog have a tool of one name or the same query; together they satisfy `fits`.
    meta["joined"] has the ids of the records that were read, `parent` is the first of them. Ordered
    by seed and id, whatever the order given.
    """
    joined: list[Record] = []
    open_slots: dict[tuple[str, str, str], list[Slot]] = defaultdict(list)
    for record in sorted(records, key=lambda record: digest(f"{seed} join {record.id}")):
        roles = [message.role for message in record.messages]
        system = record.messages[0].content if roles[0] == "system" else ""
        is_joinable = roles in JOINABLE and record.tools and always_expects_calls(record)
        if not is_joinable:
            joined.append(record)
            continue
        slots = open_slots[system, record.split, str(record.meta.get("protocol"))]
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


def _admits(slot: Slot, record: Record) -> bool:
    names = {tool.name for other in slot for tool in other.tools}
    is_asked = any(first_query(other) == first_query(record) for other in slot)
    return not is_asked and names.isdisjoint(tool.name for tool in record.tools)


def _join(slot: Slot, seed: int) -> Record:
    first = slot[0]
    if len(slot) == 1:
        return first
    messages = [message for message in first.messages if message.role == "system"]
    gold: dict[int, Gold] = {}
    count = 0  # of calls: they are numbered on, since an id names one call of a dialog
    for record in slot:
        question, answer = record.messages[-2:]
        (turn,) = record.turns
        if turn in record.gold:
            gold[len(messages) + 1] = record.gold[turn]
        calls = [replace(call, id=f"call_{at}") for at, call in enumerate(answer.calls, count)]
        messages += [question, replace(answer, calls=tuple(calls))]
        count += len(calls)
    ids = [record.id for record in slot]
    read = [record.parent or record.id for record in slot]  # a variant has no row of its own
    tools = [tool for record in slot for tool in record.tools]
    random.Random(digest(f"{seed} tools {ids}")).shuffle(tools)
    return replace(
        first,
        messages=tuple(messages),
        tools=tuple(tools),
        gold=gold,
        parent=read[0],
        meta={**first.meta, "joined": read},
    )
