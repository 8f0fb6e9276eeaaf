"""The tokenizer read without torch is the model's own, and a template's facts are found by asking
it.
"""

import subprocess
import sys

import pytest
from support.samples import with_template


def test_the_ids_are_those_of_smollm2(smollm2):
    assert smollm2.token_id("<|endoftext|>") == 0
    assert smollm2.token_id("<|im_start|>") == 1
    assert smollm2.token_id("<|im_end|>") == 2
    assert smollm2.turn_end == "<|im_end|>"
    assert smollm2.encode("<|im_start|>user\nhi<|im_end|>")[0] == 1  # and no bos before it


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
