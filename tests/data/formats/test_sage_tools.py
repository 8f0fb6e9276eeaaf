"""agentlite.data.formats.sage_tools: each example of a tool's use is a question and the call that
is due.
"""

from typing import Any

import pytest
from support.damaged_rows import Row, refused, rows

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Message, Record, Tool
from agentlite.data.curation.validate import validate
from agentlite.data.formats import sage_tools

ROWS = rows("sage_tools")
RAIN = Tool(
    "rain_001",
    "Rain: rain of today, 雨量",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "a town"},
            "days": {"type": "integer", "description": "", "default": 1},
            "deep": {"type": "object"},
        },
        "required": ["city"],
    },
)
ABOUT_RAIN = {
    "name": "Rain",
    "category": "weather/rain",
    "capabilities": ["rain of today", "雨量"],
    "outputs": [{"name": "mm", "type": "number", "description": ""}],
    "reliability_score": 0.9,
    "latency_ms_p50": 20,
    "metadata": {"owner": "me", "deprecated": False},
}


def used(asked: str, tool: Tool, arguments: dict[str, Any], **meta: Any) -> Record:
    call = Call(tool.name, arguments, "call_0")
    messages = (Message("user", asked), Message("assistant", "", (call,)))
    return Record(messages=messages, tools=(tool,), meta={"source_id": tool.name, **meta})


def takes(name: str, description: str, **properties: Any) -> Tool:
    return Tool(
        name, description, {"type": "object", "properties": properties, "required": [*properties]}
    )


EXPECTED = [
    [
        used(
            "Is it wet in Oslo?",
            RAIN,
            {"city": "Oslo"},
            extra=ABOUT_RAIN,
            example={"expected_output": {"mm": 4}},
        ),
        used(
            "西安呢？",
            RAIN,
            {"city": "Xi'an", "days": 2, "deep": {"a": [None]}},
            extra=ABOUT_RAIN,
            example={"expected_output": "无"},
        ),
    ],
    [
        used(
            "Ping",
            Tool("ping_002", "Ping"),
            {},
            extra={
                "name": "Ping",
                "category": "net",
                "capabilities": [],
                "outputs": [],
                "reliability_score": 1,
                "latency_ms_p50": 1,
                "metadata": {},
            },
        )
    ],
    [used("Find tea", takes("find_003", "", q={"type": "string"}), {"q": "tea"})],
    [
        used(
            "1 + 2",
            takes("sum_004", "Sum: adds", of={"type": "array", "description": "numbers"}),
            {"of": [1, 2]},
            extra={"name": "Sum", "capabilities": ["adds"]},
            example={"expected_output": 3},
        )
    ],
    [
        used(
            "Do it",
            Tool(
                "any_005", "Any", {"type": "object", "properties": {}, "additionalProperties": True}
            ),
            {"how": "so"},
            extra={"name": "Any", "capabilities": []},
            example={"expected_output": ""},
        )
    ],
]


@pytest.mark.parametrize(("row", "expected"), list(zip(ROWS, EXPECTED, strict=True)))
def test_each_example_is_a_question_and_a_call_and_its_result_is_kept_in_meta(
    row: Row, expected: list[Record]
) -> None:
    assert sage_tools.fits(row)
    assert all(sage_tools.fits(part) for part in sage_tools.parts(row))
    assert [sage_tools.read(part) for part in sage_tools.parts(row)] == expected
    for record in expected:
        validate(record)


def test_parameters_of_other_tools_that_arrow_filled_in_are_no_arguments() -> None:
    inputs = [{"name": "a", "type": "string", "required": None, "default": None}]
    row = tool([{"instruction": "q", "arguments": {"a": None, "other": None}}], inputs=inputs)
    assert sage_tools.read(row).messages[1].calls[0].arguments == {"a": None}


def tool(examples: Any, **row: Any) -> Row:
    return {"tool_id": "f_001", "name": "F", "inputs": [], "invoke_examples": examples, **row}


GOOD = [{"instruction": "q", "arguments": {}}]
BAD: list[tuple[str, Row]] = [
    ("E201", tool([])),
    ("E201", tool(None)),
    ("E201", tool("x")),
    ("E201", tool(["x"])),
    ("E201", tool([*GOOD, *GOOD])),
    ("E206", tool([{"instruction": "q", "arguments": "{'a"}])),
    ("E208", tool([{"instruction": "q", "arguments": [1]}])),
    ("E210", tool([{"instruction": "q", "arguments": {"a": 1}}])),
    ("E210", tool(GOOD, inputs=[{"name": "a", "type": "string"}])),
    ("E211", tool(GOOD, inputs=["a"])),
    ("E211", tool(GOOD, inputs=[{"type": "string"}])),
    ("E212", tool(GOOD, tool_id=None)),
    ("E216", tool([{"instruction": ["q"], "arguments": {}}])),
]


@pytest.mark.parametrize(("code", "row"), BAD)
def test_a_row_that_cannot_be_taken_says_why(code: str, row: Row) -> None:
    assert refused(lambda: validate(sage_tools.read(row))) == code


def test_a_tool_without_examples_is_refused_as_nothing_to_learn_from() -> None:
    (part,) = sage_tools.parts(tool([]))
    with pytest.raises(RowError, match="nothing to learn from"):
        sage_tools.read(part)


def test_only_a_tool_of_which_nothing_else_is_known_is_an_id_alone() -> None:
    alone, described = (
        sage_tools.declared("rain_001"),
        sage_tools.declared(
            {"tool_id": "tide_002", "name": "Tide", "capabilities": ["high", "low"]}
        ),
    )
    known = sage_tools.declared({"tool_id": "clock_003", "inputs": []})
    assert described.description == "Tide: high, low" and described.parameters == alone.parameters
    assert sage_tools.undescribed([alone, described, known]) == ["rain_001"]
