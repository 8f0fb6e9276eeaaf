"""A mark of a result is found however it is written; what is only like one is the assistant's own
words.
"""

import pytest

from agentlite.core.errors import RowError
from agentlite.core.records import Message, Record, Tool
from agentlite.rendering.result_marks import check_input, check_results, result_mark

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


def test_a_row_is_refused_for_a_mark_in_a_turn_that_is_trained():
    def record(loss: bool) -> Record:
        said = Message("assistant", f"{ACTION[:15]}\n{OBSERVATION}", loss=loss)
        questions = Message("user", "<|tool|>"), Message("user", "So?")
        messages = (questions[0], Message("assistant", "Hm."), questions[1], said)
        return Record(messages=messages, tools=(Tool("weather"),))

    check_results(record(loss=False))
    with pytest.raises(RowError, match=r"messages\[3\] is trained .* 'Observation:'"):
        check_results(record(loss=True))


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
