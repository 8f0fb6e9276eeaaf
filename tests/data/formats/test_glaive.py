"""agentlite.data.formats.glaive: a chat in one text, with JSON in single quotes that may hold
apostrophes.
"""

import json
from typing import Any

import pytest
from support.damaged_rows import Row, refused, rows

from agentlite.core.records import Call, Message, Record, Tool
from agentlite.data.curation.validate import validate
from agentlite.data.formats import glaive

ROWS = rows("glaive")
FUNCTIONS = (
    "You are a helpful assistant with access to the following functions. Use them if required -\n"
)


def tool(name: str, **types: str) -> Tool:
    properties = {key: {"type": value} for key, value in types.items()}
    return Tool(name, "", {"type": "object", "properties": properties, "required": [*types][:1]})


BMI, NOTE = tool("bmi", kg="number", m="number"), tool("note", text="string")
EXPECTED = [
    Record(
        messages=(
            Message("user", "bmi for 80kg 1.8m?"),
            Message("assistant", "", (Call("bmi", {"kg": 80, "m": 1.8}, "call_0"),)),
            Message("tool", '{"bmi": 24.7}', call_id="call_0"),
            Message("assistant", "24.7"),
            Message("user", "Thanks"),
            Message("assistant", "You're welcome!"),
        ),
        tools=(BMI, NOTE),
    ),
    Record(
        messages=(
            Message("user", "Note it's Ann's {book}"),
            Message(
                "assistant",
                "I write it down.",
                (
                    Call(
                        "note",
                        {"text": "it's Ann's {book}", "deep": {"中": [1, {"a": None}]}},
                        "call_0",
                    ),
                ),
            ),
            Message("tool", '{"status": "ok"}', call_id="call_0"),
            Message("assistant", "Done.\n\nIt's noted."),
        ),
        tools=(tool("note", text="string", deep="object"),),
    ),
    Record(
        messages=(
            Message("system", "You are a helpful assistant, with no access to external functions."),
            Message("user", "你好"),
            Message("assistant", "你好！\n\n有什么事？"),
        )
    ),
    Record(
        messages=(
            Message("user", "Time?"),
            Message("assistant", "One moment.", (Call("now", {}, "call_0"),)),
            Message("tool", "12:00", call_id="call_0"),
            Message("assistant", "Noon."),
        ),
        tools=(Tool("now"),),
    ),
    Record(
        messages=(
            Message("system", "Answer in French."),
            Message("user", "Two notes"),
            Message(
                "assistant",
                "",
                (Call("note", {"text": "a"}, "call_0"), Call("note", {"text": "it's b"}, "call_1")),
            ),
            Message("tool", "1", call_id="call_0"),
            Message("tool", "2", call_id="call_1"),
            Message("assistant", "Oui."),
        ),
        tools=(NOTE,),
        meta={"extra": {"source": "mine"}},
    ),
]


@pytest.mark.parametrize(("row", "expected"), list(zip(ROWS, EXPECTED, strict=True)))
def test_a_chat_is_read_turn_by_turn_and_its_functions_as_tools(row: Row, expected: Record) -> None:
    assert glaive.fits(row)
    assert glaive.read(row) == expected
    validate(expected)


def test_what_is_said_and_the_call_written_as_two_turns_are_one() -> None:
    record = glaive.read(
        chat(
            'I look. <|endoftext|>\n\n\nASSISTANT: <functioncall> {"name": "f", "arguments": '
            "'{}'}"
        )
    )
    assert record.messages[1:] == (Message("assistant", "I look.", (Call("f", {}, "call_0"),)),)


def chat(answer: str, system: Any = f'SYSTEM: {FUNCTIONS}{{"name": "f"}}') -> Row:
    return {"system": system, "chat": f"USER: q\n\n\nASSISTANT: {answer}"}


BAD: list[tuple[str, Row]] = [
    ("E201", {"system": ""}),
    ("E201", {"system": "", "chat": "Hello\n\n\nUSER: q"}),
    ("E216", {"system": "", "chat": ["USER: q"]}),
    ("E216", chat("a", system=3)),
    ("E206", chat("<functioncall> f()")),
    ("E206", chat('<functioncall> {"name": "f"')),
    ("E206", chat('<functioncall> {"name": "f", "arguments": \'{"a": }\'}')),
    ("E206", chat("<functioncall> {\"arguments\": '{}'}")),
    ("E208", chat('<functioncall> {"name": "f", "arguments": \'[1]\'}')),
    ("E118", chat('<functioncall> {"name": "f", "arguments": \'{"a": 1, "a": 2}\'}')),
    ("E124", chat("a", system=f'{FUNCTIONS}{{"name": "f"')),
    ("E124", chat("a", system=f"{FUNCTIONS}{{name}}")),
    ("E212", chat("a", system=f'{FUNCTIONS}{{"description": "f"}}')),
    ("E211", chat("a", system=f'{FUNCTIONS}{{"name": "f", "parameters": {{"properties": 3}}}}')),
]


@pytest.mark.parametrize(("code", "row"), BAD)
def test_a_row_that_cannot_be_taken_says_why(code: str, row: Row) -> None:
    assert refused(lambda: glaive.read(row)) == code


def test_a_response_to_nothing_is_invalid() -> None:
    row = chat("a <|endoftext|>\n\n\nFUNCTION RESPONSE: 1\n\n\nASSISTANT: b")
    assert refused(lambda: validate(glaive.read(row))) == "E204"


def test_calls_of_later_turns_have_ids_of_their_own():
    call = '<functioncall> {"name": "now", "arguments": \'{}\'} <|endoftext|>'
    exchange = f"USER: Now?\n\n\nASSISTANT: {call}\n\n\nFUNCTION RESPONSE: 12:00\n\n\n"
    chat = exchange * 3 + "ASSISTANT: Noon. <|endoftext|>"
    record = glaive.read({"system": FUNCTIONS, "chat": chat})
    ids = [call.id for message in record.messages for call in message.calls]
    assert ids == ["call_0", "call_1", "call_2"]
    assert [one.call_id for one in record.messages if one.role == "tool"] == ids


def test_a_result_answers_the_call_of_the_turn_before_it_and_no_older_one() -> None:
    call = '<functioncall> {"name": "note", "arguments": \'{"text": "x"}\'} <|endoftext|>'
    parts = ["USER: Note it.", f"ASSISTANT: {call}", "USER: And again.", f"ASSISTANT: {call}"]
    row = {"system": "", "chat": "\n\n\n".join([*parts, 'FUNCTION RESPONSE: {"status": "ok"}'])}
    messages = glaive.read(row).messages
    ids = [one.id for message in messages for one in message.calls]
    assert len({*ids}) == 2 and messages[-1].call_id == ids[1]


@pytest.mark.parametrize("quote", ["'", "\\'"], ids=["a bare apostrophe", "an escaped one"])
@pytest.mark.parametrize(
    "text",
    ["it's", "a\nb\tc", 'say "it"', "C:\\new", "\\", "\\'", "'", "é\u0001", "\\n", ""],
    ids=ascii,
)
def test_an_argument_is_the_text_that_was_written_whatever_is_escaped(
    text: str, quote: str
) -> None:
    given = {"text": text, "is_draft": True, "id": None}
    arguments = json.dumps(given).replace("'", quote)
    call = f'<functioncall> {{"name": "note", "arguments": \'{arguments}\'}} <|endoftext|>'
    record = glaive.read(chat(call))
    assert [call.arguments for call in record.messages[-1].calls] == [given]
