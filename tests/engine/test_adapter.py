"""Which layers may have an adapter, as far as it needs no model."""

import pytest

from agentlite.config.resolve import Given, resolve
from agentlite.core.errors import UserError
from agentlite.engine.refusals import of_embeddings, refuse


def settings(command="sft", **flags):
    return resolve(command, Given(flags, profile="cpu")).settings


@pytest.mark.parametrize("command", ["sft", "dpo", "grpo"])
@pytest.mark.parametrize(
    "targets", [("all",), ("embed_tokens",), ("lm_head",), ("q_proj", "embed_tokens")]
)
def test_an_adapter_on_the_embeddings_is_refused_where_they_would_be_trained_whole(
    command, targets
):
    asked = settings(command, lora_target_modules=targets)
    with pytest.raises(UserError, match="would train them whole") as error:
        refuse(command, of_embeddings(asked))
    assert error.value.location == f"{command}.lora_target_modules"
    assert "--engine hf" in error.value.fix
    by_hf = settings(command, lora_target_modules=targets, engine="hf")
    refuse(command, of_embeddings(by_hf))


def test_the_recipe_that_asks_for_it_names_the_engine_that_has_it():
    given = Given(files=("recipes/seed-004.yaml",), profile="gpu")
    recipe = resolve("sft", given).settings
    assert recipe.lora_target_modules == ("all",)
    refuse("sft", of_embeddings(recipe))


@pytest.mark.torch
def test_the_reference_is_a_frozen_copy_also_of_an_adapter_on_the_embeddings(tiny_model):
    """With and without a copy that TRL has begun, which leaves the embeddings out."""
    import torch
    from support.trainers import sft, source

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
