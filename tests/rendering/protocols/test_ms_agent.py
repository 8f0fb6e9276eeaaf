"""The protocol of ms-agent: what is written is the seed's own text, byte for byte."""

import json
from typing import Any

import pytest
from msgspec.structs import replace
from support.samples import DATA, WEATHER

from agentlite.core.records import Call, Message, Tool
from agentlite.data.formats import to_record
from agentlite.rendering import PROTOCOLS, render
from agentlite.rendering.template import Template

MS_AGENT = PROTOCOLS["ms-agent"]
ROWS = [
    json.loads(line)
    for line in (DATA / "seeds/seed_004.jsonl").read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize("row", ROWS, ids=["printed row", "fire alarm"])
def test_the_printed_prompt_is_written_from_its_tools(row: dict[str, Any]) -> None:
    assert MS_AGENT.system(to_record(row).tools) == row["conversations"][0]["value"]


@pytest.mark.parametrize("row", ROWS, ids=["printed row", "fire alarm"])
def test_the_whole_row_is_written_as_it_was_read(row: dict[str, Any], smollm2: Template) -> None:
    (rendered,) = render(to_record(row), MS_AGENT, smollm2)
    written = [text.partition("\n")[2] for text in rendered.text.split("<|im_start|>")[1:]]
    assert written == [f"{turn['value']}<|im_end|>\n" for turn in row["conversations"]]


@pytest.mark.parametrize("description", ["Weather of a city.", "", ".", "What is it? Call this."])
def test_the_prompt_of_any_tool_reads_back_as_that_tool(description: str) -> None:
    day = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    properties = {"city": {"description": "a town"}, "days": {"type": "array", "items": day}}
    schema = {"type": "object", "properties": properties, "required": ["city"]}
    tool = Tool("get_weather", description, schema)
    turns = [
        {"from": "system", "value": MS_AGENT.system((tool,))},
        {"from": "user", "value": "Wet?"},
        {"from": "assistant", "value": "Final Answer: Yes."},
    ]
    (read,) = to_record({"conversations": turns}).tools
    assert read == replace(tool, description="" if description == "." else description)


def test_arguments_are_python_literals_as_in_the_rows_of_ms_agent() -> None:
    call = Call("f", {"a": None, "b": True, "c": "it's", "d": ["x\ny", 1.5]})
    text = MS_AGENT.assistant(Message("assistant", calls=(call,)))
    assert text == (
        "Action: f\nAction Input: {'a': None, 'b': True, 'c': \"it's\", 'd': ['x\\ny', 1.5]}\n"
        "Observation:"
    )
    assert MS_AGENT.read(text, (WEATHER,)).calls == (call,)
