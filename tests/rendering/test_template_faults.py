"""Whatever a model's template does wrong is the model's fault."""

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from agentlite.core.errors import MODEL, UserError
from agentlite.rendering.template import Template

TEMPLATES = {
    "{{ 1/0 }}": "ZeroDivisionError",
    "{{ '\\ud800' }}": "UnicodeEncodeError",
    "{{ messages[9].content.a.b }}": "",
    "{{ ('x' * 3).nothing.at.all }}": "",
    "{{ [1][4] + 1 }}": "",
    "{{ {}['a']['b'] }}": "",
    "{{ 'a' + 1 }}": "",
    "{{ 'x'.encode('no such') }}": "",
    "{{ '%d' % 'a' }}": "",
    "{{ range(-1, 10, 0) }}": "",
    "{{ messages | sort(attribute='no') | map('no such') | list }}": "",
    "{% for a in messages %}" * 25 + "{% endfor %}" * 25: "Error",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}": "Error",
    "{% if 1 %}" * 3000 + "{% endif %}" * 3000: "Error",
    "{{ " + "not " * 20000 + "1 }}": "Error",
    "{{ 1" + " + 1" * 20000 + " }}": "",
    "{{ 10 ** 400 * 1.5 }}": "",
    "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}": "RecursionError",
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
