"""agentlite.data.formats.sharegpt: turns whose text holds calls and results."""

import pytest
from support.read_rows import record_of, rejected

from agentlite.core.records import (
    Call,
    Message,
)
from agentlite.data.curation.validate import validate
from agentlite.data.formats import to_record


def test_sharegpt_text_with_call_blocks_is_calls_and_results_in_their_order() -> None:
    record = record_of("sharegpt")
    _, _, asked, first, second, _ = record.messages
    assert asked.content == "I look both up."
    assert [(c.name, c.arguments) for c in asked.calls] == [
        ("tide", {"port": "Brest", "metric": True}),
        ("tide", {"port": "Dover"}),
    ]
    assert (first.content, first.call_id) == ('{"high": "04:12"}', asked.calls[0].id)
    assert (second.content, second.call_id) == ('{"high": "11:40"}', asked.calls[1].id)
    properties = {"port": {"type": "string"}, "metric": {"type": "boolean"}}
    assert record.tools[0].parameters == {
        "type": "object",
        "properties": properties,
        "required": ["port"],
    }
    assert [message.loss for message in record_of("sharegpt", 1).messages] == [
        True,
        False,
        True,
        True,
    ]


def test_function_call_turns_in_a_row_are_one_turn_with_several_calls() -> None:
    call = {"from": "function_call", "value": '{"name": "f", "arguments": {}}'}
    turns = [
        {"from": "human", "value": "q"},
        call,
        call,
        *[{"from": "observation", "value": v} for v in "12"],
        {"from": "gpt", "value": "a"},
    ]
    record = to_record({"conversations": turns, "tools": '[{"name": "f"}]'})
    validate(record)
    assert [len(message.calls) for message in record.messages] == [0, 2, 0, 0, 0]


def test_a_call_block_that_is_not_closed_is_rejected() -> None:
    turns = [{"from": "human", "value": "q"}, {"from": "gpt", "value": '<tool_call>{"name": "f"'}]
    assert rejected(lambda: to_record({"conversations": turns})) == "E206"


@pytest.mark.parametrize(
    "text",
    [
        '{call} and <tool_call>{{"name": "f"',
        "<tool_call>",
        '{call}</tool_call><tool_call>{{"name": "f"}}',
        "</tool_call><tool_call>",
    ],
)
def test_a_call_block_that_is_not_closed_is_rejected_also_after_one_that_is(text: str) -> None:
    call = '<tool_call>{"name": "f"}</tool_call>'
    turns = [{"from": "human", "value": "q"}, {"from": "gpt", "value": text.format(call=call)}]
    assert rejected(lambda: to_record({"conversations": turns})) == "E206"


def test_the_thought_before_a_sharegpt_call_is_what_the_turn_says() -> None:
    call = '{"name": "f", "arguments": {}}'
    for turns, content in (
        ([("function_call", f"<think>I look.</think>\n{call}")], "I look."),
        ([("function_call", f" <think>I\nlook.</think> [{call}]")], "I\nlook."),
        ([("gpt", "So."), ("function_call", f"<think>I look.</think>{call}")], "So.\n\nI look."),
        ([("gpt", "So."), ("function_call", call)], "So."),
        ([("function_call", call)], ""),
    ):
        said = [{"from": by, "value": value} for by, value in (("human", "q"), *turns)]
        record = to_record({"conversations": said, "tools": [{"name": "f"}]})
        expected = Message("assistant", content, (Call("f", {}, "call_0"),))
        assert record.messages == (Message("user", "q"), expected)
    one, other = {"from": "gpt", "value": "So."}, {"from": "function_call", "value": call}
    for turns in ([{**one, "loss": False}, other], [one, {**other, "loss": False}]):
        row = {"conversations": [{"from": "human", "value": "q"}, *turns]}
        assert rejected(lambda row=row: to_record(row)) == "E201"


def answering(*results: str, calls: int = 2) -> list[tuple[str, str]]:
    """The result turns of a ShareGPT row that makes as many calls."""
    call = '<tool_call>{"name": "f"}</tool_call>'
    turns = [{"from": "human", "value": "q"}, {"from": "gpt", "value": call * calls}]
    turns += [{"from": "observation", "value": result} for result in results]
    messages = to_record({"conversations": turns, "tools": [{"name": "f"}]}).messages
    return [(message.call_id, message.content) for message in messages if message.role == "tool"]


def test_one_turn_answers_several_sharegpt_calls_and_what_only_looks_so_is_one_result() -> None:
    a, b = "<tool_response> 1 </tool_response>", "<tool_response>2</tool_response>"
    assert answering(f"{a}\n{b}") == [("call_0", "1"), ("call_1", "2")]
    assert answering('["1", {"km": 2}]') == [("call_0", "1"), ("call_1", '{"km": 2}')]
    assert answering(f"{a} and {b}") == [("call_0", f"{a} and {b}")]
    assert answering(f"{a}<tool_response>") == [("call_0", f"{a}<tool_response>")]
    for other in ("[]", "[1]", "[1, 2, 3]"):  # as many as the calls, or one result
        assert answering(other) == [("call_0", other)]
    assert answering("[1]", calls=1) == [("call_0", "[1]")]
    assert answering("[1, 2]", "3") == [("call_0", "[1, 2]"), ("call_1", "3")]
    assert answering("[wet, dry]") == [("call_0", "[wet, dry]")]
    assert answering("1", "2", "3") == [("call_0", "1"), ("call_1", "2"), ("", "3")]
