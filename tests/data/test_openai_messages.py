"""The prompt of a dialog that waits for the assistant: the same as in training, and cheap."""

from functools import cache

import pytest
from support.samples import WEATHER_TOOL

from agentlite.core.errors import RowError
from agentlite.core.records import Message, read_message, wire_message
from agentlite.data.openai_messages import open_dialog
from agentlite.rendering import PROTOCOLS
from agentlite.workspace.input_files import load_template

FUNCTION = {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
CALL = {"id": "call00000", "type": "function", "function": FUNCTION}
ROUND = [
    {"role": "user", "content": "Wet?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call00000", "content": "4 mm"},
    {"role": "assistant", "content": "Yes."},
]
template = cache(lambda: load_template("smollm2-135m"))


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([ROUND[0], ROUND[2]], "E204"),
        ([ROUND[0], ROUND[1], {**ROUND[2], "tool_call_id": "other"}], "E205"),
        ([ROUND[0], ROUND[0]], "E203"),
        (ROUND, "E203"),
        ([], "E203"),
    ],
    ids=["a result alone", "a result of another call", "two users", "answered", "nothing"],
)
def test_what_is_no_dialog_is_refused_before_a_model_is_prompted(messages, code):
    with pytest.raises(RowError) as refused:
        open_dialog(messages, [WEATHER_TOOL], PROTOCOLS["hermes"], template())
    assert refused.value.code == code


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_what_looks_like_a_chain_stays_one_turn_of_the_dialog_that_goes_on(role):
    """A client may send it back as it came: nothing of it is learned."""
    text = "Action: get_weather\nAction Input: {}\nObservation: 4 mm\nFinal Answer: Yes."
    turns = [{"role": role, "content": text}, ROUND[0]]
    messages = turns if role == "assistant" else [turns[0], ROUND[3], ROUND[0]]
    messages = [ROUND[0], *messages] if role == "assistant" else messages
    record = open_dialog(messages, [WEATHER_TOOL], PROTOCOLS["hermes"], template()).record
    assert [one.content for one in record.messages[:-1]] == [one["content"] for one in messages]


def test_a_turn_comes_back_from_the_wire():
    record = open_dialog([*ROUND[:3]], [WEATHER_TOOL], PROTOCOLS["hermes"], template()).record
    both = Message("assistant", "I look.", record.messages[1].calls)
    for message in (*record.messages, both):
        assert read_message(wire_message(message)) == message
