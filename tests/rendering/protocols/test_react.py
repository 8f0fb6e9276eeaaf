"""agentlite.rendering.protocols.react: inputs that are plain text, for tools of one parameter."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.samples import TIME, WEATHER

from agentlite.core.records import Call, Parsed, Tool
from agentlite.rendering import PROTOCOLS

PLAIN = ["react", "react-zh", "ms-agent"]
EVERY = pytest.mark.parametrize("name", PLAIN)
TWO = Tool("book", "", {"type": "object", "properties": {"a": {}, "b": {}}})


def typed(**schema: Any) -> Tool:
    return Tool("f", "", {"type": "object", "properties": {"x": schema}})


@EVERY
def test_plain_text_is_the_argument_of_a_tool_with_one_parameter(name: str) -> None:
    text = "Thought: I look.\nAction: get_weather\nAction Input: 北京\nObservation:"
    read = PROTOCOLS[name].read(text, (TIME, WEATHER))
    assert read == Parsed("I look.", (Call("get_weather", {"city": "北京"}),))


@EVERY
@pytest.mark.parametrize(
    ("tools", "given"),
    [
        ((TWO,), "book\nAction Input: 北京"),
        ((WEATHER,), "get_weathr\nAction Input: 北京"),
        ((Tool("now"),), "now\nAction Input: 北京"),
        ((WEATHER,), "get_weather\nAction Input:"),
        ((WEATHER,), 'get_weather\nAction Input: {"city": "北京"'),
    ],
    ids=["two parameters", "no such tool", "no parameter", "no input", "a broken object"],
)
def test_any_other_input_that_is_no_object_stays_a_problem(
    name: str, tools: tuple[Tool, ...], given: str
) -> None:
    read = PROTOCOLS[name].read(f"Action: {given}", tools)
    assert (read.calls, read.problem) == ((), "action input is not JSON")


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "Oslo, Norway", "Oslo, Norway"),
        ({"type": "string"}, '"Oslo"', "Oslo"),
        ({"type": "string"}, "7", "7"),
        ({"type": ["string", "null"]}, "null", "null"),
        ({"type": "integer"}, "7", 7),
        ({"type": "number"}, "NaN", "NaN"),
        ({"type": "array"}, "[{1}]", "[{1}]"),
        ({"type": "array"}, f"[{'1, ' * 30_000}1]", f"[{'1, ' * 30_000}1]"),
        # a text of 64 KiB is read, and none that is longer
        ({"type": "array"}, f"[{'1, ' * 21_844} 1]", [1] * 21_845),
        ({"type": "array"}, f"[{'1, ' * 21_844}  1]", f"[{'1, ' * 21_844}  1]"),
        ({"type": "boolean"}, "True", True),
        ({}, "7", "7"),
        ({}, '["a"]', ["a"]),
        ({}, "two\nlines", "two\nlines"),
    ],
)
def test_the_type_in_the_schema_says_what_the_text_is(
    schema: dict[str, Any], text: str, value: object
) -> None:
    read = PROTOCOLS["react"].read(f"Action: f\nAction Input: {text}", (typed(**schema),))
    assert read == Parsed("", (Call("f", {"x": value}),))


@pytest.mark.parametrize("label", ["Thought", "Action", "Final Answer"])
def test_what_goes_on_after_a_plain_input_is_a_problem(label: str) -> None:
    text = f"Action: get_weather\nAction Input: Oslo\n{label}: so"
    read = PROTOCOLS["react"].read(text, (WEATHER,))
    assert read.calls == (Call("get_weather", {"city": "Oslo"}),)
    assert read.problem == "text after the action input"


@given(text=st.text(max_size=60), tool=st.sampled_from([WEATHER, typed(type="integer"), typed()]))
def test_no_plain_input_makes_the_reader_fail(text: str, tool: Tool) -> None:
    read = PROTOCOLS["react"].read(f"Action: {tool.name}\nAction Input: {text}", (tool,))
    json.dumps([call.arguments for call in read.calls])
    assert read.calls or read.problem
