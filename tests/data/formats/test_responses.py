"""agentlite.data.formats.responses: items are the dialog that OpenAI's chat messages would be."""

from collections.abc import Iterator
from itertools import groupby

import pytest
from support.damaged_rows import Row
from support.read_rows import openai_dialogs

from agentlite.data.formats import detected, to_record


def items(message: Row) -> Iterator[Row]:
    """A chat message as items."""
    role, content = message["role"], message.get("content") or ""
    if role == "tool":
        call_id = message["tool_call_id"]
        own = {"id": f"fco_{call_id}", "status": "completed"}
        yield {"type": "function_call_output", "call_id": call_id, "output": content, **own}
        return
    kind = "output_text" if role == "assistant" else "input_text"
    if content or role != "assistant":
        parts = [{"type": kind, "text": content}]
        yield {"type": "message", "role": role, "content": parts}
    for call in message.get("tool_calls") or ():
        own = {"id": f"fc_{call['id']}", "status": "completed"}
        yield {"type": "function_call", "call_id": call["id"], **call["function"], **own}


@pytest.mark.parametrize("key", ["input", "messages", "items"])
@pytest.mark.parametrize("in_output", [0, 1])
def test_items_are_the_turns_they_stand_for(key: str, in_output: int) -> None:
    assert len(openai_dialogs()) > 20
    for row in openai_dialogs():
        made: list[Row] = []
        for role, turn in groupby(row["messages"], key=lambda message: message["role"]):
            # results may come in any order
            messages = [*turn][:: -1 if role == "tool" else 1]
            made += [item for message in messages for item in items(message)]
        end = len(made) - in_output
        tools = [{"type": "function", **tool["function"]} for tool in row["tools"]]
        new = {key: made[:end], "output": made[end:], "tools": tools}
        assert detected(new) == "responses"
        expected, record = to_record(row, "openai"), to_record(new)
        assert (record.messages, record.tools) == (expected.messages, expected.tools)
