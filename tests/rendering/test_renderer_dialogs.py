"""What a model is shown and learns of a dialog, letter by letter, and what a reader makes of a
text.
"""

import dataclasses

import pytest
from msgspec.structs import replace
from support.samples import TIME, WEATHER

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Gold, Message, Record
from agentlite.rendering import (
    PROTOCOLS,
    choose,
    encoding,
    first_messages,
    render,
    render_last,
    renderer,
)
from agentlite.rendering.template import Template

OSLO = Call("get_weather", {"city": "Oslo"}, "call_0")
ROME = Call("get_time", {"city": "Rome"}, "call_1")


def shown(record, name, template):
    """The rows of a record as text, each trained piece in brackets."""
    protocol = choose(name, template).protocols[name]
    return [encoding.mark_trained(row, "⟦{}⟧".format) for row in render(record, protocol, template)]


def turns_of(text):
    return [turn.rstrip("\n") for turn in text.split("<|im_start|>")[1:]]


TAGGED = [
    "user\nIs it wet in Oslo?<|im_end|>",
    'assistant\n⟦I must look it up.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": '
    '"Oslo"}}\n</tool_call><|im_end|>⟧',
    'user\n<tool_response>\n{"rain_mm": 4}\n</tool_response><|im_end|>',
    "assistant\n⟦Yes, about 4 mm.<|im_end|>⟧",
    "user\nAre you sure?<|im_end|>",
    "assistant\n⟦Quite sure.<|im_end|>⟧",
]


def react(final):
    return [
        "user\nIs it wet in Oslo?<|im_end|>",
        'assistant\n⟦Thought: I must look it up.\nAction: get_weather\nAction Input: {"city": '
        f'"Oslo"}}\nObservation:⟧ {{"rain_mm": 4}}\n⟦{final} Yes, about 4 mm.<|im_end|>⟧',
        "user\nAre you sure?<|im_end|>",
        f"assistant\n⟦{final} Quite sure.<|im_end|>⟧",
    ]


DIALOGS = {
    ("hermes", "smollm2"): TAGGED,
    ("chat", "tools"): TAGGED,
    ("react", "smollm2"): react("Thought: I now know the final answer\nFinal Answer:"),
    ("react-zh", "smollm2"): react("Thought: 我现在知道最终答案\nFinal Answer:"),
    ("toolllama", "smollm2"): [
        "user\nIs it wet in Oslo?<|im_end|>",
        'assistant\n⟦Thought: I must look it up.\nAction: get_weather\nAction Input: {"city": '
        '"Oslo"}<|im_end|>⟧',
        'tool\n{"rain_mm": 4}<|im_end|>',
        'assistant\n⟦Action: Finish\nAction Input: {"return_type": "give_answer", "final_answer": '
        '"Yes, about 4 mm."}<|im_end|>⟧',
        "user\nAre you sure?<|im_end|>",
        'assistant\n⟦Action: Finish\nAction Input: {"return_type": "give_answer", "final_answer": '
        '"Quite sure."}<|im_end|>⟧',
    ],
    ("modelscope", "smollm2"): [
        "user\nIs it wet in Oslo?<|im_end|>",
        'assistant\n⟦I must look it up.\n<|startofthink|>```JSON\n{"api_name": "get_weather", '
        '"parameters": {"city": "Oslo"}}\n```<|endofthink|>⟧\n\n<|startofexec|>{"rain_mm": '
        "4}<|endofexec|>\n⟦Yes, about 4 mm.<|im_end|>⟧",
        "user\nAre you sure?<|im_end|>",
        "assistant\n⟦Quite sure.<|im_end|>⟧",
    ],
}


@pytest.mark.parametrize(("name", "template"), DIALOGS, ids=lambda value: value)
def test_a_dialog_is_written_and_trained_as_its_protocol_has_it(name, template, templates, dialog):
    (text,) = shown(dialog, name, templates[template])
    assert turns_of(text)[1:] == DIALOGS[name, template]


def several(thought):
    return Record(
        messages=(
            Message("user", "x"),
            Message("assistant", thought, (OSLO, ROME)),
            Message("tool", "4 mm", call_id="call_0"),
            Message("tool", "noon", call_id="call_1"),
            Message("assistant", "Done."),
        ),
        tools=(WEATHER, TIME),
    )


@pytest.mark.parametrize("name", ["react", "react-zh", "toolllama", "modelscope"])
def test_a_protocol_of_one_call_a_turn_refuses_two(name, smollm2):
    with pytest.raises(RowError, match=r"E204.*messages\[1\] holds 2 calls"):
        shown(several("Both."), name, smollm2)
    with pytest.raises(RowError, match=r"E204.*messages\[1\] holds 2 calls"):
        render_last(several("Both."), PROTOCOLS[name], smollm2)


# What a reader makes of a text: its words, its calls, its problem.
CALLED = [("f", {"a": 1})]
DEEPER = '{"a": ' + "[" * 64 + "]" * 64 + "}"
NOT_OBJECT, TOO_DEEP = "arguments are not an object", "arguments are not JSON, or nested too deep"
# fmt: off
READINGS = [
    ("hermes", ' Hm. <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call> So. ', "Hm.  So.", CALLED, ""),  # noqa: E501  (verbatim text)
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call><tool_call>{"name": "g"}</tool_call>', "", [*CALLED, ("g", {})], ""),  # noqa: E501  (verbatim text)
    ("hermes", "No call.", "No call.", [], ""),
    ("hermes", 'a<tool_call>{"name": "f", "arguments": {"a": 1}}', "a", CALLED, "call not closed"),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}} b</tool_call>', "", CALLED, "call not closed"),  # noqa: E501  (verbatim text)
    ("hermes", 'a<tool_call>{"name": "f"', "a", [], "call not closed"),
    ("hermes", "a<tool_call>f</tool_call>", "a", [], "call is not JSON"),
    ("hermes", '<tool_call>{"arguments": {}}</tool_call>', "", [], "call has no name"),
    ("hermes", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>', "", [], NOT_OBJECT),
    ("hermes", f'<tool_call>{{"name": "f", "arguments": {DEEPER}}}</tool_call>', "", [], TOO_DEEP),
    ("hermes", '<tool_call>\n{"name": "f", "arguments": {"a": "</tool_call> {"}}\n</tool_call>', "", [("f", {"a": "</tool_call> {"})], ""),  # noqa: E501  (verbatim text)
    ("chat", "<tool_call>" + "[" * 5000, "", [], "call not closed"),
    ("hermes", '<tool_call>{"name": 1}</tool_call><tool_call>{"name": "g"}</tool_call>', '<tool_call>{"name": "g"}</tool_call>', [], "call has no name"),  # noqa: E501  (verbatim text)
    ("react", 'Thought: Hm.\nAction: f\nAction Input: {"a": 1}', "Hm.", CALLED, ""),
    ("react", 'Hm.\nAction:  f \nAction Input: {"a": 1}\nObservation: 4', "Hm.", CALLED, ""),
    ("react", 'Action: f\nAction Input: {"a": 1}\nThen more.', "", CALLED, "text after the action input"),  # noqa: E501  (verbatim text)
    ("react", "Action: f\nAction Input: {'a': 1}\nObservation: {'b': 2}", "", CALLED, ""),
    ("react", "Action: f\nAction Input: {'a': True, 'b': None}", "", [("f", {"a": True, "b": None})], ""),  # noqa: E501  (verbatim text)
    ("react", "Action: f\nAction Input: a = 1", "", [], "action input is not JSON"),
    ("react", "Action: f\nAction Input: [1]", "", [], NOT_OBJECT),
    ("react", "Action: f\nAction Input: {'a': {1}}", "", [], TOO_DEEP),
    ("react", "Action: f\nAction Input: {1: 2}", "", [], TOO_DEEP),
    ("react", "Action: f\nAction Input: __import__('os').system('true')", "", [], "action input is not JSON"),  # noqa: E501  (verbatim text)
    ("react", "Thought: I know.\nFinal Answer: Yes. ", "Yes.", [], ""),
    ("react", " Yes. ", "Yes.", [], "no action and no final answer"),
    ("toolllama", 'Thought: Hm.\nAction: f\nAction Input: {"a": 1}', "Hm.", CALLED, ""),
    ("toolllama", 'Action: f\nAction Input: {"a": 1}\nObservation: 4', "", CALLED, "text after the action input"),  # noqa: E501  (verbatim text)
    ("toolllama", "Final Answer: Yes.", "Final Answer: Yes.", [], "no action"),
    ("modelscope", 'Hm.\n<|startofthink|>```JSON\n{"api_name": "f", "parameters": {"a": 1}}\n```<|endofthink|>', "Hm.", CALLED, ""),  # noqa: E501  (verbatim text)
    ("modelscope", '<|startofthink|>```json\n{"api_name": "f", "parameters": {"a": 1}}```<|endofthink|>', "", CALLED, ""),  # noqa: E501  (verbatim text)
    ("modelscope", '<|startofthink|>{"api_name": "f"}<|endofthink|>', "", [("f", {})], ""),
    ("modelscope", '<|startofthink|>{"api_name": "f"}', "", [("f", {})], "call not closed"),
    ("modelscope", '<|startofthink|>{"api_name": "f"}<|endofthink|> So.', "", [("f", {})], "text after a call"),  # noqa: E501  (verbatim text)
    ("modelscope", '<|startofthink|>```JSON\n{"api_name": "f"}\n``` So. <|endofthink|>', "", [("f", {})], "text after a call"),  # noqa: E501  (verbatim text)
    ("modelscope", "a<|startofthink|>f<|endofthink|>", "a", [], "call is not JSON"),
    ("modelscope", "a<|startofthink|>f", "a", [], "call not closed"),
    ("modelscope", '<|startofthink|>{"name": "f"}<|endofthink|>', "", [], "call has no name"),
    ("modelscope", '<|startofthink|>{"api_name": "f", "parameters": 1}<|endofthink|>', "", [], NOT_OBJECT),  # noqa: E501  (verbatim text)
    ("modelscope", " Yes. ", "Yes.", [], ""),
    ("kuaiagent", '{"task_name": "Hm.", "command": {"name": "f", "args": {"a": 1}}}', "Hm.", CALLED, ""),  # noqa: E501  (verbatim text)
    ("kuaiagent", '{"command": {"name": "f"}}', "", [("f", {})], ""),
    ("kuaiagent", 'So: {"command": {"name": "f", "args": {"a": 1}}}', "", CALLED, "text beside the command"),  # noqa: E501  (verbatim text)
    ("kuaiagent", '{"command": {"name": "f", "args": {"a": 1}}} so', "", CALLED, "text beside the command"),  # noqa: E501  (verbatim text)
    ("kuaiagent", '{"task_name": "Hm.", "command": {"name": "task_complete", "args": {}}}', "Hm.", [("task_complete", {})], ""),  # noqa: E501  (verbatim text)
    ("kuaiagent", '{"task_name": "Hm.", "command": "f"}', "Hm.", [], "command has no name"),
    ("kuaiagent", '{"command": {"name": "f", "args": [1]}} so', "", [], NOT_OBJECT),
    ("kuaiagent", '{"command": ', "", [], "command is not JSON"),
    ("autogpt", '{"thoughts": {"text": "a"}, "command": {"args": {}}}', "a", [], "command has no name"),  # noqa: E501  (verbatim text)
    ("autogpt", '{"thoughts": "a", "command": {"name": "f", "args": 1}}', "a", [], NOT_OBJECT),
    ("kuaiagent", " Yes. ", "Yes.", [], "no command"),
]
# fmt: on


def read_as(reading):
    return reading.content, [(call.name, call.arguments) for call in reading.calls], reading.problem


@pytest.mark.parametrize(("name", "text", "content", "calls", "problem"), READINGS)
def test_a_reader_gives_the_words_the_calls_and_the_first_problem(
    name, text, content, calls, problem
):
    assert read_as(PROTOCOLS[name].parse(text)) == (content, calls, problem)


HEAD = "<|channel|>final<|message|>"


@pytest.mark.parametrize(
    "text", ["Yes.", '<tool_call>{"name": "f"}</tool_call>', "<think>So.</think>Yes."]
)
def test_what_a_template_has_the_model_write_before_its_words_is_none_of_them(text):
    protocol = dataclasses.replace(PROTOCOLS["hermes"], answer_head=HEAD)
    assert protocol.read(HEAD + text, (TIME,)) == protocol.read(text, (TIME,))
    assert HEAD in PROTOCOLS["hermes"].read(HEAD + text, (TIME,)).content


def test_a_plain_text_is_trained_whole_with_the_end_of_a_turn(smollm2):
    text = Record(messages=(Message("assistant", "Once upon a time."),), meta={"whole": True})
    assert text.is_text
    (row,) = render(text, choose("hermes", smollm2).protocols["hermes"], smollm2)
    assert row.text == "Once upon a time.<|im_end|>" and not row.spans[0].prompted
    assert encoding.mark_trained(row, "⟦{}⟧".format) == f"⟦{row.text}⟧"
    renderer.check_reading(text, [row], PROTOCOLS["hermes"], smollm2)


def changed(template, old, new):
    source = template.chat_template.replace(old, new)
    assert source != template.chat_template
    return Template("changed", template.tokenizer, source, template.special)


def printing(template, old, new):
    """A template that prints another word in place of one."""
    return changed(
        template, "{{ message.content }}", f"{{{{ message.content | replace('{old}', '{new}') }}}}"
    )


def test_a_template_that_changes_a_turn_of_several_parts_is_refused(templates, dialog):
    template = printing(templates["tools"], "must", "may")
    with pytest.raises(RowError, match=r"E214.*changes the text of messages\[2\]"):
        render(dialog, PROTOCOLS["react"], template)
    with pytest.raises(RowError, match=r"E214.*drops or changes a text of messages\[2\]: .*I must"):
        render(dialog, PROTOCOLS["hermes"], template)
    # a turn that is not trained may be changed
    turn = replace(dialog.messages[2], loss=False)
    record = replace(dialog, messages=(*dialog.messages[:2], turn, *dialog.messages[3:]))
    (row,) = render(record, PROTOCOLS["hermes"], template)
    assert row.text[row.spans[0].start : row.spans[0].end].startswith("I may look it up.\n")


@pytest.mark.parametrize("learned", [True, False])
def test_reading_back_compares_names_arguments_and_their_order(smollm2, dialog, learned):
    protocol = PROTOCOLS["hermes"]
    dialog = replace(
        dialog, messages=tuple(replace(message, loss=learned) for message in dialog.messages)
    )
    rows = render(dialog, protocol, smollm2)
    renderer.check_reading(dialog, rows, protocol, smollm2)
    for call in (
        replace(OSLO, name="get_time"),
        replace(OSLO, arguments={"city": "Rome"}),
        None,
    ):
        calls = (call,) if call else ()
        messages = [*dialog.messages]
        messages[2] = replace(messages[2], calls=calls)
        other = replace(dialog, messages=tuple(messages))
        if not (learned or calls):  # words that are not learned may hold half a call
            renderer.check_reading(other, rows, protocol, smollm2)
            other = replace(other, gold={2: Gold(known=False)})  # asked for, they may not
        with pytest.raises(RowError, match=r"E215.*messages\[2\] does not read back as hermes"):
            renderer.check_reading(other, rows, protocol, smollm2)


@pytest.mark.parametrize("name", [name for name in PROTOCOLS if name != "chat"])
def test_the_first_messages_are_what_stands_before_the_first_turn(name, smollm2, dialog):
    """A server with a template of its own writes them as the rows have them."""
    protocol = choose(name, smollm2).protocols[name]
    messages = first_messages(dialog, 2, protocol)
    row = render(dialog, protocol, smollm2)[0]
    assert row.text.startswith(smollm2.render(messages, prompt=True))
    assert messages[-1]["role"] == "user" and "Is it wet in Oslo?" in messages[-1]["content"]
    assert "Be brief." in "".join(one["content"] for one in messages)
    assert "4 mm" not in "".join(one["content"] for one in messages)


def test_a_system_text_stands_before_the_tools_and_inline_protocols_need_none(smollm2, dialog):
    for name in ("hermes", "react", "modelscope", "toolllama"):
        with_text = first_messages(dialog, 2, PROTOCOLS[name])[0]["content"]
        without = replace(dialog, messages=(Message("user", "Wet?"), *dialog.messages[2:]))
        own = first_messages(without, 1, PROTOCOLS[name])[0]["content"]
        assert with_text.startswith("Be brief.\n\n")
        assert own.startswith("You are a helpful assistant.\n\n") == (not PROTOCOLS[name].inline)
