"""Rejected rows -> rejects.jsonl, and what the screen says: each kind with a piece of a row."""

import base64
import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agentlite.core.console import caret_lines, printable
from agentlite.core.errors import RowError
from agentlite.core.reject_codes import CODES
from agentlite.core.row_files import Row
from agentlite.data.formats.json_decode import REPAIRABLE, repair
from agentlite.data.formats.raw_rows import Raw

MOST_KINDS, MOST_LINES = 40, 12  # of kinds, of line numbers
MOST_SHOWN = 3  # of the reasons of a kind, with a piece of a row
MOST_TRIED = 50  # rows for which it is looked whether a repair helps
LIST_KEYS = ('"messages"', '"conversations"')  # where the messages of a row begin


class Reject(NamedTuple):
    """`part`: which sample, or rejected answer, of several in a row. `hint`, `at`: of the error."""

    location: str
    content: bytes
    code: str
    reason: str
    part: int = 0
    hint: str = ""
    at: str | int = ""


def reject_of(raw: Raw, error: RowError, part: int = 0) -> Reject:
    return Reject(raw.location, raw.content, error.code, error.reason, part, error.hint, error.at)


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
    --fix.
    """
    kinds: dict[tuple[str, str], dict[str, list[Reject]]] = {}
    for number, reject in enumerate(rejects):
        hint = reject.hint or CODES[reject.code].hint
        if repairs and number < MOST_TRIED and reject.code in REPAIRABLE:
            hint = "--fix reads this row." if repair(reject.content) else hint
        kinds.setdefault((reject.code, hint), {}).setdefault(reject.reason, []).append(reject)
    elsewhere = f" ({file})" if file else ""
    for (code, hint), reasons in [*kinds.items()][:MOST_KINDS]:
        for reason, (first, *others) in [*reasons.items()][:MOST_SHOWN]:
            words = " ".join(printable(reason).split("\n"))
            yield f"{first.location}: {code} {words}"
            yield from (f"  | {line}" for line in excerpt(first.content, first.at))
            if locations := list(dict.fromkeys(other.location for other in others)):
                beyond = elsewhere if len(locations) > MOST_LINES else ""
                yield f"  = also {name_lines(locations)}{beyond}"
        if groups := [*reasons.values()][MOST_SHOWN:]:
            locations = [reject.location for group in groups for reject in group]
            yield f"  = alike: {name_lines(locations)}{elsewhere}"
        yield f"  = help: {hint} See `agentlite prep --explain {code}`."
    if len(kinds) > MOST_KINDS:
        yield f"{len(kinds) - MOST_KINDS} more kinds of rejects{elsewhere}"


def name_lines(locations: Sequence[str]) -> str:
    """`lines 3, 8 and 12 of a.jsonl; line 1 of b.jsonl`; the number of those beyond MOST_LINES."""
    lines: dict[str, list[str]] = {}
    for location in locations[:MOST_LINES]:
        name, _, line = location.rpartition(":")
        lines.setdefault(name, []).append(line)
    texts = []
    for name, (*numbers, last) in lines.items():
        text = f"lines {', '.join(numbers)} and {last}" if numbers else f"line {last}"
        texts.append(f"{text} of {name}")
    beyond = len(locations) - MOST_LINES
    return "; ".join(texts) + (f"; and {beyond} more" if beyond > 0 else "")


# --- the piece of a row that is wrong ---


def excerpt(content: bytes, at: str | int) -> list[str]:
    """Two lines, or none where the piece is not known. `at`: of a RowError."""
    text = content.decode("utf-8", "replace").removeprefix("\ufeff")
    starts = [start for key in LIST_KEYS if (start := text.find(key)) >= 0]
    spans = (find_span(text, at, start) for start in (*starts, 0) if at and isinstance(at, str))
    span = (at, at + 1) if isinstance(at, int) else next(filter(None, spans), None)
    if span is None or not 0 <= span[0] <= len(text):
        return []
    return caret_lines(text, *span)


def find_span(text: str, at: str, start: int) -> tuple[int, int] | None:
    """Where a text stands, as JSON or a text inside a text has it; whole ones first."""
    # a "ü" is ü or \u00fc in JSON, and \\u00fc in JSON inside one of its texts
    once = [json.dumps(at, ensure_ascii=ascii_only)[1:-1] for ascii_only in (False, True)]
    twice = [json.dumps(form, ensure_ascii=False)[1:-1] for form in once]
    for quote in (r"\"", '"', ""):
        for form in dict.fromkeys((once[0], twice[0], once[1], twice[1], at)):
            if (index := text.find(f"{quote}{form}{quote}", start)) >= 0:
                return index + len(quote), index + len(quote) + len(form)
    return None
