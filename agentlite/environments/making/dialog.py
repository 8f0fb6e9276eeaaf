"""A blueprint in plain words -> the messages of a dialog -> the row that prep reads."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from msgspec.structs import replace

from agentlite.core.records import Tool, plain, wire_calls
from agentlite.core.row_files import read_rows
from agentlite.data.formats.tool_calls import read_call
from agentlite.environments.making.blueprint import Blueprint, PlannedTurn
from agentlite.environments.making.checks import DialogFault
from agentlite.environments.making.walk import PlannedCall
from agentlite.environments.making.wording import PlainWords

DIALOGS = "dialogs.jsonl"


class MadeDialog(NamedTuple):
    """The row of a dialog, and what is wrong with it."""

    row: dict[str, Any]
    faults: list[DialogFault]

    @property
    def is_kept(self) -> bool:
        """Whether no fault is one of the whole dialog."""
        return all(fault.message is not None for fault in self.faults)


def in_plain_words(
    blueprint: Blueprint, tools: Mapping[str, Tool], seed: int
) -> list[dict[str, Any]]:
    """The dialog of a blueprint that nobody plays, as OpenAI writes messages. `tools`: by name,
    all of its world.
    """
    wording = PlainWords(tools, Random(f"{seed} {blueprint.id}"))
    messages: list[dict[str, Any]] = []
    made = 0
    for number, turn in enumerate(blueprint.turns):
        messages.append(_user(wording.question(turn, is_first=number == 0)))
        messages += _answered(turn, wording, made)
        made += len(turn.made)
    return messages


def _answered(turn: PlannedTurn, wording: PlainWords, made: int) -> Iterator[dict[str, Any]]:
    """What follows the first words of a user's turn. `made`: the calls before it."""
    if turn.refused:
        yield _agent(wording.refuses(turn))
        return
    if turn.slip:
        yield from _called([turn.slip], made)
        yield _agent(wording.failed(turn))
        made += 1
    elif turn.missing:
        yield _agent(wording.asks(turn))
    if turn.missing:
        yield _user(wording.tells(turn))
    for group in [turn.calls] if turn.together else [[one] for one in turn.calls]:
        yield from _called(group, made)
        made += len(group)
    yield _agent(wording.answer(turn.calls))


def _called(group: Sequence[PlannedCall], made: int) -> Iterator[dict[str, Any]]:
    calls = [replace(one.call, id=f"call{made + at:05}") for at, one in enumerate(group)]
    yield {"role": "assistant", "content": None, "tool_calls": wire_calls(calls)}
    for call, one in zip(calls, group, strict=True):
        yield {"role": "tool", "tool_call_id": call.id, "content": one.result}


def _user(words: str) -> dict[str, Any]:
    return {"role": "user", "content": words}


def _agent(words: str) -> dict[str, Any]:
    return {"role": "assistant", "content": words}


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
