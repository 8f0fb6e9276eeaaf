"""Rows of other tools that hold no dialog of a known format, known by their keys -> what to do."""

from collections.abc import Mapping
from typing import NamedTuple

ROWS = "FILE > rows.jsonl`"


class ForeignRow(NamedTuple):
    """`keys`: what such rows have; `at`: the key that an error points at."""

    keys: frozenset[str]
    at: str
    hint: str


def _row(at: str, hint: str, *others: str) -> ForeignRow:
    return ForeignRow(frozenset((at, *others)), at, hint)


# the more particular first
FOREIGN: tuple[ForeignRow, ...] = (
    _row(
        "body",
        "This is a request for OpenAI's Batch API. Its dialog is in body: `jq -c .body "
        f"{ROWS}; the answers are in the batch's output file.",
        *("custom_id", "method", "url"),
    ),
    *(
        _row(
            at,
            "This is a preference: `agentlite pairs --preferences FILE` and `agentlite dpo` learn "
            f"it. To imitate the better answer alone, write rows with {at} as the last turn.",
            other,
        )
        for at, other in (("chosen", "rejected"), ("preferred_output", "non_preferred_output"))
    ),
    *(
        _row(key, f"Its rows are in {key}: `jq -c '.{key}[]' {ROWS}.")
        for key in ("data", "rows", "examples", "train", "dialogs", "items")
    ),
)


def foreign_row(row: Mapping[str, object]) -> ForeignRow | None:
    """The kind of the row, if its keys tell it."""
    return next((known for known in FOREIGN if known.keys <= row.keys()), None)
