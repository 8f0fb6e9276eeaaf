"""agentlite.data.formats.modelscope: one answer with marked calls and results becomes the turns it
stands for.
"""

import json
from contextlib import suppress
from time import process_time
from typing import Any

import pytest
from support.damaged_rows import Row, refused, rows

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Message, Record, Tool
from agentlite.data.curation.validate import validate
from agentlite.data.formats import modelscope

ROWS = rows("ms_agent_exec")
CITY = {
    "type": "object",
    "properties": {"city": {"description": "a town"}, "day": {"description": "which"}},
    "required": ["city"],
}
WHAT = {"type": "object", "properties": {"what": {"description": "要画的"}}, "required": ["what"]}
WEATHER, PAINT = Tool("weather", "Weather of a town.", CITY), Tool("paint", "画图", WHAT)


def listed(system: str) -> list[Any]:
    """The plugins of a system text: each is the rest of a line behind its number."""
    lines = system.replace("help. 1.", "help.\n1.").splitlines()
    return [json.loads(line[3:]) for line in lines if line[1:3] == ". "]


EXPECTED = [
    Record(
        messages=(
            Message("system", "You call plugins where they help.\nNever invent results."),
            Message("user", "Is it wet in Oslo?"),
            Message("assistant", "", (Call("weather", {"city": "Oslo"}, "call_0"),)),
            Message("tool", '{"mm": 4, "at": ["noon"]}', call_id="call_0"),
            Message("assistant", "Yes, about 4 mm."),
        ),
        tools=(WEATHER, PAINT),
        meta={
            "source_id": "e1",
            "calls": {"call_0": {"url": "http://weather.example/v1"}},
            "plugins": listed(ROWS[0]["conversations"][0]["value"]),
        },
    ),
    Record(
        messages=(
            Message("system", "你可以使用插件。"),
            Message("user", "先查天气，再画图"),
            Message(
                "assistant",
                "先查天气。",
                (Call("weather", {"city": "北京", "day": "'"}, "call_0"),),
            ),
            Message("tool", '{"雨": true}', call_id="call_0"),
            Message("assistant", "然后画图。", (Call("paint", {"what": "雨"}, "call_1"),)),
            Message("tool", "/tmp/1.png", call_id="call_1"),
            Message("assistant", "画好了：1.png"),
            Message("user", "谢谢"),
            Message("assistant", "不客气。", loss=False),
        ),
        tools=(WEATHER, PAINT),
        meta={
            "source_id": "e2",
            "calls": {"call_1": {"url": ""}},
            "plugins": listed(ROWS[1]["conversations"][0]["value"]),
        },
    ),
    Record(
        messages=(Message("user", "Now?"), Message("assistant", "", (Call("now", {}, "call_0"),))),
        tools=(Tool("now"),),
        meta={"source_id": "e3"},
    ),
    Record(
        messages=(
            Message("system", 'Tools:\nCall like\n{"api_name": "name", "parameters": {}}'),
            Message("user", "Oslo, 2 nights"),
            Message(
                "assistant",
                "",
                (Call("book", {"trip": {"to": "Oslo", "nights": [1, 2]}}, "call_0"),),
            ),
            Message("tool", "", call_id="call_0"),
            Message("assistant", "Booked."),
        ),
        tools=(Tool("book", "", {"type": "object", "properties": {"trip": {"type": "object"}}}),),
        meta={"source_id": "e4"},
    ),
    Record(
        messages=(Message("user", "Good morning"), Message("assistant", "Good morning!")),
        tools=(Tool("weather", "Weather.", CITY),),
        meta={"source_id": "e5", "plugins": listed(ROWS[4]["conversations"][0]["value"])},
    ),
    Record(
        messages=(
            Message("user", "Say 'hi'"),
            Message("assistant", "", (Call("say", {"text": "it's 'hi'"}, "call_0"),)),
            Message("tool", '"said"', call_id="call_0"),
            Message("assistant", "Said."),
        ),
        tools=(
            Tool(
                "say",
                "Speaks.",
                {"type": "object", "properties": {"text": {}}, "required": ["text"]},
            ),
        ),
        meta={"source_id": "e6", "plugins": listed(ROWS[5]["conversations"][0]["value"])},
    ),
]


@pytest.mark.parametrize(("row", "expected"), list(zip(ROWS, EXPECTED, strict=True)))
def test_a_row_is_read_as_it_was_written(row: Row, expected: Record) -> None:
    assert modelscope.fits(row)
    assert modelscope.read(row) == expected
    validate(expected)


def row_of(answer: Any, system: str = "", said_by: str = "assistant") -> Row:
    system_turns = [{"from": "system", "value": system}] if system else []
    return {
        "conversations": [
            *system_turns,
            {"from": "user", "value": "x"},
            {"from": said_by, "value": answer},
        ]
    }


def test_marks_that_a_user_writes_make_no_row_of_this_format() -> None:
    assert not modelscope.fits(row_of("<|startofthink|>", said_by="user"))


def test_a_system_text_that_lists_no_tools_stays_and_declares_none() -> None:
    system = 'Use the API "weather".\n1. {a: b}\n2. {"city": "Oslo"}\n[]\n3. {"name": "x"'
    record = modelscope.read(row_of("Good morning", system))
    assert (record.messages[0], record.tools) == (Message("system", system), ())


def test_tools_listed_over_several_lines_are_read_once() -> None:
    system = f"Tools:\n{json.dumps([{'name': 'a', 'description': 'A.'}, {'name': 'b', 'parameters': {}}], indent=0)}\nEnd."  # noqa: E501  (verbatim text)
    record = modelscope.read(row_of("Good morning", system))
    assert record.tools == (Tool("a", "A."), Tool("b"))
    assert record.messages[0] == Message("system", "Tools:\nEnd.")


def test_a_list_that_holds_something_else_beside_tools_is_text() -> None:
    system = 'As said:\n[{"name": "a", "description": "A."}, {"city": "Oslo"}]'
    record = modelscope.read(row_of("Good morning", system))
    assert (record.messages[0], record.tools) == (Message("system", system), ())


def test_json_that_describes_nothing_is_no_tool_though_it_has_a_name() -> None:
    system = 'Tools:\n1. {"name": "a", "description": "A."}\nCall one so:\n{"name": "a", "x": 1}'
    record = modelscope.read(row_of("Good morning", system))
    assert record.tools == (Tool("a", "A."),)
    assert record.messages[0].content == 'Tools:\nCall one so:\n{"name": "a", "x": 1}'


def test_a_year_is_no_number_of_a_list() -> None:
    system = 'As of 2024. {"name": "a", "description": "A."}'
    record = modelscope.read(row_of("Good morning", system))
    assert (record.messages[0], record.tools) == (Message("system", system), ())


def test_a_call_without_a_result_in_the_middle_is_for_validate_to_refuse() -> None:
    record = modelscope.read(row_of('<|startofthink|>{"api_name": "f"}<|endofthink|>\nSaid.'))
    assert [message.role for message in record.messages] == ["user", "assistant", "assistant"]
    assert refused(lambda: validate(record)) == "E203"


@pytest.mark.parametrize(
    ("result", "content"),
    [
        ("", ""),
        ("```", "```"),
        ("``````", ""),
        (" ```json\n[1]\n``` ", "[1]"),
        ("```\n4\n```", "4"),
        ("a ```b```", "a ```b```"),
    ],
)
def test_only_a_fence_around_all_of_a_result_is_taken_off(result: str, content: str) -> None:
    answer = (
        f'<|startofthink|>{{"api_name": "f"}}<|endofthink|><|startofexec|>{result}<|endofexec|>'
    )
    assert modelscope.read(row_of(answer)).messages[-1] == Message(
        "tool", content, call_id="call_0"
    )


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


def marked(call: str) -> Row:
    return row_of(f"<|startofthink|>```JSON\n{call}\n```<|endofthink|>")


def plugin(**schema: Any) -> str:
    return json.dumps({"plugin_name": "p", "plugin_schema_for_model": schema})


BAD: list[tuple[str, dict[str, Any]]] = [
    ("E201", {}),
    ("E201", {"conversations": [1]}),
    ("E202", row_of("x", said_by="narrator")),
    ("E206", marked("weather Oslo")),
    ("E206", marked('["weather"]')),
    ("E206", marked('{"parameters": {}}')),
    ("E208", marked('{"api_name": "weather", "parameters": ["Oslo"]}')),
    ("E211", row_of("x", plugin(paths=["/weather"]))),
    ("E211", row_of("x", plugin(parameters=[{"required": "True"}]))),
    ("E212", row_of("x", '{"name": "", "parameters": {}}')),
    ("E214", row_of('<|startofthink|>{"api_name": "f"}')),
    ("E214", row_of("4 mm<|endofexec|>")),
    ("E214", row_of('<|startofthink|>{"api_name": "f"}<|endofthink|><|startofexec|>4')),
    ("E216", row_of(3)),
]


def test_an_empty_turn_of_the_assistant_stays_for_validate_to_refuse() -> None:
    record = modelscope.read(row_of(""))
    assert record.messages[-1] == Message("assistant", "")
    with pytest.raises(RowError) as refusal:
        validate(record)
    assert refusal.value.code == "E216"


@pytest.mark.parametrize(("code", "row"), BAD)
def test_a_row_that_cannot_be_taken_says_why(code: str, row: Row) -> None:
    assert refused(lambda: modelscope.read(row)) == code


@pytest.mark.parametrize(
    ("path", "name", "description"),
    [
        ({"name": "rain", "description": "Rain."}, "rain", "Rain."),
        ({"name": "rain"}, "rain", "Of the schema."),
        ({}, "schema", "Of the schema."),
    ],
)
def test_an_api_without_a_name_or_a_description_has_those_of_its_plugin(
    path: dict[str, str], name: str, description: str
) -> None:
    schema = {
        "name": "schema",
        "description": "Of the schema.",
        "paths": [{**path, "parameters": []}],
    }
    plugin = {"plugin_name": "plugin", modelscope.SCHEMA: schema}
    (api,) = tools_of(plugin)
    assert (api.name, api.description) == (name, description)
    (alone,) = tools_of({"plugin_name": "plugin", modelscope.SCHEMA: {"parameters": []}})
    assert alone.name == "plugin"


def tools_of(plugin: dict[str, Any]) -> tuple[Tool, ...]:
    turns = [
        ("system", f"Plugins:\n1. {json.dumps(plugin)}"),
        ("user", "Wet?"),
        ("assistant", "Yes."),
    ]
    conversations = [{"from": of, "value": text} for of, text in turns]
    return modelscope.read({"conversations": conversations}).tools
