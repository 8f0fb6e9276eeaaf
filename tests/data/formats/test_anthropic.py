"""agentlite.data.formats.anthropic: blocks of a message become one turn, or a turn for each
result.
"""

from typing import Any

import pytest
from support.damaged_rows import Row, refused, rows

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Message, Record, Tool
from agentlite.data.curation.validate import validate
from agentlite.data.formats import anthropic

ROWS = rows("anthropic")
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Tool("weather", "Weather of a city.", CITY)
DISH = {"name": {"type": "string"}, "extras": {"type": "array", "items": {"type": "string"}}}
ORDER = {
    "type": "object",
    "properties": {"dish": {"type": "object", "properties": DISH}, "count": {"type": "integer"}},
}
EXPECTED = [
    Record(
        messages=(
            Message("system", "Be brief."),
            Message("user", "Is it wet in Oslo?"),
            Message("assistant", "I look it up.", (Call("weather", {"city": "Oslo"}, "call_0"),)),
            Message("tool", "4 mm", call_id="call_0"),
            Message("assistant", "Yes."),
        ),
        tools=(WEATHER,),
        meta={"source_id": "plain"},
    ),
    Record(
        messages=(
            Message("user", "北京和 Lyon?"),
            Message(
                "assistant",
                "",
                (
                    Call("weather", {"city": "北京"}, "call_0"),
                    Call("weather", {"city": "Lyon"}, "call_1"),
                ),
            ),
            Message("tool", "dry\n18 °C", call_id="call_1"),
            Message("tool", "雨", call_id="call_0"),
            Message("assistant", "北京有雨，Lyon 没有。"),
        ),
        tools=(WEATHER,),
        meta={
            "source_id": "parallel",
            "blocks": [{"message": 4, "citations": [{"cited_text": "雨"}]}],
        },
    ),
    Record(
        messages=(
            Message("system", "You cook.\n\nYou're kind."),
            Message("user", "Two of 'Mum’s', please"),
            Message(
                "assistant",
                "Two dishes; it's \"Mum's\".\n\nAt once.\n\nA moment.",
                (Call("order", {"dish": {"name": "Mum's", "extras": []}, "count": 2}, "call_0"),),
            ),
            Message("tool", "out of stock", call_id="call_0"),
            Message("assistant", "None left.\n\nSold out."),
        ),
        tools=(Tool("order", "", ORDER),),
        meta={
            "source_id": "thought",
            "is_error": ["call_0"],
            "blocks": [{"message": 2, "signature": "c2ln"}],
        },
    ),
    Record(
        messages=(
            Message("user", "Anything?"),
            Message("assistant", "", (Call("now", {}, "call_0"),)),
            Message("tool", "", call_id="call_0"),
            Message("assistant", "Nothing."),
            Message("user", "And now?"),
            Message("assistant", "Again.", (Call("now", {}, "call_1"),)),
            Message("tool", "", call_id="call_1"),
            Message("assistant", "Still nothing."),
        ),
        tools=(Tool("now"),),
        meta={"source_id": "empty"},
    ),
    Record(
        messages=(
            Message("user", "Oslo, and a soup"),
            Message("assistant", "", (Call("weather", {"city": "Oslo"}, "call_0"),)),
        ),
        tools=(WEATHER,),
    ),
    Record(
        messages=(
            Message("system", "Be brief."),
            Message("user", "Good morning"),
            Message("assistant", "Good morning!", loss=False),
            Message("user", "Again"),
            Message("assistant", "Good morning again!"),
        ),
        meta={"source_id": "chat", "extra": {"model": "a model"}},
    ),
]


@pytest.mark.parametrize(("row", "expected"), list(zip(ROWS, EXPECTED, strict=True)))
def test_a_row_is_read_as_it_was_written(row: Row, expected: Record) -> None:
    assert anthropic.fits(row)
    assert anthropic.read(row) == expected
    validate(expected)


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


def text(said: Any) -> dict[str, Any]:
    return {"type": "text", "text": said}


def use(call_id: Any = "a", name: Any = "f", given: Any = None) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def result(call_id: Any = "a", content: Any = "4") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def row_of(*messages: Any, **beside: Any) -> Row:
    return {"messages": list(messages), **beside}


@pytest.mark.parametrize(
    "row",
    [
        row_of(user(text("x")), assistant(text("y"))),
        row_of(
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": "y"},
            tools=[{"name": "f"}],
        ),
        row_of({"role": "system", "content": "x"}, user(text("x")), assistant(use())),
        row_of(
            user(text("x")),
            {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}]},
            system="x",
        ),
        row_of(user(text("x")), {"role": "assistant", "content": "y", "loss_scale": 0}, system="x"),
    ],
)
def test_messages_that_openai_or_ms_swift_may_have_written_are_left_to_them(row: Row) -> None:
    assert not anthropic.fits(row)


@pytest.mark.parametrize(
    "blocks",
    [
        [result(), text("Now stop."), text("Please.")],
        [text("Now stop."), result()],
        [result("a"), text("Now stop."), result("b")],
        [text("\n"), result("a"), result("b"), text("Now stop.")],
    ],
)
def test_what_a_user_says_with_results_is_never_put_into_a_result(blocks: list[Any]) -> None:
    row = row_of(user(text("x")), assistant(use("a"), use("b")), user(*blocks))
    with pytest.raises(RowError, match=r"the same message as a result \(message 3\): 'Now") as no:
        anthropic.read(row)
    assert no.value.code == "E203"
    assert "before the call, or drop it" in no.value.hint


def test_a_blank_text_beside_results_says_nothing() -> None:
    for blocks in ([result(), text("\n")], [text(" "), result()]):
        record = anthropic.read(row_of(user(text("x")), assistant(use()), user(*blocks)))
        assert [message.role for message in record.messages] == ["user", "assistant", "tool"]


@pytest.mark.parametrize("content", [[], "", None])
def test_a_message_that_says_nothing_stays_for_validate_to_refuse(content: Any) -> None:
    record = anthropic.read(row_of({"role": "user", "content": content}, assistant(text("y"))))
    assert refused(lambda: validate(record)) == "E216"


@pytest.mark.parametrize("answered", ["b", None])
def test_a_result_of_no_call_before_it_is_for_validate_to_refuse(answered: str | None) -> None:
    record = anthropic.read(
        row_of(user(text("x")), assistant(use()), user(result(answered)), assistant(text("y")))
    )
    assert refused(lambda: validate(record)) == "E205"


def test_an_id_may_come_again_in_a_later_turn() -> None:
    turns = [assistant(use()), user(result())] * 2
    record = anthropic.read(row_of(user(text("x")), *turns))
    assert [message.call_id for message in record.messages] == ["", "", "call_0", "", "call_1"]


def test_text_and_calls_in_two_messages_are_one_turn() -> None:
    record = anthropic.read(
        row_of(user(text("x")), assistant(text("I look.")), assistant(use(given={"a": None})))
    )
    assert record.messages[1:] == (Message("assistant", "I look.", (Call("f", {}, "call_0"),)),)


def test_a_null_that_its_tool_knows_is_an_argument() -> None:
    tools = [
        {
            "name": "f",
            "input_schema": {"type": "object", "properties": {"a": {"type": ["string", "null"]}}},
        }
    ]
    record = anthropic.read(
        row_of(user(text("x")), assistant(use(given={"a": None, "b": None})), tools=tools)
    )
    assert record.messages[-1].calls == (Call("f", {"a": None}, "call_0"),)
    validate(record)


BAD: list[tuple[str, Row]] = [
    ("E201", {}),
    ("E201", {"messages": "x"}),
    ("E202", row_of("x")),
    ("E202", row_of({"role": "system", "content": "x"})),
    ("E205", row_of(user(text("x")), assistant(use(None)))),
    ("E205", row_of(user(text("x")), assistant(use("a"), use("a")))),
    ("E206", row_of(user(text("x")), assistant(use(name="")))),
    ("E206", row_of(user(text("x")), assistant(use(given="Oslo")))),
    ("E208", row_of(user(text("x")), assistant(use(given=["Oslo"])))),
    ("E124", row_of(user(text("x")), tools="[{")),
    ("E211", row_of(user(text("x")), tools={"name": "f"})),
    (
        "E211",
        row_of(
            user(text("x")),
            tools=[{"name": "f", "input_schema": {"required": "True", "type": "object"}}],
        ),
    ),
    ("E212", row_of(user(text("x")), tools=[{"input_schema": CITY}])),
    ("E216", row_of(user({"type": "image", "source": {}}))),
    ("E216", row_of(user(use()))),
    ("E216", row_of(user("x"))),
    ("E216", row_of({"role": "user", "content": {"type": "text", "text": "x"}})),
    ("E216", row_of(user(text("x")), assistant(use()), user(result(content=[{"type": "image"}])))),
    ("E216", row_of(user(text("x")), assistant({"type": "redacted_thinking", "data": "x"}))),
    ("E216", row_of(user(text("x")), assistant({"type": "thinking", "text": "x"}))),
    ("E216", row_of(user(text(3)))),
    ("E216", row_of(user(text("x")), system=[{"type": "image"}])),
]


@pytest.mark.parametrize(("code", "row"), BAD)
def test_a_row_that_cannot_be_taken_says_why(code: str, row: Row) -> None:
    assert refused(lambda: anthropic.read(row)) == code
