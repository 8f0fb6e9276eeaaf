"""agentlite.data.formats.prompts: a question and, in `gold`, the calls that answer it."""

import json
from typing import Any

import pytest

from agentlite.core.errors import RowError
from agentlite.core.records import ANY_ARGUMENTS, Gold, GoldCall
from agentlite.data.formats import FORMATS, detected, to_record

ROW = json.loads(FORMATS["prompts"].example)
TOOLS = ROW["tools"]
TURNS = [
    {"role": "user", "content": "Hello."},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "Is it wet in Oslo?"},
]


@pytest.mark.parametrize("tools", ["tools", "functions"])
def test_the_question_may_be_a_text_or_a_dialog_that_waits(tools: str) -> None:
    gold = [{"name": "weather", "arguments": {"city": "Oslo"}}]
    for row in ({"prompt": "Is it wet in Oslo?"}, {"messages": TURNS}):
        whole: dict[str, Any] = {**row, tools: TOOLS, "gold": gold}
        assert detected(whole) == "prompts"
        record = to_record(whole)
        *before, answer = record.messages
        assert before[-1].content == "Is it wet in Oslo?"
        assert [call.arguments for call in answer.calls] == [{"city": "Oslo"}]
        assert record.gold == {len(before): Gold((GoldCall("weather", {"city": ["Oslo"]}),))}
        assert [tool.name for tool in record.tools] == ["weather"]


@pytest.mark.parametrize(
    ("given", "accepted"),
    [
        ("Oslo", ["Oslo"]),
        (["Oslo", "Oslo, Norway"], ["Oslo", "Oslo, Norway"]),
        ({"name": "Oslo"}, [{"name": ["Oslo"]}]),
    ],
)
def test_a_value_that_is_no_list_is_the_only_one_accepted(given: Any, accepted: list[Any]) -> None:
    tools = [{"name": "weather", "parameters": {"properties": {"city": {}}}}]
    row = {
        "prompt": "Wet?",
        "tools": tools,
        "gold": [{"name": "weather", "arguments": {"city": given}}],
    }
    (call,) = to_record(row).gold[1].calls
    assert call.arguments == {"city": accepted}


def test_without_gold_no_call_is_expected_and_null_arguments_are_not_known() -> None:
    silent = to_record({**ROW, "gold": []})
    assert (silent.gold[1], silent.messages[1].calls) == (Gold(), ())
    assert silent.messages[1].content and silent.task == "timing_decision"
    unknown = to_record({**ROW, "gold": [{"name": "weather", "arguments": None}]})
    assert unknown.gold[1] == Gold((GoldCall("weather", ANY_ARGUMENTS),))


@pytest.mark.parametrize("accepted_answer", ["least", "full"])
def test_what_may_be_left_out_is_written_in_a_full_answer_alone(accepted_answer: str) -> None:
    parameters = {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
    gold = [{"name": "weather", "arguments": {"city": ["Oslo"], "days": ["", 3]}}]
    row = {"prompt": "Wet?", "tools": [{"name": "weather", "parameters": parameters}], "gold": gold}
    options = {"prompts": {"accepted_answer": accepted_answer}}
    (call,) = to_record(row, options=options).messages[1].calls
    expected = {"city": "Oslo", "days": 3} if accepted_answer == "full" else {"city": "Oslo"}
    assert call.arguments == expected


def test_a_dialog_that_is_answered_has_no_gold_of_this_form() -> None:
    with pytest.raises(RowError) as refused:
        to_record({"messages": TURNS[:2], "tools": TOOLS, "gold": []}, "prompts")
    assert refused.value.code == "E201"
