"""Rows of other tools that hold no dialog of a known format, known by their keys -> what to do."""

from collections.abc import Mapping
from typing import NamedTuple

ROWS = "FILE > rows.jsonl`"
RENAMED = "Write each of them as a message: `agentlite prep --formats` shows the keys."


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
    _row(
        "response",
        "This is an output of OpenAI's Batch API: an answer without its question. Join it with the "
        "request of the same custom_id.",
        *("custom_id", "error"),
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
    _row(
        "response",
        "A request with its response. Where both are of OpenAI's API: `jq -c '.request + "
        f"{{messages: (.request.messages + [.response.choices[0].message])}}' {ROWS}.",
        "request",
    ),
    _row(
        "outputs",
        "This is a run of LangSmith. Where the messages of the whole dialog are in its outputs: "
        f"`jq -c .outputs {ROWS}; or export the data set as OpenAI's messages.",
        "inputs",
    ),
    _row(
        "gen_ai.input.messages",
        f"This is a span of OpenTelemetry, whose messages are not read. {RENAMED}",
    ),
    _row(
        "traj",
        "This is a result of tau-bench. Its dialog is in traj: "
        f"`jq -c '{{messages: .traj}}' {ROWS}; add the domain's tools as `tools`.",
    ),
    _row(
        "simulations",
        "These are results of tau2-bench. Its dialogs are in simulations: "
        f"`jq -c '.simulations[] | {{messages}}' {ROWS}; add the domain's tools as `tools`.",
    ),
    _row(
        "rows",
        f"This is a page of a data set's viewer. Its rows are inside: `jq -c '.rows[].row' {ROWS}.",
        "features",
    ),
    _row(
        "output",
        "An input with its output. Where input is a list of messages and output the answer: `jq -c "
        f"'{{messages: (.input + [.output])}}' {ROWS}.",
        "input",
    ),
    *(
        _row(key, f"Its rows are in {key}: `jq -c '.{key}[]' {ROWS}.")
        for key in ("data", "rows", "examples", "train", "dialogs", "items")
    ),
)


def foreign_row(row: Mapping[str, object]) -> ForeignRow | None:
    """The kind of the row, if its keys tell it."""
    return next((known for known in FOREIGN if known.keys <= row.keys()), None)
