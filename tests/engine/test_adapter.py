"""What an adapter may be on, and that one writes marks that its base was never trained on."""

import os
import shutil

import pytest
from support.examples import ALL
from support.trainers import TOOL, records, rows, sft, source

from agentlite.config.resolve import UserSettings, resolve
from agentlite.core.errors import UserError
from agentlite.engine.refusals import embedding_cases, refuse
from agentlite.rendering import choose, prompts_of
from agentlite.workspace.input_files import load_template


def settings(command="sft", **flags):
    return resolve(command, UserSettings(flags, profile="cpu")).settings


@pytest.mark.parametrize("command", ["sft", "dpo", "grpo"])
@pytest.mark.parametrize(
    "targets", [("all",), ("embed_tokens",), ("lm_head",), ("q_proj", "embed_tokens")]
)
def test_an_adapter_on_the_embeddings_is_refused_where_they_would_be_trained_whole(
    command, targets
):
    asked = settings(command, lora_target_modules=targets)
    with pytest.raises(UserError, match="would train them whole") as error:
        refuse(command, embedding_cases(asked))
    assert error.value.location == f"{command}.lora_target_modules"
    assert "--engine hf" in error.value.fix
    by_hf = settings(command, lora_target_modules=targets, engine="hf")
    refuse(command, embedding_cases(by_hf))


def test_the_recipe_that_asks_for_it_names_the_engine_that_has_it():
    given = UserSettings(files=("recipes/seed-004.yaml",), profile="gpu")
    recipe = resolve("sft", given).settings
    assert recipe.lora_target_modules == ("all",)
    refuse("sft", embedding_cases(recipe))


@pytest.mark.torch
def test_the_reference_is_a_frozen_copy_also_of_an_adapter_on_the_embeddings(tiny_model):
    """With and without a copy that TRL has begun, which leaves the embeddings out."""
    import torch

    from agentlite.engine.adapter import add_adapter, keep_reference
    from agentlite.engine.load import load, loading_of

    chosen = sft(lora_target_modules=("all",), engine="hf")
    for begun in (False, True):
        loaded = load(source(tiny_model), loading_of(chosen), trainable=True)
        model = add_adapter(loaded, chosen)
        if begun:
            model.add_adapter("ref", model.peft_config["default"])
        model.set_adapter("default")
        with torch.no_grad():
            for weight in model.parameters():
                if weight.requires_grad:
                    weight.normal_()
        keep_reference(model)
        weights = dict(model.named_parameters())
        copies = [name for name in weights if "ref" in name.split(".")]
        assert sum("lora_embedding_" in name for name in copies) == 2
        assert len(copies) == sum("default" in name.split(".") for name in weights)
        for name in copies:
            start = weights[name.replace(".ref", ".default")]
            assert torch.equal(weights[name], start) and start.requires_grad
            assert not weights[name].requires_grad
        dropout = {name: module.p for name, module in model.named_modules() if hasattr(module, "p")}
        assert {rate for name, rate in dropout.items() if "ref" in name.split(".")} <= {0.0}
        assert 0.1 in dropout.values()


@pytest.mark.slow
@pytest.mark.skipif(not ALL, reason="trains the real model for minutes: with --all")
@pytest.mark.parametrize(("peft", "read"), [({}, 10), ({"trainable_token_indices": None}, 0)])
def test_a_mark_is_written_where_its_row_is_trained(tmp_path, peft, read):
    """SmolLM2 with `<tool_call>` in the place of a token that it was never trained on: in how many
    of ten answers to new questions a call can be read.
    """
    import torch

    from agentlite.engine.load import load_for_inference, loading_of, weights_folder
    from agentlite.engine.sft import train

    base = tmp_path / "base"
    shutil.copytree(weights_folder("smollm2-135m"), base, copy_function=os.symlink)
    text = (base / "tokenizer.json").read_text()
    (base / "tokenizer.json").unlink()
    text = text.replace('"<jupyter_start>"', '"<tool_call>"')
    (base / "tokenizer.json").write_text(text.replace('"<jupyter_text>"', '"</tool_call>"'))
    how = sft(gradient_accumulation=1, max_steps=20, learning_rate=1e-3, peft=peft)
    train(source(base), how, tmp_path, rows(str(base)), [])
    model = load_for_inference(source(base, tmp_path / "adapter"), loading_of(how)).model
    template, calls = load_template(str(base)), 0
    mixture = choose("hermes", template)
    asked = records(["Riga", "Turin", "Quito", "Seoul", "Basel"] * 2)
    for prompt in prompts_of(asked, mixture.protocol_of, template):
        ids = model.generate(torch.tensor([prompt.ids]), max_new_tokens=30, do_sample=False)
        answer = template.decode(ids[0, len(prompt.ids) :].tolist())
        calls += bool(mixture.protocols["hermes"].read(answer, [TOOL]).calls)
    assert calls == read
