"""The tokenizer read without torch is the model's own, and a template's facts are found by asking
it.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.samples import with_template

from agentlite.core.errors import UserError
from agentlite.rendering.template import Template
from agentlite.workspace.model_source import find_model
from agentlite.workspace.run_folder import Plan, open_stage


# the vocabulary lacks some control characters, and the byte with which characters above plane 3
# begin
@given(
    text=st.text(st.characters(exclude_categories=("Cs", "Cc"), max_codepoint=0x3FFFF), max_size=60)
)
def test_any_text_survives_its_tokens(smollm2, text):
    assert smollm2.decode(smollm2.encode(text)) == text


def test_digits_stand_alone_as_the_model_was_trained(smollm2):
    pieces = [smollm2.decode([token]) for token in smollm2.encode("call 12345 now")]
    assert pieces == ["call", " ", "1", "2", "3", "4", "5", " now"]


def test_the_ids_are_those_of_smollm2(smollm2):
    assert smollm2.token_id("<|endoftext|>") == 0
    assert smollm2.token_id("<|im_start|>") == 1
    assert smollm2.token_id("<|im_end|>") == 2
    assert smollm2.turn_end == "<|im_end|>"
    assert smollm2.encode("<|im_start|>user\nhi<|im_end|>")[0] == 1  # and no bos before it
    assert set(smollm2.turn_tokens) == {"<|im_start|>", "<|im_end|>"}


def test_a_template_is_asked_whether_it_takes_tools(smollm2):
    assert not smollm2.takes_tools
    assert with_template(smollm2, "tools").takes_tools
    assert not with_template(smollm2, "forgets").takes_tools


@pytest.mark.long
def test_prep_reads_a_tokenizer_without_torch_or_transformers():
    program = (
        "import sys; from agentlite.workspace.model_source import load_template; "
        "load_template('smollm2-135m').encode('x')\n"
        "assert not {'torch', 'transformers', 'numpy', 'gguf'} & set(sys.modules), "
        "sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_stage_of_the_workspace_comes_before_a_folder_and_an_alias(tmp_path, tiny_model):
    assert find_model("smollm2-135m", tmp_path).base == "smollm2-135m"
    assert find_model(str(tiny_model), tmp_path).adapter is None
    with pytest.raises(UserError) as told:
        find_model("sfft", tmp_path)
    assert told.value.exit_code == 5


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "told"),
    [
        (
            "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
            "longer than",
        ),
        (
            "{% set r = range(90000) %}{% for a in r %}{% for b in r %}{% for c in r %}{% endfor "
            "%}{% endfor %}{% endfor %}",
            "longer than",
        ),
        ("{% for a in range(900) %}" * 5 + "{% endfor %}" * 5, "longer than"),
        (
            "{% set n = namespace(t='ab') %}{% for a in range(60) %}{% set n.t = n.t + n.t %}{% "
            "endfor %}",
            "million",
        ),
        (
            "{% set n = namespace(t='ab') %}{% for a in range(60) %}{% set n.t = n.t ~ n.t %}{% "
            "endfor %}",
            "million",
        ),
        ("{{ 'ab' * 10 ** 9 }}", "million"),
        ("{{ 9 ** (9 ** 9) }}", "million"),
        ("{% set t = 'ab' * 1000000 %}{% for a in range(9000) %}{{ t }}{% endfor %}", "million"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "without end"),
        (
            "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ "
            "m(60) }}",
            "longer than",
        ),
        (
            "{% for a in [1, 2] recursive %}{% if loop.depth < 60 %}{{ loop([1, 2]) }}{% endif "
            "%}{% endfor %}",
            "longer than",
        ),
        ("{{ 'a'.ljust(1000000000) }}", "million"),
        ("{{ 'a'|center(1000000000) }}", "million"),
        ("{{ 'a'.zfill(1000000000) }}", "million"),
        ("{{ '\t'.expandtabs(1000000000) }}", "million"),
        ("{{ ('a' * 60000000).replace('a', 'b' * 20) }}", "million"),
        ("{{ ('a' * 60000000)|replace('a', 'b' * 20) }}", "million"),
        ("{{ ','.join(['a' * 1000000] * 1000) }}", "million"),
        ("{{ (['a' * 1000000] * 1000)|join }}", "million"),
        ("{{ '%1000000000d' % 1 }}", "million"),
        ("{{ '%*d' % (1000000000, 1) }}", "million"),
        ("{{ '{:1000000000}'.format(1) }}", "million"),
        ("{{ '{:{}}'.format(1, 1000000000) }}", "million"),
        ("{{ 'a'|indent(1000000000, true) }}", "million"),
        ("{{ [[1]]|tojson(indent=1000000000) }}", "million"),
        ("{{ [1]|batch(1000000000, 'x')|list|length }}", "million"),
        ("{{ range(90000)|map('center', 9000000)|list|length }}", "million|longer"),
        (
            "{% set n = namespace(l=[]) %}{% for a in range(9000) %}{% set n.l = n.l + ['x' * "
            "60000000] %}{% endfor %}",
            "million|longer",
        ),
        ("{{ ['x' * 60000000] * 900 }}", "million"),
        ("{{ (['x' * 60000000] * 900)|string|length }}", "million"),
        ("{{ (['x' * 60000000] * 900)|tojson|length }}", "million"),
        ("{{ ('%s' % [['x' * 60000000] * 900])|length }}", "million"),
        ("{{ ([['x' * 60000000] * 900] ~ '')|length }}", "million"),
        (
            "{% set n = namespace(l=[]) %}{% for a in range(60) %}{% set n.l = [n.l, n.l] %}{% "
            "endfor %}{{ n.l }}",
            "million",
        ),
        ("{{ ('a' * 60000000).translate({97: 'b' * 60})|length }}", "million"),
        ("{{ ('a ' * 1000000)|wordwrap(1, true, 'x' * 100000)|length }}", "million"),
        ("{# " + "x" * (1 << 20) + " #}", "longer than 1 MiB"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
    ],
)
def test_a_template_that_would_go_on_for_ever_is_given_up(smollm2, monkeypatch, source, told):
    seconds = 0.05 if "longer" in told else 0.5  # the first is used up, the second should not be
    monkeypatch.setattr("agentlite.rendering.chat_template.SECONDS", seconds)
    template = Template("planted", smollm2.tokenizer, source, {})
    with pytest.raises(UserError, match=told):
        template.render([{"role": "user", "content": "x"}])


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ 'a'.ljust(5) }}|{{ 'a'|center(5) }}|{{ 'a\nb'|indent(2) }}", "a    |  a  |a\n  b"),
        (
            "{{ ['a', 'b']|join(', ') }} {{ ', '.join(['a', 'b']) }} {{ [{'n': 1}, {'n': "
            "2}]|join('+', attribute='n') }}",
            "a, b a, b 1+2",
        ),
        ("{{ 'aXb'|replace('X', '--') }} {{ 'aXbX'.replace('X', '', 1) }}", "a--b abX"),
        (
            "{{ 12345678901 % 1000 }} {{ 'id %d' % 123456789012 }} {{ '{} {x}'.format(1, "
            "x=123456789012) }}",
            "901 id 123456789012 1 123456789012",
        ),
        ("{{ {'a': 1}|tojson(indent=2) }}", '{\n  "a": 1\n}'),
        (
            "{% for a in [{'v': 1, 'c': [{'v': 2, 'c': []}]}] recursive %}{{ a.v }}{{ loop(a.c) "
            "}}{% endfor %}",
            "12",
        ),
    ],
)
def test_what_makes_texts_longer_does_what_it_did(smollm2, source, text):
    assert (
        Template("plain", smollm2.tokenizer, source, {}).render([{"role": "user", "content": "x"}])
        == text
    )


def test_loops_know_where_they_are(smollm2):
    source = (
        "{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ ',' if not loop.last "
        "}}{% endfor %}"
    )
    source += "{% for x in not_there %}z{% endfor %}"
    template = Template("loops", smollm2.tokenizer, source, {})
    assert template.render([{"role": "user", "content": "x"}] * 3) == "1/3,2/3,3/3"
    assert template.render([{"role": "user", "content": "x"}] * 1200).endswith(",1200/1200")


def test_an_adapter_is_not_used_on_other_weights_than_it_was_trained_on(tmp_path, tiny_model):
    base = Path(shutil.copytree(tiny_model, tmp_path / "base"))
    made = find_model(str(base), tmp_path)
    for name, model, digest in (
        ("sft", str(base), made.digest),
        ("dpo", "sft", f"{made.digest[:16]}+0123"),
    ):
        plan = Plan(name, {"model": model}, {"model": digest})
        with open_stage(tmp_path / name, plan, force=False) as stage:
            (tmp_path / name / "adapter").mkdir()
            (tmp_path / name / "adapter" / "adapter_model.safetensors").write_bytes(b"1")
            stage.finish(["adapter/adapter_model.safetensors"], {})
    assert find_model("dpo", tmp_path).base == str(base)
    for file in ("model.safetensors", "chat_template.jinja"):
        content = (base / file).read_bytes()
        (base / file).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        for name in ("sft", "dpo"):
            with pytest.raises(UserError, match="was trained on other weights") as told:
                find_model(name, tmp_path)
            assert told.value.exit_code == 3 and str(base) in told.value.problem
        (base / file).write_bytes(content)
    assert find_model("dpo", tmp_path).base == str(base)
