"""Arguments come from outputs, from the state or from the schema, and fit it."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlite.core.json_schema import misfit
from agentlite.core.records import Tool
from agentlite.environments.making.values import (
    KnownValue,
    arguments,
    from_outputs,
    known,
    likeness,
    outputs,
)


def tool(name="act", **properties):
    parameters = {"type": "object", "properties": properties, "required": [*properties]}
    return Tool(name, "", parameters)


def test_the_values_of_a_state_have_names():
    state = {
        "root": {"notes.txt": {"type": "file", "text": "x"}, "docs": {"type": "directory"}},
        "orders": "{7: {'status': 'Open'}}",
    }
    found = {(value.name, value.value) for value in known(state)}
    assert {("file name", "notes.txt"), ("directory name", "docs")} <= found
    assert {("orders", "7"), ("status", "Open")} <= found
    assert known({"open": True, "note": None, "left": 0, "names": ("a", 2.5)}) == [
        KnownValue(value, name) for name, value in (("left", 0), ("names", "a"), ("names", 2.5))
    ]


def test_only_a_value_without_a_like_can_be_left_to_an_output():
    found = outputs('{"order_id": 7, "items": ["a", "b"]}', call=2)
    assert [(one.value, one.call) for one in found] == [(7, 2), ("a", None), ("b", None)]
    assert outputs("7 orders", 0) == []


def test_names_are_compared_by_their_words():
    assert likeness("orderIds", "order_id") == 1.0
    assert likeness("dir_name", "directory name") == 1.0
    assert likeness("city", "country") == 0.0
    # the share is of the parameter's words: the name of a value may have more
    assert (likeness("id", "order_id"), likeness("order_id", "id")) == (1.0, 0.5)
    assert likeness("id", "idea") == likeness("a", "area") == 0.0  # no abbreviations


@pytest.mark.parametrize(
    ("schema", "possible"),
    [
        ({"type": "string", "enum": ["on", "off"]}, {"on", "off"}),
        ({"type": "string", "description": "[Enum]: on, off"}, {"on", "off"}),
        ({"type": "string", "description": "Type of the order (Buy/Sell)."}, {"Buy", "Sell"}),
        ({"type": "string", "description": "A city (e.g., 'Oslo')."}, {"Oslo"}),
        ({"type": "boolean"}, {True, False}),
        ({"type": "string", "examples": ["Oslo", "Rome"]}, {"Oslo", "Rome"}),
        ({"const": 5}, {5}),
        ({"type": "integer", "minimum": 200, "maximum": 300}, {200, 300}),
        ({"type": "integer", "minimum": 99}, {100}),
    ],
)
def test_a_schema_says_what_fits(schema, possible):
    drawn = {arguments(tool(x=schema), [], Random(seed))["x"].value for seed in range(40)}
    assert drawn == possible


def optional(**properties):
    return Tool("act", "", {"type": "object", "properties": properties})


SEEDS = range(60)


def test_only_what_a_user_would_say_in_a_line_is_a_value():
    state = {"long": "x" * 61, "short": "x" * 60, "lines": "a\nb", "empty": "", "none": "None"}
    assert [value.name for value in known(state)] == ["short"]


def test_what_may_be_left_out_is_filled_by_an_output_and_now_and_then_by_anything_else():
    one = optional(order_id={"type": "integer"}, place={"type": "string"})
    taken = [arguments(one, [KnownValue(7, "order_id", 0)], Random(seed)) for seed in SEEDS]
    assert all("place" not in chosen for chosen in taken)  # nothing can fill it
    assert sum("order_id" in chosen for chosen in taken) > 45
    stated = [arguments(one, [KnownValue(7, "order_id")], Random(seed)) for seed in SEEDS]
    assert 0 < sum("order_id" in chosen for chosen in stated) < 30


def test_two_parameters_never_have_one_text():
    one, city = tool(start={"type": "string"}, goal={"type": "string"}), KnownValue("Oslo", "city")
    assert {arguments(one, [city], Random(seed)) is None for seed in SEEDS} == {True}
    pool = [city, KnownValue("Rome", "city")]
    drawn = [arguments(one, pool, Random(seed)) for seed in SEEDS]
    assert {len({value.value for value in each.values()}) for each in drawn if each} == {2}
    numbers = tool(a={"const": 5}, b={"const": 5})
    assert arguments(numbers, [], Random(0)) is not None


def test_only_required_parameters_lead_to_a_tool():
    pool = [KnownValue(7, "order_id", 0), KnownValue("Oslo", "city", 1)]
    properties = {"order_id": {"type": "integer"}, "city": {"type": "string"}}
    assert from_outputs(tool(**properties), pool) == 2
    assert from_outputs(optional(**properties), pool) == 0


def test_of_values_with_like_names_the_likest_is_taken():
    pool = [KnownValue("a.txt", "file name"), KnownValue("Ann", "name")]
    one = tool(file_name={"type": "string"})
    drawn = [arguments(one, pool, Random(seed))["file_name"] for seed in SEEDS]
    assert {value.value for value in drawn if value in pool} == {"a.txt"}


def test_a_guess_is_no_output_and_none_is_made_where_any_text_will_do():
    pool = [KnownValue("Emma", "title", 3)]
    (place,) = arguments(tool(place={"type": "string"}), pool, Random(0)).values()
    assert place == KnownValue("Emma", "title", None, guessed=True)
    drawn = [arguments(tool(message={"type": "string"}), pool, Random(seed)) for seed in SEEDS]
    assert not any(each["message"].guessed for each in drawn)
    assert len({each["message"].value for each in drawn}) > 3


def test_a_list_has_each_value_once_and_is_a_guess_if_one_of_them_is():
    several = tool(places={"type": "array", "items": {"type": "string"}})
    for name, guessed in (("place", False), ("title", True)):
        pool = [KnownValue("Oslo", name), KnownValue("Rome", name)]
        drawn = [arguments(several, pool, Random(seed))["places"] for seed in SEEDS]
        assert all(sorted({*value.value}) == sorted(value.value) for value in drawn)
        assert {len(value.value) for value in drawn} == {1, 2}
        assert not guessed or all(value.guessed for value in drawn)


@pytest.mark.parametrize(
    "description", ["One of: anything", "Options: " + "x" * 31 + ", y", "A city (or town)."]
)
def test_a_description_lists_values_only_where_there_are_several_short_ones(description):
    assert arguments(tool(x={"type": "string", "description": description}), [], Random(0)) is None


def test_an_output_is_taken_before_the_state_and_seen_as_the_way_there():
    schema = {"type": "integer"}
    pool = [KnownValue(7, "order_id", 0), KnownValue(9, "order_id")]
    drawn = [arguments(tool(order_id=schema), pool, Random(seed))["order_id"] for seed in range(50)]
    assert sum(value == pool[0] for value in drawn) > 25
    assert from_outputs(tool(order_id=schema), pool) == 1
    assert from_outputs(tool(order_id=schema), pool[1:]) == 0


def test_a_text_that_nothing_names_is_a_guess():
    pool = [KnownValue("Emma", "title")]
    chosen = [arguments(tool(place={"type": "string"}), pool, Random(seed)) for seed in range(9)]
    assert {(one["place"].value, one["place"].guessed) for one in chosen} == {("Emma", True)}
    assert arguments(tool(place={"type": "string"}), [], Random(0)) is None


SCHEMAS = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer", "minimum": 3, "maximum": 9},
        {"type": "number"},
        {"type": "boolean"},
        {"type": "array", "items": {"type": "string"}},
        {"type": "string", "enum": ["a", "b"]},
        {"type": "object", "properties": {}},
        {},
    ]
)
VALUES = st.one_of(st.text(min_size=1, max_size=9), st.integers(-5, 99), st.floats(0, 9))


@given(
    st.dictionaries(st.sampled_from(["name", "id", "count", "text"]), SCHEMAS, min_size=1),
    st.lists(st.tuples(VALUES, st.sampled_from(["name", "id", "other"]))),
    st.integers(0, 99),
)
def test_what_is_drawn_fits_the_schema(properties, pool, seed):
    one = tool(**properties)
    chosen = arguments(one, [KnownValue(value, name) for value, name in pool], Random(seed))
    if chosen is not None:
        assert not misfit({name: value.value for name, value in chosen.items()}, one.parameters)
