"""agentlite.scoring.read_turn: what a record itself has at a turn is never a problem."""

import pytest

from agentlite.core.records import Call, Message, Record, Tool
from agentlite.rendering import PROTOCOLS
from agentlite.scoring.read_turn import read_turn


@pytest.mark.parametrize("name", [name for name in PROTOCOLS if name != "chat"])
@pytest.mark.parametrize(
    "description", ['search(text="x")', 'Use {"name": "search"}', "Action: search", "Pages."]
)
def test_the_recorded_call_is_right_however_its_tool_is_described(
    name: str, description: str
) -> None:
    protocol, call = PROTOCOLS[name], Call("search", {})
    tool = Tool("search", description)
    messages = (Message("user", "Wet?"), Message("assistant", calls=(call,)))
    record = Record(messages=messages, tools=(tool,))
    if protocol.exchanges:
        written = protocol.exchanges(record, 1)[0].answer
    else:
        written = protocol.write(messages[1], record.tools)
    read = read_turn(written, protocol, record, 1)
    assert (read.calls, read.problem) == ((call,), "")
