"""The tokenizer read without torch is the model's own, and a template's facts are found by asking
it.
"""

import json
import subprocess
import sys

import pytest
from support.samples import with_template

from agentlite.rendering import choose
from agentlite.rendering.template import TOOLS, Template, read_template


def test_the_ids_are_those_of_smollm2(smollm2):
    assert smollm2.token_id("<|endoftext|>") == 0
    assert smollm2.token_id("<|im_start|>") == 1
    assert smollm2.token_id("<|im_end|>") == 2
    assert smollm2.turn_end == "<|im_end|>"
    assert smollm2.encode("<|im_start|>user\nhi<|im_end|>")[0] == 1  # and no bos before it


@pytest.mark.parametrize("named", [("default", "tool_use"), ("default",), ("tool_use",)])
def test_of_named_templates_tool_use_is_taken_where_tools_are_given(named, smollm2, tmp_path):
    sources = {"default": smollm2.source, "tool_use": with_template(smollm2, "tools").source}
    # as Hermes 3's, it wants tools: without any it fails
    sources["tool_use"] = "{{ 'x' if tools else raise_exception('none') }}" + sources["tool_use"]
    smollm2.tokenizer.save(str(tmp_path / "tokenizer.json"))
    listed = [{"name": name, "template": sources[name]} for name in named]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": listed}))
    template, messages = read_template("named", tmp_path), [{"role": "user", "content": "Hi"}]
    for tools in ([], TOOLS):
        name = "tool_use" if tools and "tool_use" in named else named[0]
        alone = Template("m", smollm2.tokenizer, sources[name], {})
        if name == "tool_use" and not tools:
            continue
        assert template.render(messages, tools) == alone.render(messages, tools)
    if "default" in named:
        assert choose("auto", template).setting == ("chat" if len(named) == 2 else "hermes")


@pytest.mark.long
def test_prep_reads_a_tokenizer_without_torch_or_transformers():
    program = (
        "import sys; from agentlite.workspace.input_files import load_template; "
        "load_template('smollm2-135m').encode('x')\n"
        "assert not {'torch', 'transformers', 'numpy', 'gguf'} & set(sys.modules), "
        "sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
