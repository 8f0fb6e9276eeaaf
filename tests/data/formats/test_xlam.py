"""agentlite.data.formats.xlam: a question and all its calls in one turn; types of Python become
those of JSON Schema.
"""

import json
from typing import Any

import pytest
from support.damaged_rows import Row, refused, rows

from agentlite.core.records import Call, Gold, Message, Record, Tool
from agentlite.data.curation.validate import validate
from agentlite.data.formats import xlam
from agentlite.data.formats.bfcl import NO_CALL_ANSWER

ROWS = rows("xlam")
KM = Tool(
    "km2mi",
    "Kilometres in miles.",
    {
        "type": "object",
        "properties": {"km": {"type": "number", "description": "length", "default": 1.0}},
    },
)
ROUTES = Tool(
    "find.routes",
    "",
    {
        "type": "object",
        "properties": {
            "stops": {"type": "array", "items": {"type": "string"}, "description": "where to"},
            "grid": {
                "type": "array",
                "items": {"type": "array", "items": {"type": "integer"}},
                "description": "",
            },
            "limits": {"type": "object", "description": ""},
            "window": {"type": "array", "description": "", "default": None},
            "type": {"type": "string", "description": "of train"},
            "by": {"description": ""},
            "tags": {"type": "array", "description": "", "default": ""},
            "fast": {"type": "boolean", "description": ""},
        },
        "required": ["stops", "grid", "fast"],
    },
)
RAIN = Tool(
    "rain", "", {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}
)


def asked(query: str, tools: tuple[Tool, ...], *calls: Call, **meta: Any) -> Record:
    messages = (Message("user", query), Message("assistant", "", calls))
    return Record(messages=messages, tools=tools, task="tool_selection", meta=meta)


EXPECTED = [
    asked(
        "Convert 3 km and 9 km",
        (KM,),
        Call("km2mi", {"km": 3}, "call_0"),
        Call("km2mi", {"km": 9.5}, "call_1"),
        source_id="0",
    ),
    asked(
        "从上海到Xi'an",
        (ROUTES, KM),
        Call(
            "find.routes",
            {
                "stops": ["上海", "Xi'an"],
                "grid": [[1], []],
                "limits": {"价格": 2.5},
                "type": "高铁",
                "fast": True,
            },
            "call_0",
        ),
        source_id="7",
    ),
    Record(
        messages=(Message("user", "Sing to me"), Message("assistant", NO_CALL_ANSWER)),
        tools=(KM,),
        gold={1: Gold(())},
        task="timing_decision",
        meta={"source_id": "8"},
    ),
    asked(
        "Convert something",
        (KM,),
        Call("km2mi", {}, "call_0"),
        source_id="9",
        extra={"source": "mine"},
    ),
    asked("Open it", (Tool("open", "A door's lock."),), Call("open", {}, "call_0"), source_id="10"),
    asked("Is it wet?", (RAIN,), Call("rain", {"town": "Oslo"}, "call_0"), source_id="s"),
]


@pytest.mark.parametrize(("row", "expected"), list(zip(ROWS, EXPECTED, strict=True)))
def test_a_row_is_a_question_and_one_turn_with_its_calls(row: Row, expected: Record) -> None:
    assert xlam.fits(row)
    assert xlam.read(row) == expected
    validate(expected)


@pytest.mark.parametrize(
    ("written", "schema", "required"),
    [
        ("str", {"type": "string"}, True),
        ("str, optional", {"type": "string"}, False),
        ("Optional[List[float]]", {"type": "array", "items": {"type": "number"}}, False),
        ("Set[bool]", {"type": "array", "items": {"type": "boolean"}}, True),
        ("Tuple[str, int], optional", {"type": "array"}, False),
        ("Dict[str, List[int]]", {"type": "object"}, True),
        ("List[Dict[str, int]]", {"type": "array", "items": {"type": "object"}}, True),
        ("List", {"type": "array"}, True),
        ("Union[int, str]", {}, True),
        ("Any", {}, True),
        (None, {}, True),
    ],
)
def test_a_type_of_python_is_one_of_json_schema_or_any(
    written: Any, schema: Any, required: bool
) -> None:
    (tool,) = xlam.read(row_of([{"name": "f", "parameters": {"a": {"type": written}}}])).tools
    assert tool.parameters["properties"] == {"a": schema}
    assert tool.parameters.get("required", []) == (["a"] if required else [])


def test_what_has_a_default_or_says_that_it_is_not_required_may_be_left_out() -> None:
    parameters = {
        "a": {"type": "str"},
        "b": {"type": "str", "default": None},
        "c": {"type": "str", "required": False},
        "d": {"type": "str", "required": True},
        "e": {"type": "str, default 3"},
    }
    (tool,) = xlam.read(row_of([{"name": "f", "parameters": parameters}])).tools
    assert tool.parameters["required"] == ["a", "d"]


def row_of(tools: Any, answers: Any = "[]", query: Any = "q") -> Row:
    return {
        "id": 1,
        "query": query,
        "tools": tools if isinstance(tools, str) else json.dumps(tools),
        "answers": answers,
    }


BAD: list[tuple[str, Row]] = [
    ("E124", row_of("[{'name'")),
    ("E124", row_of("{}")),
    ("E124", {"query": "q", "answers": "[]"}),
    ("E211", row_of([{"name": "f", "parameters": {"a": "str"}}])),
    ("E119", row_of([{"name": "f", "parameters": {"a": {"type": "List[" * 3000}}}])),
    ("E212", row_of([{"parameters": {}}])),
    ("E212", row_of([3])),
    ("E206", row_of([], "[f(1)]")),
    ("E206", row_of([], "null")),
    ("E206", row_of([], '[{"arguments": {}}]')),
    ("E206", row_of([], '[{"name": "f", "arguments": "x"}]')),
    ("E208", row_of([], '[{"name": "f", "arguments": [1]}]')),
    ("E116", row_of([], '[{"name": "f", "arguments": {"a": NaN}}]')),
    ("E216", row_of([], query=["q"])),
]


@pytest.mark.parametrize(("code", "row"), BAD)
def test_a_row_that_cannot_be_taken_says_why(code: str, row: Row) -> None:
    assert refused(lambda: xlam.read(row)) == code


def test_a_call_without_what_its_tool_needs_is_invalid() -> None:
    row = row_of(
        [{"name": "f", "parameters": {"a": {"type": "int"}}}], '[{"name": "f", "arguments": {}}]'
    )
    assert refused(lambda: validate(xlam.read(row))) == "E210"
