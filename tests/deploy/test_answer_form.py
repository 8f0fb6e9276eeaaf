"""What an answer must be: its grammar, and what is wrong with one."""

import dataclasses
import json
from typing import Any

import pytest
from support.samples import TIME, WEATHER
from tokenizers import AddedToken, Tokenizer

from agentlite.core.json_schema import fits
from agentlite.core.records import Message, Record
from agentlite.data.openai_messages import Opened, Turn
from agentlite.deploy.answer_form import AnswerForm, call_form, call_syntax, json_form
from agentlite.rendering import PROTOCOLS, choose
from agentlite.rendering.template import Template

HERMES = PROTOCOLS["hermes"]
DIALOG = Opened(Record(messages=(Message("user", "x"),), tools=(WEATHER, TIME)), [])


@pytest.fixture(scope="module")
def matcher(smollm2: Any) -> Any:
    """Whether a form lets a text through, and whether nothing may follow it."""
    llguidance = pytest.importorskip("llguidance")

    def match(form: AnswerForm, text: str, template: Any = smollm2) -> tuple[bool, bool]:
        tokenizer = llguidance.LLTokenizer(template.tokenizer.to_str(), eos_token=2)
        matcher = llguidance.LLMatcher(tokenizer, form.grammar)
        ids = template.encode(text)
        is_through = matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()
        return is_through, is_through and matcher.is_stopped()

    return match


def problem(form: AnswerForm, text: str) -> str:
    return form.problem(Turn(text, "stop", HERMES.read(text, DIALOG.record.tools)))


def test_json_comes_behind_the_end_of_the_thought_that_the_prompt_opens(smollm2, matcher):
    for opens, lead in ((False, ""), (True, "\n</think>\n\n")):
        protocol = dataclasses.replace(HERMES, prompt_opens_thought=opens)
        form = json_form({"type": "object"}, protocol, smollm2)
        assert form.lead == lead and matcher(form, f'{lead}{{"a": 3}}') == (True, True)
        assert matcher(form, f'{"" if lead else "x"}{{"a": 3}}') == (False, False)


WEATHER_SCHEMA: dict[str, Any] = {
    "properties": {
        "city": {"type": "string", "minLength": 1, "maxLength": 9, "pattern": "^[A-Z]"},
        "days": {"type": "integer", "maximum": 14},
        "unit": {"enum": ["c", "f", 1, None]},
        "where": {"$ref": "#/$defs/place"},
        "hours": {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 2},
        "wind": {"anyOf": [{"type": "boolean"}, {"const": "calm"}]},
        '"quoted"': {"type": ["string", "null"]},
        "odd": {"type": "dict", "format": "none"},
    },
    "required": ["city"],
    "$defs": {
        "place": {
            "type": "object",
            "properties": {"at": {"$ref": "#/$defs/place"}},
            "additionalProperties": {"type": "number"},
        }
    },
}
FITTING = [
    '{"city": "Oslo"}',
    '{ "city":\n "Oslo", "days": 3 }',
    '{"city": "A", "unit": null, "wind": "calm"}',
    '{"city": "A", "unit": 1, "hours": [1, 2.5e1], "wind": true}',
    '{"city": "A", "where": {"at": {"x": 1}, "y": -2}}',
    '{"city": "A", "\\"quoted\\"": null, "odd": {"x": 1}}',
]
NOT_FITTING = [
    "{}",
    "[]",
    '"Oslo"',
    '{"city": ""}',
    '{"city": "Ten letters"}',
    '{"city": "oslo"}',
    '{"city": "A", "days": 3.5}',
    '{"city": "A", "days": 15}',
    '{"city": "A", "days": "3"}',
    '{"city": "A", "unit": "k"}',
    '{"city": "A", "hours": []}',
    '{"city": "A", "hours": [1, 2, 3]}',
    '{"city": "A", "wind": "strong"}',
    '{"city": "A", "where": {"x": "1"}}',
    '{"city": "A", "other": 1}',
]


@pytest.mark.parametrize("text", FITTING + NOT_FITTING)
def test_what_fits_a_schema_gets_through_and_nothing_else(smollm2, matcher, text):
    form = json_form(WEATHER_SCHEMA, HERMES, smollm2)
    does_fit = text in FITTING
    assert matcher(form, text) == (does_fit, does_fit)
    assert fits(json.loads(text), {**WEATHER_SCHEMA, "type": "object"}) == does_fit
    assert bool(problem(form, text)) != does_fit


@pytest.mark.parametrize(
    "text", ['{"a": 01}', '{"a": NaN}', '{"a" 1}', "{" + " " * 40 + "}", " {}"]
)
def test_no_json_and_no_blanks_without_end_get_through(smollm2, matcher, text):
    assert matcher(json_form({"type": "object"}, HERMES, smollm2), text) == (False, False)


def test_a_keyword_that_a_grammar_cannot_follow_is_checked_at_the_end(smollm2, matcher):
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(?=b)"}}}
    form = json_form(schema, HERMES, smollm2)
    assert matcher(form, '{"a": "c"}') == (True, True) and matcher(form, '{"a": 1}')[0] is False
    assert problem(form, '{"a": "c"}').startswith("a: ") and not problem(form, '{"a": "bc"}')
    assert "JSON" in problem(form, '{"a"') and problem(form, "[" * 100_000).startswith("not JSON")
    assert json_form({"required": ["a"], "properties": {"a": False}}, HERMES, smollm2) is None


def test_a_call_is_written_as_the_protocol_writes_it(smollm2, matcher):
    form = call_form(DIALOG, ["get_weather"], HERMES, smollm2)
    text = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    assert matcher(form, text) == (True, True) and problem(form, text) == ""
    time = text.replace("get_weather", "get_time").replace('{"city": "Oslo"}', "{}")
    assert matcher(form, time) == (False, False) and "get_time" in problem(form, time)
    assert problem(form, "It is wet.") == "no call"
    both = call_form(DIALOG, ["get_weather", "get_time"], HERMES, smollm2)
    assert matcher(both, time) == matcher(both, text) == (True, True)
    assert matcher(both, "It is wet.") == (False, False)


@pytest.mark.parametrize("special", [False, True])
def test_a_mark_that_is_one_token_is_written_as_that_token(smollm2, matcher, special):
    tokenizer = Tokenizer.from_str(smollm2.tokenizer.to_str())
    marks = [AddedToken(mark, special=special) for mark in ("<tool_call>", "</tool_call>")]
    (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(marks)
    template = Template("marks", tokenizer, smollm2.chat_template, smollm2.special)
    form = call_form(DIALOG, ["get_weather"], HERMES, template)
    text = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    assert matcher(form, text, template) == (True, True)
    assert template.encode(text)[0] == tokenizer.token_to_id("<tool_call>")


def test_no_form_is_made_where_calls_cannot_be_read(smollm2):
    assert call_form(DIALOG, ["get_weather"], PROTOCOLS["chat"], smollm2) is None
    assert call_form(DIALOG, [], HERMES, smollm2) is None


@pytest.mark.parametrize("name", PROTOCOLS)
def test_arguments_between_the_two_texts_are_read_back(name, templates):
    template = templates["tools" if name == "chat" else "smollm2"]
    protocol = choose(name, template).protocols[name]
    for tool in (WEATHER, TIME):
        before, after = call_syntax(tool, protocol, template)
        read = protocol.read(before + '{"a": ["}", {}], "b": "{}"}' + after, (WEATHER, TIME))
        assert read.problem == ""
        [call] = read.calls
        assert (call.name, call.arguments) == (tool.name, {"a": ["}", {}], "b": "{}"})
