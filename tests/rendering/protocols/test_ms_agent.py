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


def test_a_tool_of_another_data_set_gets_the_words_around_it_and_keeps_its_schema() -> None:
    tool = replace(
        WEATHER,
        parameters={
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "a town"},
                "days": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}},
                        "required": ["name"],
                    },
                },
            },
            "required": ["city"],
        },
    )
    about = "Call this tool to interact with the get_weather API. What is the get_weather API "
    assert (
        f"\n1. get_weather: {about}useful for? Weather of a city. Parameters: "
        '[{"name": "city", "type": "string", "description": "a town", "required": "True"}, '
        '{"name": "days", "type": "array", "items": {"type": "object", "properties": '
        '{"name": {"type": "string", "required": "True"}}}, "required": "False"}]\n\nUse'
    ) in MS_AGENT.system((tool,))


@pytest.mark.parametrize("description", ["Weather of a city.", "", ".", "What is it? Call this."])
def test_the_prompt_of_any_tool_reads_back_as_that_tool(description: str) -> None:
    tool = Tool(
        "get_weather",
        description,
        {"type": "object", "properties": {"city": {"description": "a town"}}, "required": ["city"]},
    )
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
