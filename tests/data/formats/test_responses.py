"""agentlite.data.formats.responses: items are the dialog that OpenAI's chat messages would be."""

from collections.abc import Iterator
from itertools import groupby

import pytest
from support.damaged_rows import Row, refused, rows
from support.read_rows import openai_dialogs

from agentlite.core.errors import RowError
from agentlite.data.curation.validate import validate
from agentlite.data.formats import detected, responses, to_record

ASKED = {"role": "user", "content": "Hi"}


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


def test_the_sample_rows_are_valid_and_thoughts_begin_the_turn() -> None:
    records = [responses.read(row) for row in rows("responses")]
    for record in records:
        validate(record)
    assert [m.content for m in records[0].messages[:3]] == [
        "Be brief.",
        "Is it wet in Oslo?",
        "I look.",
    ]
    assert records[2].messages[3].content == "It is wet.\n\n下雨。"
    assert records[0].meta["source_id"] == "resp_1"
    assert records[0].meta["extra"]["items"][0] == {"item": 2, "id": "rs_1"}


def test_instructions_and_a_system_message_are_one() -> None:
    row = {"input": [{"role": "developer", "content": "B"}, ASKED], "instructions": "A"}
    answer = {"type": "message", "role": "assistant", "content": [{"type": "output_text"}]}
    answer["content"][0]["text"] = "Hello."  # type: ignore[index]
    record = responses.read({**row, "output": [answer]})
    assert [m.content for m in record.messages] == ["A\n\nB", "Hi", "Hello."]


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("before", ["user", "assistant"])
def test_a_system_message_that_is_not_at_the_beginning_takes_nothing_away(
    before: str, role: str
) -> None:
    made = [("system", "A"), ("user", "Hi"), ("assistant", "Hello."), (role, "B")]
    made = made[:2] + made[3:] if before == "user" else made
    given = [{"type": "message", "role": role, "content": text} for role, text in made]
    answer = {"type": "message", "role": "assistant"}
    answer |= {"content": [{"type": "output_text", "text": "Well."}]}
    record = responses.read({"input": given, "output": [answer]})
    assert [one.content for one in record.messages] == [*(text for _, text in made), "Well."]


@pytest.mark.parametrize("parts", [("content",), ("summary",), ("content", "summary")])
def test_a_thought_is_its_content_or_else_its_summary(parts: tuple[str, ...]) -> None:
    thought = {key: [{"type": "reasoning_text", "text": f"My {key}."}] for key in parts}
    answer = {"role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]}
    record = responses.read({"input": "Hi", "output": [{"type": "reasoning", **thought}, answer]})
    assert f"My {parts[0]}." in record.messages[1].content
    assert "content" not in parts or "summary" not in record.messages[1].content


@pytest.mark.parametrize(
    "item",
    [
        {"type": "web_search_call", "id": "w", "status": "completed"},
        {"type": "mcp_call", "id": "m", "name": "f", "arguments": "{}", "output": "4"},
        {"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "select 1"},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": ""}]},
        {"type": "reasoning", "summary": "I look."},
    ],
    ids=lambda item: str(item["type"]),
)
def test_an_item_that_is_no_text_and_no_function_is_refused(item: Row) -> None:
    answer = {"role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]}
    with pytest.raises(RowError, match="item 2") as caught:
        to_record({"input": "Hi", "output": [item, answer]}, "responses")
    assert caught.value.code == "E216"


def test_two_texts_are_no_items_of_responses() -> None:
    row = {"input": "q", "output": "a"}
    assert not responses.fits(row)
    assert refused(lambda: responses.read(row)) == "E201"


@pytest.mark.parametrize("other", ["messages", "items"])
@pytest.mark.parametrize("given", ["Hi", [ASKED]])
def test_a_row_with_two_dialogs_is_refused_and_a_field_of_that_name_is_kept(
    given: object, other: str
) -> None:
    answer = {"role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]}
    row = {"input": given, "output": [answer]}
    with pytest.raises(RowError, match=f"a dialog under 'input', and another under '{other}'"):
        responses.read({**row, other: [ASKED, {"role": "assistant", "content": "No."}]})
    assert responses.read({**row, "items": 3}).meta["extra"] == {"items": 3}
    assert responses.read({**row, other: []}).messages == responses.read(row).messages
