"""A row that no format fits -> what it seems to be, and what to do."""

from collections.abc import Callable, Mapping
from typing import Any

from agentlite.core.errors import RowError, closest
from agentlite.data.formats.text import foreign_keys

Row = Mapping[str, Any]
# what holds the dialog in a row of some format
MAIN_KEYS = ("messages", "conversations", "instruction", "text", "prompt", "query", "question")
ROWS = "FILE > rows.jsonl`"
PREFERENCE = (
    "This is a preference: `agentlite pairs --preferences FILE` and `agentlite dpo` learn it. To "
    "imitate the better answer alone, write rows with {0} as the last turn."
)
# the keys that rows of other tools have, the one that an error points at first -> what to do
FOREIGN: dict[tuple[str, ...], str] = {
    ("body", "custom_id", "method", "url"): (
        "This is a request for OpenAI's Batch API. Its dialog is in body: `jq -c .body "
        f"{ROWS}; the answers are in the batch's output file."
    ),
    ("chosen", "rejected"): PREFERENCE,
    ("preferred_output", "non_preferred_output"): PREFERENCE,
    **{
        (key,): f"Its rows are in {key}: `jq -c '.{key}[]' {ROWS}."
        for key in ("data", "rows", "examples", "train", "dialogs", "items")
    },
}


def unknown_row(row: Row, fits: Callable[[dict[str, Any]], bool]) -> RowError:
    """E202, with the key that is misspelt or what other rows have such keys. `fits`: whether some
    format fits a row.
    """
    if isinstance(row.get("text"), str):
        reason = f"no known format fits: a text, and {', '.join(foreign_keys(row))}"
        return RowError("E202", reason, "--format text learns the text alone.")
    reason = f"no known format fits: keys {', '.join(map(str, row)) or 'none'}"
    for wrong in row:
        right = closest(str(wrong), MAIN_KEYS)
        if right and right not in row:
            renamed = {right if key == wrong else key: value for key, value in row.items()}
            if fits(renamed):
                hint = f"Did you mean '{right}' in place of '{wrong}'?"
                return RowError("E202", reason, hint, wrong)
    for keys, hint in FOREIGN.items():
        if row.keys() >= {*keys}:
            return RowError("E202", reason, hint.replace("{0}", keys[0]), keys[0])
    return RowError("E202", reason)
