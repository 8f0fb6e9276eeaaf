"""agentlite.rendering.protocols.kuaiagent: its prompts are whole, as seed 003 prints them."""

import json

import pytest
from msgspec.structs import replace
from support.samples import DATA, TIME, WEATHER

from agentlite.core.records import Call, Message, Record, Tool
from agentlite.rendering import PROTOCOLS, render, renderer
from agentlite.rendering.protocols.kuaiagent import BUDGET
from agentlite.rendering.template import Template

ROWS = [
    json.loads(line)
    for line in (DATA / "seeds/seed_003.jsonl").read_text(encoding="utf-8").splitlines()
]
PLAN, CONCLUDE = (row["messages"][0]["content"] for row in ROWS[1:])


def asked(question: str, *steps: Message, tools: tuple[Tool, ...] = (WEATHER, TIME)) -> Record:
    return Record(messages=(Message("user", question), *steps), tools=tools)


def called(count: int) -> list[Message]:
    calls = [Call("get_weather", {"city": f"town {n}"}, f"call_{n}") for n in range(count)]
    return [
        message
        for call in calls
        for message in (
            Message("assistant", calls=(call,)),
            Message("tool", "dry", call_id=call.id),
        )
    ]


def prompts(record: Record, name: str, template: Template) -> list[tuple[str, str]]:
    """Each prompt with its answer."""
    rows = render(record, PROTOCOLS[name], template)
    return [
        (row.text[: row.spans[0].start], renderer.span_text(row, row.spans[0], template))
        for row in rows
    ]


@pytest.mark.parametrize("printed", [PLAN, CONCLUDE], ids=["plan", "conclude"])
def test_every_line_of_the_printed_prompts_is_in_ours(printed: str, smollm2: Template) -> None:
    record = asked("北京现在天气怎么样?", Message("assistant", "晴。"))
    plan, conclude = (prompt for prompt, _ in prompts(record, "kuaiagent-zh", smollm2))
    ours = plan if printed is PLAN else conclude
    lines = [line.strip().replace("“", '"').replace("”", '"') for line in printed.splitlines()]
    form = {line for line in lines if line.startswith(('"', "{", "}"))}
    for line in lines:
        left_out = line.startswith(("Current Time", "{'location'")) or line in form
        shown = line.startswith(("1:{", "2:{", "3:{", "4:{", "GOAL:", "Completed", "Conversation"))
        if line and not left_out and not shown:
            heading = line.removeprefix("当已完成的Tasks能够帮助回答这个目标问题,")
            heading = heading.removeprefix("则尽可能生成任务完成Task,否则生成一个其他Task。")
            heading = heading.replace("json列表", "json")
            assert heading in ours, line


@pytest.mark.parametrize(("count", "budget"), [(0, 5), (1, 5), (5, 5), (6, 10), (11, 15)])
def test_no_dialog_oversteps_the_budget_that_its_prompts_name(
    count: int, budget: int, smollm2: Template
) -> None:
    record = asked("Wet?", *called(count), Message("assistant", "No."))
    for prompt, _ in prompts(record, "kuaiagent", smollm2)[:-1]:
        assert f"at most {budget} steps and plan {budget} tasks" in prompt
    assert budget >= count and budget % BUDGET == 0


def test_a_command_is_written_with_what_it_returns_and_what_it_requires(smollm2: Template) -> None:
    tool = replace(
        WEATHER,
        parameters={**WEATHER.parameters, "required": ["city"]},
        returns={"description": "4 mm", "type": "str"},
    )
    record = asked("Wet?", Message("assistant", "No."), tools=(tool,))
    (plan, _), _ = prompts(record, "kuaiagent-zh", smollm2)
    assert (
        '\n1:{"name": "get_weather", "description": "Weather of a city.", "parameters": {"type": '
        '"object", "properties": {"city": {"type": "string"}}}, "returns": {"description": "4 mm", '
        '"type": "str"}, "required": ["city"]}\n'
    ) in plan
    printed = next(line for line in PLAN.splitlines() if line.startswith("4:"))
    assert f"\n{printed.replace('4:', '2:')}\n" in plan


@pytest.mark.parametrize(
    ("name", "question", "language"),
    [
        ("kuaiagent", "Wet?", "the final answer in the language of the goal."),
        ("kuaiagent", "北京天气怎么样?", "the final answer in Chinese."),
        ("kuaiagent-zh", "北京天气怎么样?", "你需要整合这些信息用中文给出最终的结论。"),
        ("kuaiagent-zh", "Wet?", "你需要整合这些信息用目标所用的语言给出最终的结论。"),
    ],
)
def test_the_answer_is_asked_for_in_the_language_of_the_goal(
    name: str, question: str, language: str, smollm2: Template
) -> None:
    _, (conclude, _) = prompts(asked(question, Message("assistant", "x")), name, smollm2)
    assert language in conclude


@pytest.mark.parametrize("name", ["kuaiagent", "kuaiagent-zh", "autogpt"])
@pytest.mark.parametrize(
    ("description", "arguments", "expected"),
    [
        ("Weather of a city.", {"city": "Oslo"}, "Weather of a city: Oslo"),
        ("检索天气信息。返回温度。", {"地点": "北京", "天": 2}, "检索天气信息: 北京, 2"),
        ("", {"city": "Oslo"}, "get weather: Oslo"),
        ("x" * 200, {}, "get weather"),
        ("At 5.30 p.m. in a city", {}, "At 5.30 p.m"),
        ("Says.", {"text": "a\n" * 100}, f"Says: {'a ' * 38}a..."),
        # a sentence and values of 80 characters are the longest that stay whole
        ("y" * 80, {"text": "a" * 80}, f"{'y' * 80}: {'a' * 80}"),
        ("y" * 81, {"text": "a" * 81}, f"get weather: {'a' * 77}..."),
    ],
)
def test_a_call_without_a_thought_has_a_name_in_every_prompt(
    name: str, description: str, arguments: dict[str, object], expected: str, smollm2: Template
) -> None:
    call = Call("get_weather", arguments, "call_0")
    record = asked(
        "Wet?",
        Message("assistant", calls=(call,)),
        Message("tool", "4 mm", call_id="call_0"),
        Message("assistant", "Yes."),
        tools=(replace(WEATHER, description=description),),
    )
    (_, command), (later, _), _ = prompts(record, name, smollm2)
    value = json.loads(command)
    assert (value["thoughts"]["text"] if name == "autogpt" else value["task_name"]) == expected
    assert json.dumps({"task_name": expected}, ensure_ascii=False)[:-1] in later
