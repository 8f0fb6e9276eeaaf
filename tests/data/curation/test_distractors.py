"""Foreign tools: whose they are and where they stand; the rest is in test_curation.py."""

from collections.abc import Sequence
from typing import Any

from agentlite.core.records import Call, Message, Record, Tool
from agentlite.data.curation.distractors import add_distractors


def dialog(number: int, tool: str, **fields: Any) -> Record:
    messages = (Message("user", f"Question {number}?"), Message("assistant", "", (Call(tool),)))
    return Record(messages=messages, tools=(Tool(tool, f"Does {tool}."),), **fields)


def offered(records: Sequence[Record]) -> set[str]:
    return {tool.name for record in records for tool in record.tools}


OWN = [dialog(number, f"tool_{number}") for number in range(20)]


def test_tools_of_variants_are_no_distractors_and_variants_get_none() -> None:
    made = [dialog(n, f"masked_{n}", meta={"made": "names masked"}) for n in range(20, 40)]
    changed = add_distractors([*OWN, *made], n=3, seed=0)
    assert changed[20:] == made
    assert offered(changed[:20]) == offered(OWN)


def test_the_own_tool_stands_anywhere_among_the_foreign_ones() -> None:
    changed = add_distractors(OWN, n=3, seed=0)
    places = [
        [tool.name for tool in record.tools].index(f"tool_{number}")
        for number, record in enumerate(changed)
    ]
    assert {*places} == {0, 1, 2, 3}
