"""A call that does not fit, with the place that an excerpt points at; arguments that satisfy a gold
call, and the texts that BFCL's Java functions take.
"""

from typing import Any

import pytest

from agentlite.core.errors import RowError
from agentlite.core.records import Call, GoldCall, Tool
from agentlite.data.formats.bfcl import literal_of
from agentlite.data.formats.check_call import check_arguments, gold_arguments, gold_problem

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


# --- gold ---

SPOT = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}}
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "spot": SPOT},
    "required": ["city"],
}
TOOLS = (Tool("other"), Tool("f", "", PARAMETERS))


@pytest.mark.parametrize(
    ("accepted", "arguments"),
    [
        ({"city": ["Oslo", "Rome"]}, {"city": "Oslo"}),
        # the first that fits the schema, or else the first
        ({"city": [3, "Oslo"]}, {"city": "Oslo"}),
        ({"city": [3, 4]}, {"city": 3}),
        # what may be left out is, unless it is required
        ({"city": ["", "Oslo"]}, {"city": "Oslo"}),
        ({"days": ["", 2]}, {}),
        ({"days": [""]}, {}),
        ({"spot": [{"x": [1, 2], "y": ["", 3]}]}, {"spot": {"x": 1}}),
    ],
)
def test_the_first_accepted_values_that_fit_are_the_arguments(
    accepted: dict[str, Any], arguments: dict[str, Any]
) -> None:
    assert gold_arguments(GoldCall("f", accepted), TOOLS) == arguments


@pytest.mark.parametrize(
    ("accepted", "problem"),
    [
        ({"zone": ["x"]}, "values of zone, which the tool does not take"),
        ({"zone": ["", "x"]}, ""),
        ({"city": []}, "no value of city"),
        ({"days": ["two"]}, "no value it accepts of days fits the schema"),
        ({"days": ["two", 2]}, ""),
        ({"days": [""]}, ""),
        ({"city": ["", 3]}, "no value it accepts of city fits the schema"),
    ],
)
def test_gold_that_no_call_satisfies_has_a_problem(accepted: dict[str, Any], problem: str) -> None:
    found = gold_problem(GoldCall("f", accepted), PARAMETERS)
    assert problem in found and bool(found) == bool(problem)
    assert "for the list itself" not in found


@pytest.mark.parametrize(
    ("value", "declared", "text"),
    [
        (2, "Java long", "2L"),
        (2.5, "Java float", "2.5f"),
        ("a", "Java char", "a"),
        ([1, 2], "Java ArrayList<long>", "new ArrayList<>(Arrays.asList(1L, 2L))"),
        ([], "Java ArrayList<long>", "new ArrayList<>()"),
        ([True], "Java Array<boolean>", "new boolean[]{true}"),
        ([1], "Java Array<integer>", "new int[]{1}"),
        ([1], "Java Array<any>", "new Object[]{1}"),
        (["a", "b"], "Java Array<String>", "new String[]{a, b}"),
        ({"a": 1}, "Java HashMap", 'new HashMap<>() {{ put("a", 1); }}'),
        ({}, "Java HashMap", "new HashMap<>()"),
        ([1], "JavaScript array", "[1]"),
        ("x", "JavaScript String", "x"),
    ],
)
def test_a_value_is_written_as_a_literal_of_its_language(
    value: object, declared: str, text: str
) -> None:
    assert literal_of(value, {"format": declared}) == text
