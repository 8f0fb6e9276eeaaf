"""The messages of a dialog -> the row that prep reads, and the lines that a person reads."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.core.records import Tool, plain
from agentlite.core.row_files import read_rows
from agentlite.data.formats.tool_calls import read_call
from agentlite.environments.making.blueprint import Blueprint
from agentlite.environments.making.checks import DialogFault

DIALOGS = "dialogs.jsonl"


class MadeDialog(NamedTuple):
    """The row of a dialog, and what is wrong with it."""

    row: dict[str, Any]
    faults: list[DialogFault]

    @property
    def is_kept(self) -> bool:
        """Whether no fault is one of the whole dialog."""
        return all(fault.message is not None for fault in self.faults)


def row_of(
    blueprint: Blueprint,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Tool],
    *,
    verified: bool,
    tokens: int = 0,
) -> dict[str, Any]:
    """The row of a dialog: messages with `loss` where a turn is not to be learned, the tools on
    offer, the right calls of each turn of the agent's, and what is known about it. `verified`:
    whether a world has confirmed it. `tokens`: that models have written for it.
    """
    gold = {}
    for number, message in enumerate(messages):
        if message["role"] == "assistant" and message.get("loss", True):
            calls = map(read_call, message.get("tool_calls", ()))
            # the one value of each argument
            gold[str(number)] = {
                "calls": [
                    {"name": call.name, "arguments": {k: [v] for k, v in call.arguments.items()}}
                    for call in calls
                ]
            }
    by = ["results", "state"] if blueprint.state else ["results"]
    meta: dict[str, Any] = {
        "blueprint": blueprint.id,
        "kind": blueprint.kind,
        "task": blueprint.task,
        "verified": by if verified else [],
    }
    return {
        "id": blueprint.id,
        "messages": [*messages],
        "tools": [tool.schema for tool in tools],
        "gold": gold,
        "meta": meta | ({"tokens": tokens} if tokens else {}),
    }


def shown(folder: Path, count: int) -> Iterator[str]:
    """The first dialogs of a finished make: a heading, the tools on offer, and a line for each
    message and each call.
    """
    for _, row in zip(range(count), read_rows(folder / DIALOGS), strict=False):
        meta = row["meta"]
        yield f"── {row['id']}  {meta['kind']}  verified by {', '.join(meta['verified'])}"
        yield f"   tools: {', '.join(tool['function']['name'] for tool in row['tools'])}"
        for message in row["messages"]:
            mark = "" if message.get("loss", True) else "  (not learned)"
            if words := message.get("content"):
                yield f"{message['role']:>9}  {words}{mark}"
            for call in map(read_call, message.get("tool_calls", ())):
                yield f"{'calls':>9}  {call.name} {plain(call.arguments)}{mark}"
        yield ""
