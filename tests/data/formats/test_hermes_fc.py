"""agentlite.data.formats.hermes_fc: tools, calls, results and thoughts between tags, often as
Python writes them.
"""

import json
from typing import Any

import pytest
from support.damaged_rows import Row, refused, rows

from agentlite.core.records import Call, Message, Record, Tool
from agentlite.data.curation.validate import validate
from agentlite.data.formats import hermes_fc

ROWS = rows("hermes_fc")
QUOTE = Tool(
    "get_quote",
    "A stock's price.",
    {
        "type": "object",
        "properties": {"sym": {"type": "string"}, "deep": {"type": "object"}},
        "required": ["sym"],
    },
)
NEWS = Tool(
    "get_news",
    "",
    {"type": "object", "properties": {"topic": {"type": "string"}}, "required": ["topic"]},
)
EXPECTED = [
    Record(
        messages=(
            Message("user", "Price of X and of Y's, and news?"),
            Message(
                "assistant",
                "I look.\n\n\n\nOne moment.",
                (
                    Call("get_quote", {"sym": "X", "deep": {"a": [True, None]}}, "call_0"),
                    Call("get_quote", {"sym": "Y's"}, "call_1"),
                    Call("get_news", {"topic": "新闻"}, "call_2"),
                ),
            ),
            Message("tool", "none", call_id="call_2"),
            Message("tool", '{"价": 1}', call_id="call_0"),
            Message("tool", '["Y\'s", 2]', call_id="call_1"),
            Message("assistant", "1 and 2, no news."),
        ),
        tools=(QUOTE, NEWS),
        meta={
            "source_id": "h1",
            "extra": {"category": "Finance", "subcategory": "Stocks", "task": "Get prices"},
        },
    ),
    Record(
        messages=(
            Message("system", "You are kind.\n\nAnswer in French."),
            Message("user", "News?"),
            Message(
                "assistant",
                "Goal: news\nSteps: one",
                (Call("get_news", {"topic": "any"}, "call_0"),),
            ),
            Message("tool", '{"name": "functions.get_news", "content": "none"}', call_id="call_0"),
            Message("assistant", "<scratch_pad>\nNone.\n</scratch_pad>\nRien."),
        ),
        tools=(QUOTE, NEWS),
        meta={"source_id": "h2", "extra": {"tools": json.dumps([NEWS.schema])}},
    ),
    Record(
        messages=(
            Message("user", "Time?"),
            Message("assistant", "", (Call("now", {}, "call_0"),)),
            Message("tool", "12:00 o'clock", call_id="call_0"),
            Message("assistant", "Noon."),
        ),
        tools=(Tool("now"),),
    ),
    Record(
        messages=(
            Message(
                "system",
                "You are a helpful assistant that answers in JSON. Here's the json schema you must "
                "adhere to:\n"
                '<schema>\n{"type": "object"}\n</schema>\n',
            ),
            Message("user", "A town?"),
            Message("assistant", '{"town": "Oslo"}'),
        ),
        meta={"source_id": "j1", "extra": {"category": "json", "schema": '{"type": "object"}'}},
    ),
    Record(messages=(Message("user", "Price?"), Message("assistant", "I have no tool for that."))),
]


@pytest.mark.parametrize(("row", "expected"), list(zip(ROWS, EXPECTED, strict=True)))
def test_what_stands_between_tags_is_read_and_the_frame_taken_off(
    row: Row, expected: Record
) -> None:
    assert hermes_fc.fits(row)
    assert hermes_fc.read(row) == expected
    validate(expected)


def test_a_system_text_beside_the_turns_is_read_like_one_among_them() -> None:
    first, *turns = ROWS[0]["conversations"]
    assert (
        hermes_fc.read({**ROWS[0], "system": first["value"], "conversations": turns}) == EXPECTED[0]
    )


def said(answer: Any, *, system: Any = '<tools> [{"name": "f"}] </tools>') -> Row:
    turns = [("system", system), ("human", "q"), ("gpt", answer)]
    return {"conversations": [{"from": by, "value": value} for by, value in turns]}


BAD: list[tuple[str, Row]] = [
    ("E201", {}),
    ("E201", {"conversations": {"a": 1}}),
    ("E202", {"conversations": [{"from": "critic", "value": "x"}]}),
    ("E216", said(True)),
    ("E206", said("<tool_call>{'name': 'f'")),
    ("E206", said("<tool_call>f()</tool_call>")),
    ("E206", said("<tool_call>{'arguments': {}}</tool_call>")),
    ("E208", said("<tool_call>{'arguments': [1], 'name': 'f'}</tool_call>")),
    ("E124", said("x", system="<tools> [{'name': 'f'} </tools>")),
    ("E124", said("x", system="<tools> [{'name': 'f'}] and more </tools>")),
    ("E124", said("x", system="<tools> [{'name': f}] </tools>")),
    ("E212", said("x", system="<tools> {'description': 'f'} </tools>")),
    ("E211", said("x", system="<tools> [{'name': 'f', 'parameters': {'required': 1}}] </tools>")),
]


@pytest.mark.parametrize(("code", "row"), BAD)
def test_a_row_that_cannot_be_taken_says_why(code: str, row: Row) -> None:
    assert refused(lambda: hermes_fc.read(row)) == code


def test_more_results_than_calls_are_invalid() -> None:
    row = said('<tool_call>{"name": "f", "arguments": {}}</tool_call>')
    row["conversations"] += [{"from": "tool", "value": "<tool_response>1</tool_response>"}] * 2
    row["conversations"].append({"from": "gpt", "value": "a"})
    assert refused(lambda: validate(hermes_fc.read(row))) == "E205"


def test_the_heading_above_the_tools_belongs_to_their_frame() -> None:
    """As the chat templates of Qwen and others print it."""
    tools = '<tools>\n{"name": "f"}\n</tools>'
    frame = (
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are "
        f"provided with function signatures within <tools></tools> XML tags:\n{tools}"
    )
    for before in ("", "Be brief.\n\n"):
        turns = [{"from": "system", "value": before + frame}, {"from": "human", "value": "Hi"}]
        record = hermes_fc.read({"conversations": [*turns, {"from": "gpt", "value": "Hello."}]})
        system = [m.content for m in record.messages if m.role == "system"]
        assert system == ([before.strip()] if before else [])
        assert [tool.name for tool in record.tools] == ["f"]
