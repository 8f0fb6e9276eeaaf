"""agentlite.data.formats.modelscope: one answer with marked calls and results becomes the turns it
stands for.
"""

from contextlib import suppress
from time import process_time
from typing import Any

import pytest
from support.damaged_rows import Row

from agentlite.core.errors import RowError
from agentlite.core.records import Tool
from agentlite.data.formats import modelscope

CITY = {
    "type": "object",
    "properties": {"city": {"description": "a town"}, "day": {"description": "which"}},
    "required": ["city"],
}
WHAT = {"type": "object", "properties": {"what": {"description": "要画的"}}, "required": ["what"]}
WEATHER, PAINT = Tool("weather", "Weather of a town.", CITY), Tool("paint", "画图", WHAT)


def row_of(answer: Any, system: str = "", said_by: str = "assistant") -> Row:
    system_turns = [{"from": "system", "value": system}] if system else []
    return {
        "conversations": [
            *system_turns,
            {"from": "user", "value": "x"},
            {"from": said_by, "value": answer},
        ]
    }


HOSTILE = [
    ("x", "1. {\n" * 50_000),
    ("x", "[1,\n" * 50_000),
    ("<|startofthink|>" * 50_000, ""),
    (
        '<|startofthink|>{"api_name": "f"}<|endofthink|><|startofexec|>```'
        + " \n" * 50_000
        + "x<|endofexec|>",
        "",
    ),
]


@pytest.mark.parametrize(
    ("answer", "system"), HOSTILE, ids=["open objects", "open lists", "open marks", "open fence"]
)
def test_a_text_made_to_be_slow_to_read_is_not(answer: str, system: str) -> None:
    began = process_time()
    with suppress(RowError):
        modelscope.read(row_of(answer, system))
    assert process_time() - began < 2
