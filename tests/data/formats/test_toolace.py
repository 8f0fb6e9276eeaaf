"""agentlite.data.formats.toolace: lists of calls that look like Python, with names that are
none.
"""

import json
from typing import Any

import pytest
from support.damaged_rows import Row, refused, rows

from agentlite.core.records import Call, Message, Record, Tool
from agentlite.data.curation.validate import validate
from agentlite.data.formats import toolace

ROWS = rows("toolace")


def tool(name: str, properties: dict[str, Any], **more: Any) -> Tool:
    return Tool(name, "A tool's text.", {"type": "object", "properties": properties, **more})


MARKET = tool(
    "Market Trends API",
    {"trend_type": {"type": "string"}, "country": {"type": "string"}},
    required=["trend_type"],
)
ITEMS = tool(
    "v1.2/path/get Items",
    {
        "filter": {"type": "object", "properties": {"名": {"type": "string"}}},
        "from": {"type": "array", "items": {"type": "integer"}},
        "on": {"type": "boolean"},
        "none": {},
    },
)
PING = tool("ping", {})
EXPECTED = [
    Record(
        messages=(
            Message("user", "Trends?"),
            Message(
                "assistant",
                "",
                (
                    Call(
                        "Market Trends API",
                        {"trend_type": "it's (up), [down]", "country": "cn"},
                        "call_0",
                    ),
                    Call(
                        "v1.2/path/get Items",
                        {"filter": {"名": "茶"}, "from": [1, -2], "on": True, "none": None},
                        "call_1",
                    ),
                    Call("ping", {}, "call_2"),
                ),
            ),
            Message("tool", '{"涨": [1]}', call_id="call_0"),
            Message("tool", "pong", call_id="call_2"),
            Message(
                "tool",
                '{"name": "v1.2/path/get Items", "results": null, "other": 1}',
                call_id="call_1",
            ),
            Message("assistant", "Up."),
        ),
        tools=(MARKET, ITEMS, PING),
    ),
    Record(
        messages=(
            Message("user", "Which one?"),
            Message("assistant", "[1, 2] are given; the trend_type (a word) is missing."),
            Message("user", "market_indexes"),
            Message(
                "assistant",
                "",
                (Call("Market Trends API", {"trend_type": "market_indexes"}, "call_0"),),
            ),
        ),
        tools=(MARKET,),
    ),
    Record(
        messages=(
            Message("system", "Today is Monday.\nAnswer in French."),
            Message("user", "Ping"),
            Message("assistant", "I wait.", (Call("ping", {}, "call_0"),)),
            Message("tool", "pong, it's there", call_id="call_0"),
            Message("assistant", "[]"),
        ),
        tools=(PING,),
        meta={"source_id": "t3"},
    ),
    Record(
        messages=(
            Message("user", "Ping"),
            Message("assistant", "[See](x) none of the functions can be used."),
        )
    ),
    Record(
        messages=(
            Message("user", "Ping twice"),
            Message("assistant", "", (Call("ping", {}, "call_0"), Call("ping", {}, "call_1"))),
            Message("tool", "1", call_id="call_0"),
            Message("tool", "[2]", call_id="call_1"),
            Message("assistant", "Done."),
        ),
        tools=(PING,),
    ),
]


@pytest.mark.parametrize(("row", "expected"), list(zip(ROWS, EXPECTED, strict=True)))
def test_calls_are_read_whatever_their_names_and_the_frame_is_taken_off(
    row: Row, expected: Record
) -> None:
    assert toolace.fits(row)
    assert toolace.read(row) == expected
    validate(expected)


def answer(text: Any, tools: Any = '[{"name": "Rain (of) day"}, {"name": "get rain"}]') -> Row:
    system = f"Here is a list of functions in JSON format that you can invoke:\n{tools}. \n"
    turns = [{"from": "user", "value": "q"}, {"from": "assistant", "value": text}]
    return {"system": system, "conversations": turns}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("'it\\'s'", "it's"),
        ('"a\\nb"', "a\nb"),
        ("'a=b, c(d]'", "a=b, c(d]"),
        ("None", None),
        ("null", None),
        ("True", True),
        ("false", False),
        ("-1.5e2", -150.0),
        ("[]", []),
        ("{}", {}),
        ("(1, 'x')", [1, "x"]),
        ("{'a': [{'b': None}]}", {"a": [{"b": None}]}),
        ('{"中": [true, ")"]}', {"中": [True, ")"]}),
        ("''", ""),
    ],
)
def test_a_value_of_json_or_of_python_keeps_its_meaning(written: str, value: Any) -> None:
    (call,) = toolace.read(answer(f"[get rain(a = {written}, b=1)]")).messages[1].calls
    assert call.arguments == {"a": value, "b": 1}


def test_results_answer_the_calls_of_the_turn_before_and_no_older_ones() -> None:
    row = answer("[get rain(a=1)]")
    again = [{"from": "user", "value": "And now?"}, {"from": "assistant", "value": "[get rain()]"}]
    row["conversations"] += [*again, {"from": "tool", "value": "4"}]
    assert toolace.read(row).messages[-1].call_id == "call_1"


@pytest.mark.parametrize("other", ["3", '{"name": "get rain"}', '"results"', "[]"])
def test_a_list_that_holds_more_than_results_is_one_result(other: str) -> None:
    text = f'[{{"name": "get rain", "results": 1}}, {other}]'
    row = answer("[get rain(), get rain()]")
    row["conversations"] += [{"from": "tool", "value": text}]
    assert toolace.read(row).messages[2:] == (Message("tool", text, call_id="call_0"),)


def test_every_system_text_may_list_tools() -> None:
    row = answer("[snow(), get rain()]")
    more = answer("", '[{"name": "snow"}]')["system"]
    row["conversations"].insert(0, {"from": "system", "value": more})
    record = toolace.read(row)
    assert [tool.name for tool in record.tools][-1] == "snow" and len(record.tools) > 1
    assert len(record.messages[-1].calls) == 2


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "[1, 2]",
        "[[1](x)]",
        "[look (here)]",
        "[see: f(x)] for it",
        "[g(a=1)",
        '["f (x=1)"]',
        "Call [get rain()].",
    ],
)
def test_a_list_that_is_no_calls_is_plain_text(text: str) -> None:
    assert toolace.read(answer(text)).messages[1] == Message("assistant", text)


def test_calls_of_a_tool_that_is_not_declared_are_invalid() -> None:
    assert refused(lambda: validate(toolace.read(answer("[snow(a=1)]")))) == "E209"


BAD: list[tuple[str, Row]] = [
    ("E201", {}),
    ("E201", {"conversations": 3}),
    ("E202", {"conversations": [{"from": "critic", "value": "x"}]}),
    ("E202", {"conversations": [{"from": "function_call", "value": "x"}]}),
    ("E216", answer(5)),
    ("E216", {"system": 5, "conversations": [{"from": "user", "value": "q"}]}),
    ("E206", answer("[get rain(a=1")),
    ("E206", answer("[get rain(a=1]")),
    ("E206", answer("[get rain('a')]")),
    ("E206", answer("[get rain(a=b)]")),
    ("E206", answer("[get rain(a=os.remove('b'))]")),
    ("E206", answer("[get rain(a=1, a=2)]")),
    ("E206", answer("[get rain(a=1), ]")),
    ("E206", answer("[get rain(a=1) and more]")),
    ("E206", answer("[get rain(a='it's')]")),
    ("E116", answer("[get rain(a=NaN)]")),
    ("E124", answer("x", '[{"name": "f"')),
    ("E124", answer("x", "[f]")),
    ("E212", answer("x", '[{"parameters": {}}]')),
    ("E211", answer("x", '[{"name": "f", "parameters": {"properties": []}}]')),
]


@pytest.mark.parametrize(("code", "row"), BAD)
def test_a_row_that_cannot_be_taken_says_why(code: str, row: Row) -> None:
    assert refused(lambda: toolace.read(row)) == code


def test_fewer_results_than_calls_are_invalid() -> None:
    row = answer("[get rain(), get rain()]")
    results = json.dumps([{"name": "get rain", "results": 1}])
    row["conversations"] += [
        {"from": "tool", "value": results},
        {"from": "assistant", "value": "a"},
    ]
    assert refused(lambda: validate(toolace.read(row))) == "E204"


def test_calls_of_several_turns_have_ids_of_their_own() -> None:
    row = json.loads(toolace.EXAMPLE)
    system, turns = row["system"], row["conversations"]
    record = toolace.read({"system": system, "conversations": turns * 3})
    ids = [call.id for message in record.messages for call in message.calls]
    assert len({*ids}) == len(ids) == 3
    assert [message.call_id for message in record.messages if message.role == "tool"] == ids


@pytest.mark.parametrize("mark", [{"loss": False}, {"weight": 0}])
def test_a_turn_that_its_row_takes_out_is_not_learned(mark: dict[str, Any]) -> None:
    row = json.loads(toolace.EXAMPLE)
    user, calls, result, answer = row["conversations"]
    for turns, expected in (
        ([user, {**calls, **mark}, result, answer], [False, True]),
        ([user, calls, result, {**answer, **mark}], [True, False]),
    ):
        record = toolace.read({**row, "conversations": turns})
        assert [record.messages[turn].loss for turn in record.turns] == expected
