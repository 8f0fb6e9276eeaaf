"""Rejected rows -> rejects.jsonl, and what the screen says: each kind with a piece of a row."""

import base64
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agentlite.core.excerpt import printable
from agentlite.core.reject_codes import CODES
from agentlite.core.row_files import Row
from agentlite.data.formats.json_decode import REPAIRABLE, SAFE, repair
from agentlite.data.row_excerpt import excerpt

MOST_KINDS, MOST_REASONS, MOST_LINES = 40, 3, 12  # of kinds, of reasons of a kind, of line numbers
MOST_TRIED = 50  # rows for which it is looked whether a repair helps


class Reject(NamedTuple):
    """`part`: which of the samples of the row, where it holds several; 0 otherwise. `hint`, `at`:
    of its RowError.
    """

    location: str
    content: bytes
    code: str
    reason: str
    part: int = 0
    hint: str = ""
    at: str | int = ""


def reject_row(reject: Reject) -> Row:
    row = {
        "location": reject.location,
        "code": reject.code,
        "reason": reject.reason,
        "hint": reject.hint or CODES[reject.code].hint,
    }
    if reject.part:
        row["part"] = str(reject.part)
    try:
        return {**row, "raw": reject.content.decode("utf-8")}
    except UnicodeDecodeError:
        return {**row, "raw_base64": base64.b64encode(reject.content).decode("ascii")}


def report(rejects: Sequence[Reject], file: str, *, repairs: bool = True) -> Iterator[str]:
    """Lines for the screen: the rejects by code and hint, in the order of their first row.

    `file`: where all rejects are; "" if they are in no file. `repairs`: whether the command has
    --repair.
    """
    kinds: dict[tuple[str, str], dict[str, list[Reject]]] = {}
    for number, reject in enumerate(rejects):
        hint = hint_of(reject, look=repairs and number < MOST_TRIED)
        kinds.setdefault((reject.code, hint), {}).setdefault(reject.reason, []).append(reject)
    elsewhere = f" ({file})" if file else ""
    for (code, hint), reasons in [*kinds.items()][:MOST_KINDS]:
        for reason, same in [*reasons.items()][:MOST_REASONS]:
            yield f"{same[0].location}: {code} {printable(reason)}"
            yield from (f"  | {line}" for line in excerpt(same[0].content, same[0].at, reason))
            if more := list(dict.fromkeys(one.location for one in same[1:])):
                yield f"  = also {places(more)}{elsewhere if len(more) > MOST_LINES else ''}"
        if len(reasons) > MOST_REASONS:
            others = [one.location for same in [*reasons.values()][MOST_REASONS:] for one in same]
            yield f"  = alike: {places(others)}{elsewhere}"
        yield f"  = help: {hint} See `agentlite prep --explain {code}`."
    if len(kinds) > MOST_KINDS:
        yield f"{len(kinds) - MOST_KINDS} more kinds of rejects{elsewhere}"


def hint_of(reject: Reject, *, look: bool = True) -> str:
    """What to do about a reject. `look`: try which --repair reads its row."""
    if look and reject.code in REPAIRABLE:
        for method in SAFE:
            if repair(reject.content, [method]):
                return f"--repair {method} reads this row; --fix makes every safe repair."
    return reject.hint or CODES[reject.code].hint


def places(locations: Sequence[str], count: int = 0) -> str:
    """`lines 3, 8 and 12 of a.jsonl; line 1 of b.jsonl`; the number of those beyond MOST_LINES.
    `count`: how many there are, where `locations` are only the first.
    """
    shown, left = locations[:MOST_LINES], max(count, len(locations)) - MOST_LINES
    lines: dict[str, list[str]] = {}
    for location in shown:
        name, _, line = location.rpartition(":")
        lines.setdefault(name, []).append(line)
    texts = [
        f"{'lines' if len(numbers) > 1 else 'line'} {listed(numbers)} of {name}"
        for name, numbers in lines.items()
    ]
    return "; ".join(texts) + (f"; and {left} more" if left > 0 else "")


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
