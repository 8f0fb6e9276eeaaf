"""Joins single-turn records into dialogs of several exchanges.

Records in which no call is expected stay as they are: nobody has checked whether a tool of another
record could answer them.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from agentlite.core.records import Gold, Message, Record, digest
from agentlite.data.curation.traits import always_expects_calls, first_query

Slot = list[Record]


def join_dialogs(
    records: Sequence[Record], *, k: int, seed: int, fits: Callable[[Sequence[Record]], bool]
) -> list[Record]:
    """Dialogs of up to `k` exchanges made of single-turn records, each used once, and the other
    records unchanged.

    No two of a dialog have a tool of one name or the same query; together they satisfy `fits`.
    meta["joined"] has the ids of the records that were read, `parent` is the first of them. Ordered
    by seed and id, whatever the order given.
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


def _is_joinable(record: Record) -> bool:
    roles = [message.role for message in record.messages if message.role != "system"]
    return roles == ["user", "assistant"] and bool(record.tools) and always_expects_calls(record)


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


def _exchange(record: Record, calls: int) -> Iterator[Message]:
    """Its user and assistant turns, the calls numbered on: ids name one call of a dialog."""
    for message in record.messages:
        if message.role != "system":
            numbered = enumerate(message.calls, calls)
            yield replace(
                message,
                calls=tuple(replace(call, id=f"call_{number}") for number, call in numbered),
            )
