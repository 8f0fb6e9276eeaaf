"""A pool has each tool once: its place among the entries, and that of its name among the names."""

from hypothesis import given
from hypothesis import strategies as st

from agentlite.core.records import Tool
from agentlite.data.formats import sage_tools
from agentlite.data.formats.sage_tools import is_id_alone
from agentlite.retrieval.tool_pool import ToolPool

NAMES = ("rain", "snow", "tide", "wind")


def tool(name: str, about: str) -> Tool:
    return Tool(name, about, {"type": "object", "properties": {}})


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from("abc")), max_size=9))
def test_each_tool_has_its_place_and_an_id_alone_that_of_the_first_of_its_name(
    listed: list[tuple[str, str]],
) -> None:
    pool, entries = ToolPool(), list(dict.fromkeys(listed))
    names = list(dict.fromkeys(name for name, _ in entries))
    for one in listed:
        assert pool.add(tool(*one)) == entries.index(one)
    assert [(entry.tool.name, entry.tool.description) for entry in pool.entries] == entries
    assert pool.names == {name: place for place, name in enumerate(names)}
    assert pool.owners == [names.index(name) for name, _ in entries]
    counts = {name: sum(other == name for other, _ in entries) for name in names}
    assert pool.versions == {name: count for name, count in counts.items() if count > 1}
    for name in NAMES:
        alone = Tool(name, "", {**sage_tools.OPEN})
        assert is_id_alone(alone)
        first = next((place for place, one in enumerate(entries) if one[0] == name), None)
        assert pool.place_of(alone) == first
        for about in "abcd":
            place = entries.index((name, about)) if (name, about) in entries else None
            assert pool.place_of(tool(name, about)) == place
