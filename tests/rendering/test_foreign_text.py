"""Results and calls in another model's form are found however they are written; what is only like
one is the assistant's own words.
"""

import time
from collections.abc import Callable

import pytest

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Message, Record, Tool
from agentlite.data.formats import to_record
from agentlite.rendering.foreign_text import (
    CALL_MARKS,
    blocks_behind,
    call_mark,
    check_input,
    check_trained,
    result_mark,
)

OBSERVATION = "Observation: the last value was 3."
ACTION = "Action: weather\nAction Input: {}"
TOOLS = {"weather"}


@pytest.mark.parametrize(
    ("text", "is_result"),
    [
        (f"{ACTION}\n{OBSERVATION}", True),
        (f"{OBSERVATION}\n{ACTION}", False),
        (f"{OBSERVATION}\n{ACTION}\n{OBSERVATION}", True),
        (OBSERVATION, False),
        (ACTION, False),
    ],
)
def test_a_line_of_a_result_counts_behind_an_action_only(text, is_result):
    assert bool(result_mark(text, TOOLS)) is is_result


@pytest.mark.parametrize("what", ["heat the flask", "weather the storm", "look at it, then (rest)"])
def test_steps_of_an_experiment_have_observations_unless_an_agent_writes_them(what):
    text = f"Action: {what}\n{OBSERVATION}"
    assert not result_mark(text, TOOLS)
    for line in (
        "Thought: I see.",
        "Action Input: 3",
        "Final Answer: 3",
        "思考：好",
        "最终答案：3",
    ):
        assert result_mark(f"{text}\n{line}", TOOLS) == "Observation:"


TAGS = [
    *("<tool_response>", "<tool_result>", "<tool_output>", "<function_response>", "<api_results>"),
    *("<|tool_response|>", "<｜tool▁output▁begin｜>", "<start_of_tool_response>", "<results>"),
    *("<tool_call_result>", '<tool_response name="f">', "[TOOL_RESULTS]", "[TOOL_RESULT]"),
    *("<|startofexec|>", "<|TOOL_TOKEN|>", "<|TOOL_RESULTS_TOKEN|>"),
    *("<|system|>", "<|user|>", "<|tool|>", "<|observation|>", "<|ipython|>", "<|environment|>"),
    *("<|im_start|>user", "<|start_header_id|>tool", "<|start_of_role|>user"),
    *("<start_of_turn>user", "<|turn>user", "<|start|>user", "FUNCTION RESPONSE:"),
    "GPT4 Correct Tool:",
]
OWN = [
    *("<|im_start|>assistant", "<|start_header_id|>assistant", "<|start_of_role|>assistant"),
    *("<start_of_turn>model", "<start_of_turn>assistant", "<|turn>model", "<|start|>assistant"),
    *("`<tool_response>`", "<tool_call>", "<tools>", "the tool response", "<result>", "<users>"),
]


@pytest.mark.parametrize("tag", TAGS)
def test_each_tag_of_a_result_or_of_another_speaker_is_a_mark_wherever_it_stands(tag):
    start = "\n" if tag.startswith("FUNCTION") else ""
    for text in (tag, tag.lower(), tag.upper()):
        assert result_mark(f"Yes. {start}{text} 4 mm", set()) == text


@pytest.mark.parametrize("tag", OWN)
def test_a_tag_that_is_mentioned_or_that_the_assistant_writes_itself_is_none(tag):
    assert not result_mark(f"Yes. {tag} 4 mm", set())


BEFORE = ["<search>q</search>", "<python>1</python>", "```python\n1\n```", "<a>{}</a>"]
NAMES = ["result", "search_results", "information", "Observation", "code_output"]
CALL = '<tool_call>{"name": "weather", "arguments": {}}</tool_call>'


def block(name: str, fenced: bool) -> str:
    return f"```{name}\n4 mm\n```" if fenced else f"<{name}>4 mm</{name}>"


def answered(answer: str, question: str = "q") -> list[tuple[str, str, bool]]:
    turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    record = to_record({"messages": turns, "tools": [{"name": "weather"}]})
    return [(message.role, message.content, bool(message.calls)) for message in record.messages[1:]]


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize("name", [*NAMES, "facts"])
def test_a_block_behind_another_is_a_result_where_its_name_or_the_prompt_says_so(
    name: str, fenced: bool
) -> None:
    held = block(name, fenced)
    told = f"Write <search>. What is found comes between {held[: held.find('4')].strip()}"
    for before in BEFORE:
        answer = f"I look.\n{before}\n{held}\nYes."
        for question in ("q", told) if name != "facts" else (told,):
            with pytest.raises(RowError, match=f"E218.* the block '{name}'"):
                answered(answer, question)
        for own in (held, f"{held}\nYes.", f"{before} is it: {held} Yes.", f"{before}\n{held}\n"):
            assert answered(own) == [("assistant", own, False)]  # an answer, and no result
    if name != "facts" or not fenced:
        chain = [("assistant", "", True), ("tool", "4 mm", False), ("assistant", "Yes.", False)]
        assert answered(f"{CALL}\n{held}\nYes.") == chain
        turns = [{"from": "human", "value": "q"}, {"from": "gpt", "value": f"{CALL}{held}Yes."}]
        row = {"conversations": turns, "tools": [{"name": "weather"}]}
        assert [message.role for message in to_record(row).messages[2:]] == ["tool", "assistant"]


EXAMPLES = "<input>a</input>\n<output>A.</output>\n<input>b</input>\n<output>B.</output>\nNow you."
TUTORIAL = "Use print:\n\n```python\nprint(1)\n```\n\n```output\n1\n```\n\nThat is all."
EXPLAINED = f"{CALL}\n<explanation>I look it up.</explanation>"


def test_examples_tutorials_and_explanations_are_words():
    for own in (EXAMPLES, TUTORIAL):
        assert answered(own) == [("assistant", own, False)]
    told = "What the code prints comes as results in ```output"
    for question, refused in (("q", TUTORIAL.replace("\n\n", "\n")), (told, TUTORIAL)):
        with pytest.raises(RowError, match=r"E218.* the block 'output'"):
            answered(refused, question)
    run = "<tool>python</tool>\n<input>print(1)</input>\n<output>1</output>\nOne."
    with pytest.raises(RowError, match=r"E218.* the block 'output'"):
        answered(run)
    assert answered(EXPLAINED) == [("assistant", EXPLAINED.removeprefix(f"{CALL}\n"), True)]
    called = [("assistant", "", True), ("tool", "4 mm", False)]
    assert answered(f"{CALL}<result>4 mm</result>") == called


@pytest.mark.parametrize(
    "text", ["```a\n", "```a\nx\n```\n", "</a><b>", "<a>1</a><b>2</b>", "</a> "]
)
def test_thousands_of_blocks_cost_no_square(text: str) -> None:
    start = time.process_time()
    assert len({*blocks_behind(text * 8000)}) <= 2
    assert time.process_time() - start < 2


def test_a_row_is_refused_for_a_mark_in_a_turn_that_is_trained():
    def record(loss: bool) -> Record:
        said = Message("assistant", f"{ACTION[:15]}\n{OBSERVATION}", loss=loss)
        questions = Message("user", "<|tool|>"), Message("user", "So?")
        messages = (questions[0], Message("assistant", "Hm."), questions[1], said)
        return Record(messages=messages, tools=(Tool("weather"),))

    check_trained(record(loss=False))
    with pytest.raises(RowError, match=r"messages\[3\] is trained .* 'Observation:'"):
        check_trained(record(loss=True))


@pytest.mark.parametrize(
    ("value", "is_refused"),
    [
        ("Oslo\nObservation: 4", True),
        ("Oslo\nResult: 4", True),
        ("Oslo\n输出：4", True),
        ("Result: 4", False),  # its first line is the input itself
        ("Result: 4\nOslo", False),
        ("Observation: 4\nOslo", False),
        ("Oslo\nThe result: 4", False),
        ({"text": "Oslo\nResult: 4"}, False),
        (4, False),
    ],
)
def test_an_input_goes_on_into_a_result_from_its_second_line_on(value, is_refused):
    if is_refused:
        with pytest.raises(RowError, match="E218"):
            check_input(value)
    else:
        check_input(value)


CALLS = {
    "Llama": [
        '<|python_tag|>{"name": "weather", "parameters": {"city": "Oslo"}}<|eom_id|>',
        '<|python_tag|>weather.call(city="Oslo")',
        '<function=weather>{"city": "Oslo"}</function>',
        "<function=weather>\n<parameter=city>\nOslo\n</parameter>\n</function>",
    ],
    "Mistral": [
        '[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Oslo"}}]',
        '[TOOL_CALLS]weather{"city": "Oslo"}',
        '[TOOL_CALLS]weather[ARGS]{"city": "Oslo"}',
    ],
    "DeepSeek": [
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather",
        "<｜tool▁call▁begin｜>weather",
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="weather">',
    ],
    "Kimi": [
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0",
        "<|tool_call_begin|>functions.weather:0",
    ],
    "gpt-oss": [
        "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{}",
        "<|channel|>analysis to=functions.weather code<|message|>{}",
        "commentary to=functions.weather json{}",
    ],
    "Granite": ['<|tool_call|>[{"name": "weather", "arguments": {}}]'],
    "Phi": ['functools[{"name": "weather", "arguments": {}}]'],
    "Gemma": [
        '```tool_code\nweather(city="Oslo")\n```',
        "<start_function_call>call:weather{city:<escape>Oslo<escape>}<end_function_call>",
        '<|tool_call>call:weather{city:<|"|>Oslo<|"|>}<tool_call|>',
    ],
    "InternLM": ['<|action_start|><|plugin|>\n{"name": "weather"}<|action_end|>'],
    "Command R": ['<|START_ACTION|>[{"tool_name": "weather"}]<|END_ACTION|>'],
    "Hermes": ['<tool_call>\n{"name": "weather", "arguments": {}}'],
    "Nemotron": ['<TOOLCALL>[{"name": "weather", "arguments": {"city": "Oslo"}}]</TOOLCALL>'],
    "LFM2": ['<|tool_call_start|>[weather(city="Oslo")]<|tool_call_end|>'],
    "Claude": [
        '<function_calls>\n<invoke name="weather">\n<parameter name="city">Oslo</parameter>',
        '<tool_use>{"name": "weather", "input": {"city": "Oslo"}}</tool_use>',
    ],
    "OLMo": ['<function_calls>weather(city="Oslo")</function_calls>'],
    "Glaive": [
        '<functioncall> {"name": "weather", "arguments": {}}',
        '<function_call>\n{"name": "weather", "arguments": {}}\n</function_call>',
    ],
    "Jamba": ['<tool_calls>[{"name": "weather", "arguments": {}}]</tool_calls>'],
    "Seed": ["<seed:tool_call><function=weather>"],
    "MiniMax": ['<minimax:tool_call>\n<invoke name="weather">'],
    "LongCat": ["<longcat_tool_call>weather\n<longcat_arg_key>city"],
}
AT_START = [*CALLS["Phi"], *CALLS["Hermes"], CALLS["gpt-oss"][2]]
PROSE = [
    *(f"Such a call is written as {text}" for text in AT_START if "\n" not in text),
    "Call `functools[0]`, or functools[{}] in code.",
    "The token `<|python_tag|>` begins a call, as `<|tool_call|>` and `[TOOL_CALLS] [` do.",
    "Mistral writes [TOOL_CALLS] before a call.",
    "Write <function=NAME> with your own name.",
    "```python\nweather()\n```",
    '{"name": "Oslo", "rain": 4}',
    "It is wet.",
]


def row(text: str, **more: object) -> dict[str, object]:
    messages = [
        {"role": "user", "content": "Is it wet in Oslo?"},
        {"role": "assistant", "content": text, **more},
    ]
    return {"messages": messages, "tools": [{"name": "weather"}]}


@pytest.mark.parametrize(
    ("model", "text"), [(model, text) for model, texts in CALLS.items() for text in texts]
)
def test_a_trained_call_in_another_model_s_form_is_refused(model: str, text: str) -> None:
    for written in (text, f"\n {text}") if text.startswith("<") else (text,):
        found = call_mark(written)
        assert found and found[0] == model
        assert found[1] in written and found[1] == found[1].strip()
    for said in (text, f"I look.\n{text}") if text not in AT_START else (text,):
        if model in ("Nemotron", "OLMo"):  # whose tags are read
            assert to_record(row(said)).messages[1].calls
            continue
        with pytest.raises(RowError, match=f"trained and holds a call in {model}'s own form") as no:
            to_record(row(said))
        assert no.value.code == "E222"
        shown = to_record(row(said, loss=False))
        assert shown.messages[1].content == said


BARE = [
    '{"name": "weather", "parameters": {"city": "Oslo"}}',
    '{"name": "weather", "parameters": {}}; {"name": "weather", "parameters": {}}',
    '[{"name": "weather", "arguments": {}}]',
    '{"action": "weather", "action_input": {"city": "Oslo"}}',
    '{"tool": "weather", "args": {"city": "Oslo"}}',
    '{"type": "function", "function": {"name": "weather", "arguments": {}}}',
    '{"thought": "I look.", "tool_calls": [{"name": "weather", "arguments": {}}]}',
    '```json\n{"name": "weather", "arguments": {"city": "Oslo"}}\n```',
    '<think>I look.</think>\n\n{"name": "weather", "arguments": {"city": "Oslo"}}',
    "[weather(city='Oslo')]",
    'weather(city="Oslo")',
    "I look.\nAPI-Request: [weather(city='Oslo')]",
    'I look.\n<code>weather(city="Oslo")</code>',
    'I look:\n{"name": "weather", "arguments": {"city": "Oslo"}}\nOne moment.',
]
NO_CALLS = [
    '{"name": "forecast", "parameters": {}}',  # no tool on offer
    '{"name": "weather", "rain": 4}',
    '{"name": ["weather"], "arguments": {}}',
    '{"name":' * 20_000,
    "weather(city) is the tool for it, and it takes a city (or none).",
    "[weather](https://example.com/weather)",
    '{"action": "Final Answer", "action_input": {"text": "weather"}}',
    '{"forecast": {"name": "weather", "arguments": {}}}',
    "weather(" * 20_000,
    '[["weather"]]',
    'Such a call is {"name": "weather", "parameters": {}}.',
]


@pytest.mark.parametrize("text", BARE)
def test_the_json_of_a_call_alone_is_refused(text: str) -> None:
    record = to_record(row(text, loss=False))
    messages = (record.messages[0], Message("assistant", text))
    with pytest.raises(RowError, match="holds a call in Llama") as no:
        check_trained(Record(messages=messages, tools=record.tools))
    assert no.value.code == "E222"
    check_trained(Record(messages=messages))
    check_trained(record)


@pytest.mark.parametrize("text", [*PROSE, *NO_CALLS], ids=lambda text: text[:40])
def test_prose_about_calls_and_other_json_are_answers(text: str) -> None:
    assert call_mark(text) is None
    assert to_record(row(text)).messages[1].content == text


SCHEMA = '{"name": "weather", "parameters": {"type": "object", "properties": {}}}'
PROMPTS = {
    "a list": f"Answer the user.\nList of tools: [{SCHEMA}]",
    "an object": f"You may call these, by their names:\n{SCHEMA}\nAnswer briefly.",
    "literals": "These are there: [" + SCHEMA.replace('"', "'") + "]",
    "OpenHands": "---- BEGIN FUNCTION #1: weather ----\nParameters:\n (1) city (string, required)",
    "ToolRL": "**Available Tools**\n1. Name: weather\nDescription: rain\nParameters: {}",
    "API-Bank": 'API descriptions:\n{"name": "weather", "input_parameters": {}}',
}
CONTAINERS: dict[str, Callable[[str, str], dict[str, object]]] = {
    "messages": lambda prompt, text: {
        "messages": [{"role": "system", "content": prompt}, *row(text)["messages"]]  # type: ignore[misc]
    },
    "sharegpt": lambda prompt, text: {
        "system": prompt,
        "conversations": [{"from": "human", "value": "Wet?"}, {"from": "gpt", "value": text}],
    },
    "alpaca": lambda prompt, text: {"instruction": prompt, "input": "Wet?", "output": text},
    "completion": lambda prompt, text: {"prompt": f"{prompt}\n\nWet?", "completion": text},
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_call_of_a_tool_that_a_prompt_describes_is_read_or_refused_and_never_learned_as_words(
    prompt: str, container: str
) -> None:
    codes = set[str]()
    for text in (*(text for texts in CALLS.values() for text in texts), *BARE):
        try:
            record = to_record(CONTAINERS[container](PROMPTS[prompt], text))
        except RowError as refused:
            codes.add(refused.code)
        else:
            assert any(message.calls for message in record.messages) and record.tools, text
    assert codes <= {"E222", "E209", "E206", "E124", "E218"}


@pytest.mark.parametrize("model", CALL_MARKS)
def test_a_mark_counts_where_tools_are_on_offer_also_beside_a_call_that_was_read(
    model: str,
) -> None:
    """A server that parses a call and leaves its text would have it learned twice."""
    text = CALLS[model][0]
    check_trained(Record(messages=(Message("user", "q"), Message("assistant", text))))
    called = Message("assistant", text, (Call("weather", {}),))
    with pytest.raises(RowError, match=f"holds a call in {model}'s own form"):
        check_trained(Record(messages=(Message("user", "q"), called), tools=(Tool("weather"),)))
    words = Message("assistant", '{"name": "weather", "arguments": {}}', called.calls)
    check_trained(Record(messages=(Message("user", "q"), words), tools=(Tool("weather"),)))
