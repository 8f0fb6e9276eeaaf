"""agentlite.data.formats.tool_calls: tools, schemas and calls, however data sets write them."""

import json
from typing import Any

import pytest
from support.damaged_rows import refused

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Tool
from agentlite.data.formats.tool_calls import (
    PARAMETER_KEYS,
    json_schema,
    read_arguments,
    read_call,
    read_tool,
    read_tools,
    schema_from_list,
)


def test_types_are_renamed_at_any_depth_of_a_schema() -> None:
    inner, renamed = {"type": "int"}, {"type": "integer"}
    for key in ("properties", "$defs", "definitions"):
        assert json_schema({key: {"a": inner, "b": None}}, "f") == {key: {"a": renamed}}
    for key in ("items", "additionalProperties"):
        assert json_schema({key: inner}, "f") == {key: renamed}
    for key in ("anyOf", "oneOf", "allOf", "items"):
        assert json_schema({key: [inner, True]}, "f") == {key: [renamed, True]}
    assert json_schema({"additionalProperties": False}, "f") == {"additionalProperties": False}
    assert json_schema({"enum": [inner]}, "f") == {"enum": [inner]}
    both = json_schema({"properties": {"a": True, "b": False}}, "f")
    assert both == {"properties": {"a": {}, "b": {"not": {}}}}


def test_properties_that_say_they_are_required_are_listed_behind_those_that_are() -> None:
    properties = {
        "a": {"type": "int", "required": True},
        "b": {"type": "int", "required": "TRUE"},
        "c": {"type": "int", "required": False},
        "d": {"type": "object", "required": ["x"], "properties": {"x": {}}},
        "e": {},
    }
    schema = json_schema({"properties": properties, "required": ["e", "a"]}, "f")
    assert schema["required"] == ["e", "a", "b"]
    assert schema["properties"]["a"] == schema["properties"]["c"] == {"type": "integer"}
    assert schema["properties"]["d"]["required"] == ["x"]
    assert properties["a"]["required"]  # what was handed over is as it was


def test_parameters_in_a_list_are_an_object_by_their_names() -> None:
    given = [{"name": "a", "type": "int", "required": True}, {"name": "b", "description": "d"}]
    expected = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"description": "d"}},
        "required": ["a"],
    }
    assert read_tool({"name": "f", "parameters": given}).parameters == expected
    for bad in ([3], [{"type": "int"}], [{"name": 3}]):
        assert refused(lambda bad=bad: schema_from_list(bad, "f")) == "E211"


CITY = {"city": {"type": "str"}}
SCHEMA = {"type": "object", "properties": CITY}
WRAPPERS = ("json", "schema", "jsonSchema", "JSON", "input_schema")


@pytest.mark.parametrize("shape", ["{}", '{{"type": "function", "function": {}}}'])
@pytest.mark.parametrize(
    "schema",
    [
        *({key: SCHEMA} for key in PARAMETER_KEYS),
        {"parameters": None, "inputSchema": json.dumps(SCHEMA)},
        {"inputSchema": [{"name": "city", "type": "str"}]},
        {"args": CITY},
        {"args_schema": SCHEMA, "args": CITY},
        {"parameters": CITY},
        *({"inputSchema": {key: SCHEMA}} for key in WRAPPERS),
        {"parameters": {"name": "f", "strict": True, "schema": SCHEMA}},
        {"parameters": {"type": "object", "json": json.dumps(SCHEMA)}},
    ],
    ids=str,
)
def test_a_schema_is_read_under_the_key_of_each_library(schema: dict[str, Any], shape: str) -> None:
    tool = json.loads(shape.format(json.dumps({"name": "f", "description": "d", **schema})))
    city = {"type": "object", "properties": {"city": {"type": "string"}}}
    assert read_tool(tool) == Tool("f", "d", city)


@pytest.mark.parametrize("key", ["schema", "schema_of_input", "input", "params"])
@pytest.mark.parametrize("given", [{}, {"parameters": {}}])
def test_a_tool_whose_schema_is_not_read_is_refused(key: str, given: dict[str, Any]) -> None:
    function = {"name": "f", **given}
    for tool in (
        {**function, key: SCHEMA},
        {"type": "function", "function": {**function, key: SCHEMA}},
        {"type": "function", "function": function, key: SCHEMA},
    ):
        with pytest.raises(RowError, match=f"the tool f has no parameters, .* under '{key}'"):
            read_tool(tool)
        assert refused(lambda tool=tool: read_tool(tool)) == "E211"


def test_a_tool_is_read_from_each_of_its_shapes() -> None:
    function = {"name": "f", "description": "d", "parameters": {"type": "dict"}}
    expected = Tool("f", "d", {"type": "object"})
    texts = {**function, "parameters": json.dumps(function["parameters"])}
    for shape in (
        function,
        {"type": "function", "function": function},
        json.dumps(function),
        texts,
    ):
        assert read_tool(shape) == expected
    assert read_tools([function, function]) == read_tools(json.dumps([function] * 2))
    assert read_tools(None) == read_tools("") == read_tools(" ") == read_tools([]) == ()
    for nothing in (None, {}, [], "", " ", "{}", "null"):
        assert read_tool({"name": "f", "parameters": nothing}) == Tool("f")
    assert read_tool({"name": "f", "description": None}).description == ""
    assert read_tool({"name": "f", "description": 3}).description == "3"


@pytest.mark.parametrize(
    ("tool", "code"),
    [
        ({}, "E212"),
        ({"name": ""}, "E212"),
        ({"name": " "}, "E212"),
        ({"name": 3}, "E212"),
        ({"function": {"description": "d"}}, "E212"),
        (3, "E212"),
        ("{", "E124"),
        ({"name": "f", "parameters": "{"}, "E211"),
        ({"name": "f", "parameters": 3}, "E211"),
        ({"name": "f", "parameters": {"filter": SCHEMA}}, "E211"),  # of one parameter, or wrapped
        ({"name": "f", "parameters": {"anyOf": [{"properties": 3}]}}, "E211"),
    ],
)
def test_a_tool_that_cannot_be_read_says_why(tool: Any, code: str) -> None:
    assert refused(lambda: read_tool(tool)) == code


def test_a_call_is_read_from_each_of_its_shapes() -> None:
    function = {"name": "f", "arguments": {"a": 1}}
    text = {"name": "f", "arguments": '{"a": 1}'}
    for shape in (
        {"id": "x", **function},
        {"id": "x", "type": "function", "function": function},
        {"id": "x", "function": text},
        json.dumps({"id": "x", **function}),
    ):
        assert read_call(shape) == Call("f", {"a": 1}, "x")
    assert read_call({"id": 7, **function}).id == "7"
    assert read_call({"name": "f"}) == Call("f")


def test_arguments_may_be_the_text_of_a_text_and_no_more() -> None:
    once = json.dumps({"a": 1})
    assert read_arguments(once) == read_arguments(json.dumps(once)) == {"a": 1}
    assert refused(lambda: read_arguments(json.dumps(json.dumps(once)))) == "E208"
    assert refused(lambda: read_arguments(" 3 ")) == "E208"
