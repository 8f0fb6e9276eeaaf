"""What an answer must be: its guide, what is put around it, and what is wrong with one."""

import dataclasses

from support.samples import TIME, WEATHER

from agentlite.core.records import Message, Record
from agentlite.data.openai_messages import Opened, Turn
from agentlite.deploy.answer_form import AnswerForm, call_form, json_form
from agentlite.rendering import PROTOCOLS

HERMES = PROTOCOLS["hermes"]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}}
DIALOG = Opened(Record(messages=(Message("user", "x"),), tools=(WEATHER, TIME)), [])


def problem(form: AnswerForm, text: str) -> str:
    whole = form.completed(text)
    return form.problem(Turn(whole, "stop", HERMES.read(whole, DIALOG.record.tools)))


def test_json_is_given_without_the_end_of_the_thought_that_the_prompt_opens():
    for opens, before in ((False, ""), (True, "\n</think>\n\n")):
        form = json_form(SCHEMA, dataclasses.replace(HERMES, prompt_opens_thought=opens))
        assert form.guide.after(f'{before}{{"a": 3}}').is_over
        assert form.completed(f'{before}{{"a": 3}}') == '{"a": 3}'
        assert form.guide.after("\n</think>\n\n" if not opens else "{") is None


def test_an_answer_that_does_not_fit_is_told_why():
    form = json_form(SCHEMA, HERMES)
    assert problem(form, '{"a": 3}') == ""
    assert problem(form, '{"a": 2}').startswith("a: ") and "JSON" in problem(form, '{"a"')
    assert problem(form, "[" * 100_000).startswith("not JSON")


def test_a_call_is_completed_and_read(smollm2):
    form = call_form(DIALOG, ["get_weather"], HERMES, smollm2)
    text = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}'
    assert form.guide.after(text).is_over and form.completed(text) == text + "}\n</tool_call>"
    assert problem(form, text) == ""
    assert form.guide.after(text.replace("get_weather", "get_time")) is None
    assert "get_time" in problem(form, '<tool_call>\n{"name": "get_time"}\n</tool_call>')
    assert problem(form, "It is wet.") == "no call"
    both = call_form(DIALOG, ["get_weather", "get_time"], HERMES, smollm2)
    assert both.guide.after('<tool_call>\n{"name": "get_t') and both.guide.after("It") is None


def test_no_form_is_made_where_calls_cannot_be_read(smollm2):
    assert call_form(DIALOG, ["get_weather"], PROTOCOLS["chat"], smollm2) is None
    assert call_form(DIALOG, [], HERMES, smollm2) is None
