"""A call that does not fit: the reason and the place that an excerpt of the row points at."""

from typing import Any

import pytest

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Tool
from agentlite.data.formats.check_call import check_arguments, tool_of

PROPERTIES = {
    "city": {"type": "string"},
    "days": {"type": "integer"},
    "at": {"type": "object", "properties": {"hour": {"type": "integer"}}},
}
WEATHER = Tool(
    "weather", "", {"type": "object", "properties": PROPERTIES, "required": ["city", "days"]}
)
GOOD: dict[str, Any] = {"city": "Oslo", "days": 2}


@pytest.mark.parametrize(
    ("arguments", "at", "words"),
    [
        ({"city": "Oslo"}, "weather", "the required days is missing"),
        ({**GOOD, "citty": "Oslo"}, "citty", "no parameter citty; the nearest is city"),
        ({**GOOD, "zzz": 1}, "zzz", "no parameter zzz"),
        ({**GOOD, "days": "two"}, "days", "weather: days: "),
    ],
)
def test_arguments_that_do_not_fit_are_named_with_their_place(
    arguments: dict[str, Any], at: str, words: str
) -> None:
    with pytest.raises(RowError) as refused:
        check_arguments(Call("weather", arguments), WEATHER)
    assert (refused.value.code, refused.value.at) == ("E210", at)
    assert words in refused.value.reason
    assert ("nearest" in refused.value.reason) == ("nearest" in words)


def test_without_types_the_names_alone_are_looked_at() -> None:
    check_arguments(Call("weather", {**GOOD, "days": "two"}), WEATHER, is_typed=False)
    for arguments in ({"city": "Oslo"}, {**GOOD, "zzz": 1}):
        with pytest.raises(RowError):
            check_arguments(Call("weather", arguments), WEATHER, is_typed=False)


@pytest.mark.parametrize(
    ("names", "words", "hint"),
    [
        (["weather", "clock"], "the nearest is weather", ""),
        (["clock", "sea"], "it has clock, sea", ""),
        ([], "it has none", "Add the tools"),
    ],
)
def test_an_unknown_tool_is_named_with_the_nearest_or_with_those_that_there_are(
    names: list[str], words: str, hint: str
) -> None:
    with pytest.raises(RowError) as refused:
        tool_of(Call("wether"), {name: Tool(name) for name in names})
    assert (refused.value.code, refused.value.at) == ("E209", "wether")
    assert words in refused.value.reason and refused.value.hint.startswith(hint)
    assert bool(refused.value.hint) == bool(hint)
