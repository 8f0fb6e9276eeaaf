"""Foreign tools: whose they are and where they stand; the rest is in test_curation.py."""

from collections.abc import Sequence
from itertools import permutations
from typing import Any

from msgspec.structs import replace

from agentlite.core.records import Call, Gold, Message, Record, Tool
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


def test_a_record_that_expects_no_call_somewhere_gets_no_tools() -> None:
    silent = replace(OWN[0], gold={1: Gold()})
    assert add_distractors([silent, *OWN[1:]], n=3, seed=0)[0] == silent


def test_of_tools_of_one_name_the_same_is_foreign_in_every_order() -> None:
    records = [dialog(0, "own"), *(dialog(n, "other") for n in range(1, 4))]
    for number in range(1, 4):
        tool = Tool("other", f"Does it in way {number}.")
        records[number] = replace(records[number], tools=(tool,))
    seed = next(s for s in range(99) if len(add_distractors(records, n=1, seed=s)[0].tools) == 2)
    foreign = {
        tool.description
        for order in permutations(records[1:])
        for tool in add_distractors([records[0], *order], n=1, seed=seed)[0].tools
    }
    assert foreign == {"Does own.", "Does it in way 1."}


def test_a_record_with_foreign_tools_names_the_first_that_it_was_made_from() -> None:
    old = [replace(one, parent="whole" * (number % 2)) for number, one in enumerate(OWN)]
    for before, after in zip(old, add_distractors(old, n=3, seed=0), strict=True):
        unchanged = before.tools == after.tools
        assert after.parent == (before.parent if unchanged else before.parent or before.id)
