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
