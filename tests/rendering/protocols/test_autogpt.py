"""agentlite.rendering.protocols.autogpt: thoughts of five kinds and one command, as strict JSON."""

import json

from support.samples import WEATHER

from agentlite.core.records import Call, Message, Parsed, Record
from agentlite.rendering import PROTOCOLS, render, renderer
from agentlite.rendering.template import Template

AUTOGPT = PROTOCOLS["autogpt"]
OSLO = Call("get_weather", {"city": "Oslo"})
THOUGHTS = {
    "text": "I must look it up.",
    "reasoning": "I cannot know the weather.",
    "plan": "- look it up\n- answer",
    "criticism": "One command must do.",
    "speak": "I will look.",
}
CONTENT = (
    "I must look it up.\nReasoning: I cannot know the weather.\nPlan: - look it up\n- answer\n"
    "Criticism: One command must do.\nSpeak: I will look."
)


def answer(thoughts: object) -> str:
    command = {"name": "get_weather", "args": {"city": "Oslo"}}
    return json.dumps({"thoughts": thoughts, "command": command})


def test_every_thought_is_read_as_a_line_of_the_message_and_written_back(smollm2: Template) -> None:
    assert AUTOGPT.parse(answer(THOUGHTS), ()) == Parsed(CONTENT, (OSLO,))
    record = Record(
        messages=(Message("user", "Wet?"), Message("assistant", CONTENT, (OSLO,))), tools=(WEATHER,)
    )
    (row,) = render(record, AUTOGPT, smollm2)
    assert renderer.span_text(row, row.spans[0], smollm2) == answer(THOUGHTS)


def test_no_thought_of_a_message_is_lost_however_often_its_label_stands_there():
    content = "Plan: look\nPlan: answer\nshort\nSpeak: I look."
    messages = (Message("user", "Wet?"), Message("assistant", content, (OSLO,)))
    (exchange,) = AUTOGPT.exchanges(Record(messages=messages, tools=(WEATHER,)), 1)
    # where there is no text, what the step does stands in its place
    assert json.loads(exchange.answer)["thoughts"] == {
        "text": "Weather of a city: Oslo",
        "plan": "look\nanswer\nshort",
        "speak": "I look.",
    }


def test_the_prompt_has_the_sections_of_autogpt_in_their_order(smollm2: Template) -> None:
    record = Record(
        messages=(
            Message("system", "You know Norway."),
            Message("user", "Wet?"),
            Message("assistant", "No."),
        ),
        tools=(WEATHER,),
    )
    plan, conclude = (row.text for row in render(record, AUTOGPT, smollm2))
    sections = ("GOALS:", "Constraints:", "Commands:", "Resources:", "Best Practices:")
    starts = [plan.index(f"\n{section}\n") for section in sections]
    assert starts == sorted(starts)
    assert all(f'"{key}"' in plan for key in [*THOUGHTS, "command", "name", "args"])
    assert "\n1. Wet?\n" in plan and "\n1. Wet?\n" in conclude
    assert "You know Norway.\n" in plan and "You know Norway.\n" in conclude
    assert '\n2. {"name": "task_complete"' in plan
    form = plan[plan.index('{\n    "thoughts"') :]
    assert json.JSONDecoder().raw_decode(form)[0].keys() == {"thoughts", "command"}
