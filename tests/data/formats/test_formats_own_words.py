"""Around the tools that a system text lists stand the author's own words: no format loses them."""

import json
from typing import Any

import pytest

from agentlite.data.formats import FORMATS, to_record

BEFORE, BEHIND = "Speak like a pirate.", "Never guess."
# the formats whose system text lists the tools in a frame of theirs
FRAMED = ["glaive", "toolace", "hermes_fc", "toolllama", "ms_agent_exec", "ms_agent"]


def between_words(system: str) -> str:
    label = "SYSTEM: " if system.startswith("SYSTEM: ") else ""  # glaive's, which comes first
    return f"{label}{BEFORE}\n{system.removeprefix(label)}\n{BEHIND}"


def with_words(row: dict[str, Any]) -> dict[str, Any]:
    """The row with words of its author before and behind what its system text says."""
    if "system" in row:
        return {**row, "system": between_words(row["system"])}
    first, *rest = row["conversations"]
    return {**row, "conversations": [{**first, "value": between_words(first["value"])}, *rest]}


@pytest.mark.parametrize("name", FRAMED)
def test_words_around_a_list_of_tools_are_the_system_text_in_every_format(name: str) -> None:
    row = json.loads(FORMATS[name].example)
    plain, found = to_record(row, name), to_record(with_words(row), name)
    assert found.messages[0].role == "system"
    said = found.messages[0].content.split("\n")
    assert (said[0], said[-1]) == (BEFORE, BEHIND)
    assert "functions" not in found.messages[0].content  # the frame is gone
    assert (found.tools, found.messages[-2:]) == (plain.tools, plain.messages[-2:])
