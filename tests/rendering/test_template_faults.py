"""Whatever a model's template does wrong is the model's fault."""

import shutil

import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel

from agentlite.core.errors import MODEL, UserError
from agentlite.rendering import PROTOCOLS, encoding, renderer
from agentlite.rendering.template import Template
from agentlite.workspace.input_files import load_template

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


@pytest.mark.parametrize("special", [True, False])
def test_a_token_that_the_model_has_no_embedding_of_is_refused(special, tiny_model, tmp_path):
    """Wherever it would be encoded; one that no text holds harms nothing."""
    shutil.copytree(tiny_model, tmp_path / "model")
    path = tmp_path / "model/tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.add_tokens([AddedToken("<tool_call>", special=special)])
    tokenizer.save(str(path))
    template = load_template(str(tmp_path / "model"))
    assert max(template.encode("All is well.")) < template.embedding_count == 49152
    with pytest.raises(UserError, match=r"49153 tokens.* of 49152: <tool_call>") as refused:
        encoding.training_rows(renderer.PROBE, PROTOCOLS["hermes"], template)
    assert refused.value.exit_code == MODEL
