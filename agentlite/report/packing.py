"""Rows of a viewer -> the packed text in the page that it reads: JSON, deflated, in base64."""

import base64
import json
import zlib
from collections.abc import Callable
from typing import NamedTuple

from agentlite.report.read_run import Json

LONGEST = (20_000, 4_000, 1_000)  # characters of a text, as many as fit
compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Packed(NamedTuple):
    """`notes`: sentences about what had to be left out."""

    text: str
    notes: list[str]


class Fitted(NamedTuple):
    """`rows`: how many are in the text. `notes`: about texts that were cut."""

    text: str
    rows: int
    notes: list[str]


class Cutter:
    """Cuts long texts, notes in each how much is missing, and counts them."""

    def __init__(self, limit: int):
        self.limit, self.count, self.longest = limit, 0, 0

    def __call__(self, text: str) -> str:
        """Also keeps the length of the longest text that was left, in `longest`."""
        self.longest = max(self.longest, min(len(text), self.limit))
        if len(text) <= self.limit:
            return text
        self.count += 1
        return f"{text[: self.limit]} … [{len(text) - self.limit:,} more characters]"


def pack_within(budget: int, count: int, contents: Callable[[int, Cutter], Json]) -> Fitted:
    """At most `budget` characters: texts are cut shorter until they fit; if that is not enough, the
    last rows are left out. `contents`: of so many rows, with texts cut by the cutter.
    """
    cutter = Cutter(LONGEST[0])
    text = _packed(contents(count, cutter))
    while len(text) > budget and count:
        shorter = [limit for limit in LONGEST if limit < cutter.longest]
        if not shorter:
            count = int(0.95 * count * budget / len(text))
        cutter = Cutter(shorter[0] if shorter else cutter.limit)
        text = _packed(contents(count, cutter))
    cut = (
        f"{cutter.count} texts are cut after {cutter.limit:,} characters; each says how much of "
        "it is missing."
    )
    return Fitted(text, count, [cut] if cutter.count else [])


def _packed(contents: Json) -> str:
    return base64.b64encode(zlib.compress(compact(contents).encode("utf-8", "replace"))).decode(
        "ascii"
    )
