"""agentlite.data.formats.task_prompts: prompts of KuaiAgent and AutoGPT become dialogs of turns."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.damaged_rows import refused
from support.samples import DATA

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Message, Record, Tool
from agentlite.data.curation.validate import validate
from agentlite.data.formats import task_prompts, to_record
from agentlite.rendering import PROTOCOLS, render, renderer
from agentlite.rendering.template import Template

ROWS = [
    json.loads(line)
    for line in (DATA / "seeds/seed_003.jsonl").read_text(encoding="utf-8").splitlines()
]
PLAN, COMMAND = (message["content"] for message in ROWS[1]["messages"])
CONCLUDE, ANSWER = (message["content"] for message in ROWS[2]["messages"])
CONTAINERS = {
    "openai": lambda q, a: {
        "messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]
    },
    "alpaca": lambda q, a: {"instruction": q, "output": a},
    "ms_swift": lambda q, a: {"query": q, "response": a},
    "sharegpt": lambda q, a: {
        "conversations": [{"from": "human", "value": q}, {"from": "gpt", "value": a}]
    },
    "kagentinstruct": lambda q, a: {
        "query": "q",
        "source": "kwai-agent",
        "functions": [],
        "llm_prompt_response": [{"instruction": q, "input": "", "output": a}],
    },
}
in_every_container = pytest.mark.parametrize("container", CONTAINERS)


def read(question: str, answer: str, container: str = "openai") -> Record:
    return to_record(CONTAINERS[container](question, answer))


@in_every_container
def test_the_printed_planning_prompt_becomes_tools_a_question_and_a_call(container: str) -> None:
    record = read(PLAN, COMMAND, container)
    validate(record)
    assert [tool.name for tool in record.tools] == ["web_search", "wiki_search", "get_weather_info"]
    assert record.tools[0] == Tool(
        "web_search",
        "调用互联网搜索引擎",
        {
            "type": "object",
            "properties": {"text": {"type": "string", "description": "搜索关键词"}},
            "required": ["text"],
        },
        {"description": "多个网页链接及简要描述", "type": "str"},
    )
    # quotes stand in these texts as they are: printed so, the tool is not JSON
    assert record.tools[2].parameters["properties"]["location"]["description"] == (
        '用英文逗号分隔的地点,例如:"Beijing,Vancouver,...,Chicago".'
    )
    assert record.tools[2].parameters["required"] == [
        "location",
        "start_date",
        "end_date",
        "is_current",
    ]
    arguments = {"location": "Beijing", "start_date": "2024-09-12", "end_date": "2024-09-12"}
    assert record.messages == (
        Message("system", "Current Time: 2024-09-12 20:30:04.123456"),
        Message("user", "北京现在天气怎么样?"),
        Message(
            "assistant",
            "获取北京现在的天气信息",
            (Call("get_weather_info", {**arguments, "is_current": "yes"}, "call_0"),),
        ),
    )


@in_every_container
def test_the_printed_concluding_prompt_names_no_calls_and_stays_a_text(container: str) -> None:
    record = read(CONCLUDE, ANSWER, container)
    assert [message.content for message in record.messages] == [CONCLUDE, ANSWER]
    assert record.tools == ()


@pytest.mark.parametrize("name", ["kuaiagent", "kuaiagent-zh", "autogpt"])
@in_every_container
def test_what_these_protocols_write_is_read_as_the_dialog_it_came_from(
    container: str, name: str, smollm2: Template, dialog: Record
) -> None:
    protocol = PROTOCOLS[name]
    for turn in dialog.turns:
        rows = [row for row in render(dialog, protocol, smollm2) if row.spans[0].turn == turn]
        answers = [renderer.span_text(row, row.spans[0], smollm2) for row in rows]
        texts = [row.text.rpartition("<|im_start|>user\n")[2] for row in rows]
        prompt, *others = (text.partition("<|im_end|>")[0] for text in texts)
        if len(rows) == 1:
            record = read(prompt, answers[0], container)
        else:  # the end of a task, and the conclusion
            asked = zip((prompt, *others), answers, strict=True)
            both = [{"instruction": asking, "output": answer} for asking, answer in asked]
            assert len(task_prompts.samples_of({task_prompts.SAMPLES: both})) == 1
            ending = Record(messages=(Message("user", prompt), Message("assistant", answers[0])))
            record = task_prompts.split(ending, answers[1])
        assert record.tools == dialog.tools
        learned, ours = record.messages[-1], dialog.messages[turn]
        assert (learned.content, learned.loss) == (ours.content, True)
        assert [(c.name, c.arguments) for c in learned.calls] == [
            (c.name, c.arguments) for c in ours.calls
        ]
        for role in ("tool", "user"):
            said = [m.content for m in dialog.messages[:turn] if m.role == role]
            assert [m.content for m in record.messages if m.role == role] == said
        assert record.messages[0] == Message("system", "Be brief.")
        assert not any(m.loss for m in record.messages[:-1] if m.role == "assistant")


@pytest.mark.parametrize(
    "prompt",
    [
        PLAN.replace("Completed tasks:", "Completed tasks: looked it up"),
        PLAN.replace("Conversation history:", "Conversation history: we spoke"),
        PLAN.replace("GOAL:", "QUESTION:"),
        PLAN.replace("Commands:", "Commands:\n{"),
        PLAN.replace("Knowledge:", "Knowledge: a\nKnowledge: b"),
        PLAN.replace("2.不需要用户的帮助", "不需要用户的帮助"),
        PLAN + '\nCommand get_weather returned: "4 mm"',
        PLAN.replace("Commands:", "Orders:"),
    ],
    ids=["tasks", "history", "goal", "commands", "twice", "rules", "behind", "no commands"],
)
def test_a_prompt_of_which_anything_is_not_understood_stays_whole(prompt: str) -> None:
    record = read(prompt, COMMAND)
    assert [message.content for message in record.messages] == [prompt, COMMAND]
    assert record.tools == ()


def test_prose_for_a_command_stays_and_a_command_that_cannot_be_read_is_refused() -> None:
    assert read(PLAN, "I look.").messages[-1] == Message("assistant", "I look.")
    assert refused(lambda: read(PLAN, COMMAND[:-1])) == "E206"
    assert refused(lambda: read(PLAN, COMMAND.replace('"name"', '"title"'))) == "E206"
    assert read(PLAN, f"```json\n{COMMAND}\n```") == read(PLAN, COMMAND)


@given(st.text(max_size=200), st.integers(0, len(PLAN)))
def test_no_change_of_a_prompt_makes_the_reader_fail_or_lose_the_answer(
    text: str, start: int
) -> None:
    prompt = PLAN[:start] + text + PLAN[start + len(text) :]
    record = Record(messages=(Message("user", prompt), Message("assistant", COMMAND)))
    with suppress(RowError):
        found = task_prompts.split(record)
        assert found is record or found.messages[-1].calls
