"""agentlite.data.formats.ms_swift: calls that are turns of their own, weights by turn, and two
shapes of plain chat.
"""

from typing import Any

import pytest
from support.damaged_rows import Row, refused, rows

from agentlite.core.records import Call, Message, Record, Tool, plain
from agentlite.data.curation.validate import validate
from agentlite.data.formats import ms_swift

ROWS = rows("ms_swift")
NUMBERS = {"a": {"type": "number"}, "b": {"type": "number"}}
ADD = Tool("add", "sum", {"type": "object", "properties": NUMBERS, "required": ["a", "b"]})
NOTED = {
    "text": {"type": "string"},
    "tags": {"type": "array", "items": {"type": "string"}},
    "at": {"type": "object", "properties": {"day": {"type": "string"}}},
}
NOTE = Tool("note", "", {"type": "object", "properties": NOTED})
EXPECTED = [
    Record(
        messages=(
            Message("user", "2+3? 4+5?"),
            Message(
                "assistant",
                "",
                (Call("add", {"a": 2, "b": 3}, "call_0"), Call("add", {"a": 4, "b": 5}, "call_1")),
            ),
            Message("tool", "5", call_id="call_0"),
            Message("tool", "9", call_id="call_1"),
            Message("assistant", "5 and 9."),
        ),
        tools=(ADD,),
    ),
    Record(
        messages=(
            Message("system", "Be exact."),
            Message("user", "记一下"),
            Message(
                "assistant",
                "It's noted.",
                (
                    Call(
                        "note", {"text": "it's 明天", "tags": [], "at": {"day": "星期五"}}, "call_0"
                    ),
                ),
                loss=False,
            ),
            Message("tool", '{"ok": true}', call_id="call_0"),
            Message("assistant", "Done."),
            Message("user", "Now?"),
            Message("assistant", "", (Call("note", {}, "call_1"),)),
            Message("tool", "", call_id="call_1"),
            Message("assistant", "Empty."),
        ),
        tools=(ADD, NOTE),
        meta={"source_id": "said"},
    ),
    Record(
        messages=(
            Message("user", "Hm?"),
            Message("assistant", "One.", loss=False),
            Message("user", "And?"),
            Message("assistant", "Two."),
            Message("user", "Then?"),
            Message("assistant", "Three."),
        ),
        meta={"loss_scale": {"3": 0.5}, "turns": {"3": [{"channel": "final"}]}},
    ),
    Record(
        messages=(
            Message("user", "1+1?"),
            Message("assistant", "I add.", (Call("add", {"a": 1, "b": 1}, "call_0"),)),
        ),
        tools=(ADD,),
    ),
    Record(
        messages=(
            Message("system", "Translate."),
            Message("user", "Good morning in Spanish?"),
            Message("assistant", "Buenos días"),
            Message("user", "And in French?"),
            Message("assistant", "Bonjour"),
        ),
        meta={"extra": {"origin": "mine"}},
    ),
    Record(messages=(Message("user", "你好"), Message("assistant", "你好！"))),
    Record(
        messages=(
            Message("system", "Be kind."),
            Message("user", "Hello"),
            Message("assistant", "Hello!"),
            Message("user", "Bye"),
            Message("assistant", "Bye!"),
        )
    ),
]


@pytest.mark.parametrize(("row", "expected"), list(zip(ROWS, EXPECTED, strict=True)))
def test_a_row_is_read_as_it_was_written(row: Row, expected: Record) -> None:
    assert ms_swift.fits(row)
    assert ms_swift.read(row) == expected
    validate(expected)


def row_of(*turns: tuple[str, Any] | dict[str, Any], **beside: Any) -> Row:
    given = [
        turn if isinstance(turn, dict) else dict(zip(("role", "content"), turn, strict=True))
        for turn in turns
    ]
    return {"messages": given, **beside}


def test_results_answer_the_calls_of_the_last_turn_that_calls_and_no_older_ones() -> None:
    call = ("tool_call", '{"name": "add"}')
    row = row_of(("user", "x"), call, ("user", "y"), call, ("tool_response", "late"))
    assert [message.call_id for message in ms_swift.read(row).messages] == [
        "",
        "",
        "",
        "",
        "call_1",
    ]


def test_a_result_that_no_call_waits_for_answers_none() -> None:
    record = ms_swift.read(row_of(("user", "x"), ("tool_response", "4"), ("assistant", "y")))
    assert record.messages[1].call_id == ""
    assert refused(lambda: validate(record)) == "E204"


def test_several_calls_in_one_turn_are_taken_in_their_order() -> None:
    record = ms_swift.read(row_of(("user", "x"), ("tool_call", '[{"name": "a"}, {"name": "b"}]')))
    assert record.messages[-1].calls == (Call("a", {}, "call_0"), Call("b", {}, "call_1"))


@pytest.mark.parametrize("result", [{"mm": 4}, [4, "天"], [], "4"])
def test_a_result_may_be_any_json(result: Any) -> None:
    call = ("tool_call", {"name": "add"})
    record = ms_swift.read(row_of(("user", "x"), call, ("tool_response", result)))
    assert record.messages[-1].content == (result if isinstance(result, str) else plain(result))


@pytest.mark.parametrize("turn", [{"loss_scale": 0.0}, {"channel": "final"}, {"role": "tool_call"}])
def test_a_row_is_known_by_what_only_ms_swift_writes_in_a_turn(turn: dict[str, Any]) -> None:
    said = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    assert not ms_swift.fits(row_of(*said))
    assert ms_swift.fits(row_of(said[0], {**said[1], **turn}))


@pytest.mark.parametrize("key", ["rejected_response", "rejected_messages", "label"])
def test_a_preference_is_known_and_refused_even_where_its_messages_are_plain(key: str) -> None:
    row = row_of(("user", "x"), ("assistant", "y"), **{key: False if key == "label" else "z"})
    assert ms_swift.fits(row)
    assert refused(lambda: ms_swift.read(row)) == "E201"


def test_a_label_that_is_not_true_or_false_is_a_field_of_its_own() -> None:
    row = row_of(("user", "x"), ("tool_call", '{"name": "add"}'), label="sums")
    assert ms_swift.read(row).meta == {"extra": {"label": "sums"}}
    texts = {"query": "x", "response": "y", "label": "sums"}
    assert ms_swift.read(texts).meta == {"extra": {"label": "sums"}}


def test_a_preference_of_query_and_response_is_refused_too() -> None:
    assert (
        refused(lambda: ms_swift.read({"query": "x", "response": "y", "rejected_response": "z"}))
        == "E201"
    )


BAD: list[tuple[str, Row]] = [
    ("E201", {}),
    ("E201", {"query": "x", "response": ["y"]}),
    ("E201", {"query": "x", "response": "y", "history": [["q"]]}),
    ("E216", {"query": 1, "response": "y"}),
    ("E216", {"query": "x", "response": "y", "system": []}),
    ("E216", {"conversation": [{"human": "x", "assistant": 2}]}),
    ("E202", {"messages": ["tool_call"]}),
    ("E202", row_of(("narrator", "x"))),
    ("E206", row_of(("user", "x"), ("tool_call", "add(1)"))),
    ("E206", row_of(("user", "x"), ("tool_call", '{"arguments": {}}'))),
    ("E206", row_of(("user", "x"), ("tool_call", None))),
    (
        "E206",
        row_of(
            ("user", "x"), {"role": "assistant", "content": "", "tool_calls": [{"name": "add"}]}
        ),
    ),
    ("E208", row_of(("user", "x"), ("tool_call", '{"name": "add", "arguments": [1]}'))),
    ("E216", row_of(("user", [{"type": "image"}]))),
    ("E216", row_of(("user", "x"), ("assistant", {"a": 1}))),
    ("E201", row_of(("user", "x"), {"role": "assistant", "content": "y", "loss_scale": "high"})),
    (
        "E201",
        row_of(
            ("user", "x"),
            {"role": "assistant", "content": "y", "loss": False},
            {"role": "tool_call", "content": '{"name": "add"}', "loss": True},
        ),
    ),
    ("E124", row_of(("user", "x"), tools="[{")),
    ("E211", row_of(("user", "x"), tools={"name": "add"})),
    ("E212", row_of(("user", "x"), tools='[{"description": ""}]')),
]


@pytest.mark.parametrize(("code", "row"), BAD)
def test_a_row_that_cannot_be_taken_says_why(code: str, row: Row) -> None:
    assert refused(lambda: ms_swift.read(row)) == code
