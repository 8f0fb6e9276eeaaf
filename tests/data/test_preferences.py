"""Preference rows: in every shape that others write, both answers are read as the same turn."""

import json
from typing import Any

import pytest
from support.chain_rows import SYNTAXES, ChainStep

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Message
from agentlite.data.formats.raw_rows import Raw
from agentlite.data.preferences import RecordedPreference, read_preference, split_preferences

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Is it wet in Oslo?"}
BEFORE = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."}]


def spoken(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def calling(city: str, tool: str = "weather") -> dict[str, Any]:
    function = {"name": tool, "arguments": json.dumps({"city": city})}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "call_0", "type": "function", "function": function}],
    }


def written(city: str) -> str:
    return json.dumps({"name": "weather", "arguments": {"city": city}})


ASKED, CHOSEN, REJECTED = USER["content"], "Yes, bring a coat.", "No."
GOOD, BAD = spoken(CHOSEN), spoken(REJECTED)
BOTH = {"chosen": CHOSEN, "rejected": REJECTED}
TEXTS: dict[str, dict[str, Any]] = {
    "TRL, texts": {"prompt": ASKED, **BOTH},
    "TRL, messages": {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]},
    "TRL, one message": {"prompt": [USER], "chosen": GOOD, "rejected": BAD},
    "TRL, no prompt": {"chosen": [USER, GOOD], "rejected": [USER, BAD]},
    "the prompt repeated": {"prompt": ASKED, "chosen": [USER, GOOD], "rejected": [USER, BAD]},
    "question": {"question": ASKED, **BOTH},
    "messages before": {"messages": [USER], **BOTH},
    "ms-swift, text": {"messages": [USER, GOOD], "rejected_response": REJECTED},
    "ms-swift, message": {"messages": [USER, GOOD], "rejected_response": BAD},
    "ms-swift, messages": {"messages": [USER, GOOD], "rejected_messages": [USER, BAD]},
    "ms-swift, query": {"query": ASKED, "response": CHOSEN, "rejected_response": REJECTED},
    "LLaMA-Factory, ShareGPT": {
        "conversations": [{"from": "human", "value": ASKED}],
        "chosen": {"from": "gpt", "value": CHOSEN},
        "rejected": {"from": "gpt", "value": REJECTED},
    },
    "OpenAI": {
        "input": {"messages": [USER], "tools": [], "parallel_tool_calls": True},
        "preferred_output": [GOOD],
        "non_preferred_output": [BAD],
    },
    "LLaMA-Factory, Alpaca": {"instruction": ASKED, "input": "", **BOTH},
}


def only(row: dict[str, Any]) -> RecordedPreference:
    return read_preference(row, "rows.jsonl")


@pytest.mark.parametrize("row", TEXTS.values(), ids=TEXTS)
def test_every_shape_gives_the_same_dialog_and_the_same_two_answers(row: dict[str, Any]) -> None:
    nulls = {key: None for other in TEXTS.values() for key in other}  # as Arrow fills them in
    preference = only({**nulls, **row, "kept": 1})
    assert preference.record.messages == (Message("user", ASKED), Message("assistant", CHOSEN))
    assert preference.rejected == Message("assistant", REJECTED)
    assert preference.turn == 1 and preference.record.source == "rows.jsonl"
    assert preference.rejected_record.messages == (Message("user", ASKED), preference.rejected)
    assert preference.record.meta == {"extra": {"kept": 1}}


def test_what_an_answer_thinks_is_its_thought_on_both_sides() -> None:
    sides = [{**side, "reasoning_content": "So."} for side in (GOOD, BAD)]
    preference = only({"prompt": [USER], "chosen": sides[:1], "rejected": sides[1:]})
    said = [preference.record.messages[-1].content, preference.rejected.content]
    assert said == [f"<think>\nSo.\n</think>\n\n{text}" for text in (CHOSEN, REJECTED)]


@pytest.mark.parametrize("shape", [name for name in TEXTS if name != "LLaMA-Factory, Alpaca"])
def test_a_system_text_and_tools_belong_to_both(shape: str) -> None:
    preference = only({**TEXTS[shape], "system": SYSTEM["content"], "tools": [TOOL]})
    for record in (preference.record, preference.rejected_record):
        assert record.messages[0] == Message("system", SYSTEM["content"])
        assert [tool.name for tool in record.tools] == ["weather"]


OSLO, BERGEN = calling("Oslo"), calling("Bergen")
CALLS: dict[str, dict[str, Any]] = {
    "messages": {"prompt": [USER], "chosen": [OSLO], "rejected": [BERGEN]},
    "ms-swift's turns": {
        "messages": [USER, {"role": "tool_call", "content": written("Oslo")}],
        "rejected_response": [{"role": "tool_call", "content": written("Bergen")}],
    },
    "ShareGPT's turns": {
        "conversations": [{"from": "human", "value": ASKED}],
        "chosen": {"from": "function_call", "value": written("Oslo")},
        "rejected": {"from": "function_call", "value": written("Bergen")},
    },
}


@pytest.mark.parametrize("row", CALLS.values(), ids=CALLS)
def test_calls_are_calls_on_both_sides(row: dict[str, Any]) -> None:
    preference = only({**row, "tools": [TOOL]})
    for message, city in (
        (preference.record.messages[-1], "Oslo"),
        (preference.rejected, "Bergen"),
    ):
        (call,) = message.calls
        assert (call.name, call.arguments) == ("weather", {"city": city})


def test_a_rejected_call_may_be_wrong_in_every_way_and_a_chosen_one_may_not() -> None:
    wrong = calling("Oslo", "no_such_tool")
    row = {"prompt": [USER], "chosen": [OSLO], "rejected": [wrong], "tools": [TOOL]}
    assert only(row).rejected.calls == (Call("no_such_tool", {"city": "Oslo"}, "call_0"),)
    with pytest.raises(RowError) as refused:
        only({**row, "chosen": [wrong], "rejected": [OSLO]})
    assert refused.value.code == "E209"


def test_several_rejected_answers_are_several_pairs() -> None:
    row = {"messages": [*BEFORE, USER, spoken(CHOSEN)], "rejected_response": ["No.", "Perhaps."]}
    preferences = [only(single.row) for single in split_preferences(Raw("", b"", row))]
    assert [one.rejected.content for one in preferences] == ["No.", "Perhaps."]
    assert [one.turn for one in preferences] == [3, 3]


EXAMPLES = (
    '{"prompt": "Is it wet in Oslo?", "chosen": "Let me look.", "rejected": "No."}',
    '{"messages": [{"role": "user", "content": "Is it wet in Oslo?"}, {"role": "assistant", '
    '"content": "Let me look."}], "rejected_response": "No."}',
    '{"input": {"messages": [{"role": "user", "content": "Is it wet in Oslo?"}]}, '
    '"preferred_output": [{"role": "assistant", "content": "Let me look."}], '
    '"non_preferred_output": [{"role": "assistant", "content": "No."}]}',
)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_can_be_read(example: str) -> None:
    assert only(json.loads(example)).rejected.content == "No."


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({"prompt": "a", "chosen": "b"}, "E202"),
        ({"prompt": "a", "chosen": 1, "rejected": "c"}, "E202"),
        ({"prompt": "a", "chosen": [3, spoken("b")], "rejected": "c"}, "E202"),
        ({"rejected_response": "c"}, "E202"),
        ({"input": {"messages": [USER]}, "preferred_output": [spoken("b")]}, "E202"),
        ({"prompt": "a", "chosen": "b", "rejected": "b"}, "E219"),
        ({"prompt": "a", "chosen": "b", "rejected": " "}, "E216"),
        ({"chosen": [USER, spoken("b")], "rejected": [SYSTEM, USER, spoken("c")]}, "E219"),
        ({"chosen": [USER, spoken("b"), USER], "rejected": [USER, spoken("c")]}, "E203"),
        ({"messages": [USER, spoken("b")], "rejected_messages": []}, "E203"),
        ({"messages": [USER, spoken("b")], "rejected_response": []}, "E202"),
        (
            {
                "chosen": [USER, spoken("b"), USER, spoken("d")],
                "rejected": [USER, spoken("c"), USER, spoken("e")],
            },
            "E219",
        ),
    ],
)
def test_what_is_no_preference_is_refused_with_a_code(row: dict[str, Any], code: str) -> None:
    with pytest.raises(RowError) as refused:
        read_preference(row)
    assert refused.value.code == code and refused.value.reason


SPLIT = [name for name, one in SYNTAXES.items() if one.split and name != "toolllama"]


@pytest.mark.parametrize("syntax", SPLIT)
def test_a_call_is_preferred_to_the_whole_chain_in_every_syntax(syntax: str) -> None:
    """What follows the call is invented: nobody has run it."""
    written = SYNTAXES[syntax].answer([ChainStep("", "weather", "Oslo", "4 mm")], "Yes.")
    call = written[: written.index("4 mm")].replace("<tool_response>", "")
    call = call.replace("<|startofexec|>", "").rstrip()
    row = {"system": SYNTAXES[syntax].system, "prompt": "Is it wet?", "chosen": call}
    preference = read_preference({**row, "rejected": written})
    assert [c.name for c in preference.record.messages[-1].calls] == ["weather"]
    assert [tool.name for tool in preference.record.tools] == ["weather", "clock"]
    assert preference.rejected.content == written
    with pytest.raises(RowError) as caught:  # sides of different steps
        read_preference({**row, "chosen": written, "rejected": "No."})
    assert caught.value.code == "E219"
