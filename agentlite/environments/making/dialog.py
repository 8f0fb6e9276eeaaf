"""A blueprint in plain words -> the messages of a dialog -> the row that prep reads."""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from msgspec.structs import replace

from agentlite.core.records import Tool
from agentlite.data.formats.tool_calls import read_call
from agentlite.data.openai_messages import wire_calls
from agentlite.environments.making.blueprint import Blueprint, PlannedTurn
from agentlite.environments.making.walk import PlannedCall
from agentlite.environments.making.wording import PlainWords

DIALOGS = "dialogs.jsonl"


def in_plain_words(
    blueprint: Blueprint, tools: Mapping[str, Tool], seed: int
) -> list[dict[str, Any]]:
    """The dialog of a blueprint that nobody plays, as OpenAI writes messages. `tools`: by name,
    all of its world.
    """
    wording = PlainWords(tools, Random(f"{seed} {blueprint.id}"))
    messages: list[dict[str, Any]] = []
    for number, turn in enumerate(blueprint.turns):
        messages.append(_user(wording.question(turn, is_first=number == 0)))
        messages += _answered(turn, wording, messages)
    return messages


def _answered(
    turn: PlannedTurn, wording: PlainWords, before: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    made = sum(message["role"] == "tool" for message in before)
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
    verified: Sequence[str],
) -> dict[str, Any]:
    """The row of a dialog: messages with `loss` where a turn is not to be learned, the tools on
    offer, the right calls of each turn of the agent's, and what is known about it. `verified`: by
    what.
    """
    gold = {
        str(number): {"calls": [_gold(call) for call in message.get("tool_calls", ())]}
        for number, message in enumerate(messages)
        if message["role"] == "assistant" and message.get("loss", True)
    }
    return {
        "id": blueprint.id,
        "messages": [*messages],
        "tools": [tool.schema for tool in tools],
        "gold": gold,
        "meta": {
            "blueprint": blueprint.id,
            "kind": blueprint.kind,
            "task": blueprint.task,
            "verified": [*verified],
        },
    }


def _gold(call: dict[str, Any]) -> dict[str, Any]:
    read = read_call(call)
    return {
        "name": read.name,
        "arguments": {name: [value] for name, value in read.arguments.items()},
    }
