"""Whatever a model's template or tokenizer does wrong is the model's fault, and ends in time."""

import json

import pytest
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordLevel

from agentlite.core.errors import MODEL, UserError
from agentlite.rendering import chat_template, template
from agentlite.rendering.template import Template

TEMPLATES = {
    "{{ 1/0 }}": "ZeroDivisionError",
    "{{ '\\ud800' }}": "half a character",
    "{{ messages[9].content.a.b }}": "",
    "{{ ('x' * 3).nothing.at.all }}": "",
    "{{ [1][4] + 1 }}": "",
    "{{ {}['a']['b'] }}": "",
    "{{ 'a' + 1 }}": "",
    "{{ 'x'.encode('no such') }}": "",
    "{{ '%d' % 'a' }}": "",
    "{{ range(-1, 10, 0) }}": "",
    "{{ messages | sort(attribute='no') | map('no such') | list }}": "",
    "{% for a in messages %}" * 25 + "{% endfor %}" * 25: "nested too deep",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}": "nested too deep",
    "{% if 1 %}" * 3000 + "{% endif %}" * 3000: "nested too deep",
    "{{ " + "not " * 20000 + "1 }}": "nested too deep",
    "{{ 1" + " + 1" * 20000 + " }}": "",
    "{% set n = namespace(x=3) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}{% endfor %}": (
        "integers of thousands of digits"
    ),
    "{{ 3 ** (10 ** 9) }}": "",
    "{{ 10 ** 400 * 1.5 }}": "",
    "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}": "calls itself without end",
    "{% include 'other' %}": "",
    "{{ unclosed": "",
}
MESSAGES = [{"role": "user", "content": "hello"}]


def tokenizer(**parts: object) -> Tokenizer:
    made = Tokenizer(WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    for name, part in parts.items():
        setattr(made, name, part)
    return made


@pytest.mark.long
@pytest.mark.parametrize("source", TEMPLATES, ids=lambda source: source[:30])
def test_a_fault_of_a_template_is_the_models(source):
    made = Template("theirs", tokenizer(), source, {})
    with pytest.raises(UserError, match="the chat template fails: ") as refused:
        made.render(MESSAGES)
    assert refused.value.exit_code == MODEL and TEMPLATES[source] in str(refused.value)


def test_slow_renderings_are_given_up_together(monkeypatch):
    """Each is within the limit of one."""
    clock = iter(range(0, 10_000, 4))
    monkeypatch.setattr(chat_template.time, "thread_time", lambda: next(clock))
    made = chat_template.Compiled("{{ messages }} of its own")
    for _ in range(8):  # 4 s each
        made.render(messages=[])
    with pytest.raises(chat_template.TemplateError, match="have taken 30 s together"):
        chat_template.Compiled("{{ messages }} of its own").render(messages=[])


PANICS = {
    "pattern": {
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": "(a+)+$|(.*)*x"},
            "behavior": "Isolated",
            "invert": False,
        }
    },
}


@pytest.mark.long
@pytest.mark.parametrize("name", PANICS)
def test_a_panic_of_a_tokenizer_is_the_models(name, capfd):
    described = {**json.loads(tokenizer().to_str()), **PANICS[name]}
    made = Template("theirs", Tokenizer.from_str(json.dumps(described)), "{{ messages }}", {})
    text = "a" * 30 + "!" + "b" * 30_000
    for cut in (made.encode, made.offsets):
        with pytest.raises(UserError, match="the tokenizer fails: ") as refused:
            cut(text)
        assert refused.value.exit_code == MODEL


def test_a_tokenizer_that_makes_thousands_of_tokens_of_a_letter_is_refused():
    blows_up = tokenizer(
        normalizer=normalizers.Replace("a", "a " * 20_000),
        pre_tokenizer=pre_tokenizers.Split(Regex(" "), "removed"),
    )
    made = Template("theirs", blows_up, "{{ messages }}", {})
    with pytest.raises(UserError, match="makes 20000 tokens of 1 characters") as refused:
        made.encode("a")
    assert refused.value.exit_code == MODEL


def test_a_tokenizer_that_is_slow_again_and_again_is_refused(monkeypatch):
    clock = iter(range(0, 10_000, 4))
    made = Template("theirs", tokenizer(), "{{ messages }}", {})
    monkeypatch.setattr(template.time, "thread_time", lambda: next(clock))
    for _ in range(7):  # 4 s each
        made.encode("a")
    with pytest.raises(UserError, match="took 32 s for a few texts"):
        made.encode("a")


def test_an_interrupt_is_nobodys_fault():
    with pytest.raises(KeyboardInterrupt), template.tokenizer_errors("theirs"):
        raise KeyboardInterrupt
