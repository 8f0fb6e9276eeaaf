"""Whatever a model's template does wrong is the model's fault."""

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from agentlite.core.errors import MODEL, UserError
from agentlite.rendering.template import Template

TEMPLATES = {
    "{{ 1/0 }}": "ZeroDivisionError",
    "{{ '\\ud800' }}": "UnicodeEncodeError",
    "{{ ('x' * 3).nothing.at.all }}": "",
    "{{ 'a' + 1 }}": "",
    "{{ '%d' % 'a' }}": "",
    "{{ messages | sort(attribute='no') | map('no such') | list }}": "",
    "{% for a in messages %}" * 25 + "{% endfor %}" * 25: "Error",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}": "Error",
    "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}": "RecursionError",
    "{% include 'other' %}": "",
    "{{ unclosed": "",
}


@pytest.mark.long
@pytest.mark.parametrize("source", TEMPLATES, ids=lambda source: source[:30])
def test_a_fault_of_a_template_is_the_models(source):
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    made = Template("theirs", tokenizer, source, {})
    with pytest.raises(UserError, match="the chat template fails: ") as refused:
        made.render([{"role": "user", "content": "hello"}])
    assert refused.value.exit_code == MODEL and TEMPLATES[source] in str(refused.value)
