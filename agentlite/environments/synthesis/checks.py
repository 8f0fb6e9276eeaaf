"""A dialog of a blueprint -> what is wrong with its words, which a tool or a result may bring."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agentlite.core.records import Call, Tool, canonical, digest
from agentlite.data.curation.traits import normal
from agentlite.data.formats.tool_calls import read_call
from agentlite.environments.gold_calls import call_key
from agentlite.environments.synthesis.blueprint import Blueprint
from agentlite.rendering.foreign_text import result_mark


class DialogFault(NamedTuple):
    """Why a dialog is not kept. `kind`: for counting."""

    kind: str
    reason: str


def made_calls(messages: Iterable[Mapping[str, Any]]) -> list[Call]:
    return [read_call(call) for message in messages for call in message.get("tool_calls") or ()]


def copy_key(messages: Sequence[Mapping[str, Any]]) -> str:
    """Equal for dialogs in which the user says the same and the same is called."""
    words = [normal(str(message["content"])) for message in messages if message["role"] == "user"]
    return digest(canonical([words, sorted(map(call_key, made_calls(messages)))]))


def faults(
    blueprint: Blueprint, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]
) -> Iterator[DialogFault]:
    """`tools`: those on offer."""
    names = {tool.name for tool in tools}
    wanted = {call.call.name for turn in blueprint.turns for call in turn.calls}
    for message in messages:
        words = str(message["content"] or "")
        if message["role"] == "user":
            for name in sorted(names | wanted):
                # a name that is a word of the language, as `book`, may well be said
                is_word = name.isalpha() and not any(letter.isupper() for letter in name[1:])
                if not is_word and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", words):
                    yield DialogFault("leaked goal", f"the user names the tool {name}")
        elif message["role"] == "assistant" and result_mark(words, names):
            yield DialogFault("invented result", "the agent writes a result itself")
