"""Cuts a dialog that is too long after the last step that fits."""

from collections.abc import Callable

from msgspec.structs import replace

from agentlite.core.records import Record


def cut(record: Record, fits: Callable[[Record], bool]) -> Record | None:
    """The longest beginning that ends with an assistant turn, trains something and fits; None if
    none does.

    The end is cut, not the beginning: so every step that is left has the prompt it has when the
    model is used. `fits` is asked less than log2(turns) + 1 times: a shorter beginning is never
    longer in tokens.
    """
    ends = [
        turn
        for turn in record.turns
        if any(record.messages[t].loss for t in record.turns if t <= turn)
    ][:-1]
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        if fits(_until(record, ends[middle])):
            low = middle + 1
        else:
            high = middle
    return _until(record, ends[low - 1]) if low else None


def _until(record: Record, turn: int) -> Record:
    gold = {at: expected for at, expected in record.gold.items() if at <= turn}
    meta = {**record.meta, "cut_from": len(record.messages)}
    return replace(
        record,
        messages=record.messages[: turn + 1],
        gold=gold,
        meta=meta,
        parent=record.parent or record.id,
    )
