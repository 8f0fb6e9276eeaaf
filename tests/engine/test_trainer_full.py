"""All weights: the result is a model like any other, its reference is the start, and what cannot
work is said first.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from support.samples import DATA

import agentlite
from agentlite.config.settings import SftSettings
from agentlite.core.errors import UserError
from agentlite.engine import deepspeed, training_log
from agentlite.workspace.model_source import Source, find_model, load_template

ROWS = str(DATA / "weather.jsonl")
SHORT: dict[str, Any] = {
    "max_steps": 2,
    "batch_size": 2,
    "gradient_accumulation": 1,
    "warmup_ratio": 0.0,
    "profile": "cpu",
}


@pytest.fixture(scope="module")
def run(tiny_model, tmp_path_factory):
    """A workspace with a prep and an sft of all weights by plain transformers."""
    run = str(tmp_path_factory.mktemp("full") / "run")
    agentlite.prep(ROWS, run=run, model=str(tiny_model), seed=3, profile="cpu")
    agentlite.sft(run=run, full=True, engine="hf", learning_rate=1e-2, **SHORT)
    return run


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def test_the_result_is_a_model_folder_whose_weights_all_moved(run, tiny_model):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = Path(run) / "sft" / "model"
    assert not (folder.parent / "adapter").exists()
    before, after = weights(tiny_model), weights(folder)
    assert before.keys() == after.keys()
    assert all(not before[name].equal(after[name]) for name in before)
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert all(value.equal(loaded.state_dict()[name]) for name, value in after.items())
    assert AutoTokenizer.from_pretrained(folder).chat_template
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (folder / name).read_bytes() == (tiny_model / name).read_bytes()


def test_every_later_command_takes_it_as_a_model(run, tiny_model):
    source = find_model("sft", Path(run))
    assert source.adapter is None
    assert load_template(source.base).turn_end == load_template(str(tiny_model)).turn_end
    agentlite.evaluate(run=run, model="sft", max_new_tokens=2, profile="cpu")
    agentlite.pairs(
        run=run, model="sft", num_samples=2, max_new_tokens=2, gold=True, margin=0, profile="cpu"
    )
    adapted = agentlite.dpo(run=run, model="sft", lora_r=4, out="dpo-lora", **SHORT)
    assert adapted.figures["lineage"] == [str(tiny_model), "sft", "dpo-lora"]
    assert json.loads((Path(run) / "dpo-lora/adapter/adapter_config.json").read_bytes())["r"] == 4


@pytest.mark.parametrize("engine", ["unsloth", "hf"])
def test_dpo_and_grpo_start_from_their_reference(engine, run):
    for command in (agentlite.dpo, agentlite.grpo):
        given = {"group_size": 2, "max_new_tokens": 4} if command is agentlite.grpo else {}
        done = command(
            run=run,
            model="sft",
            full=True,
            engine=engine,
            learning_rate=1e-2,
            out=f"{command.__name__}-{engine}",
            **given,
            **SHORT,
        )
        first, second = training_log.logged(Path(done.folder))
        if command is agentlite.dpo:
            assert first["loss"] == pytest.approx(0.693147, abs=1e-5)
            assert second["chosen_reward"] != 0
        else:
            assert first["kl"] == pytest.approx(0, abs=1e-6)
        assert (Path(done.folder) / "model" / "model.safetensors").exists()


def test_unsloth_and_transformers_train_the_same(run):
    done = agentlite.sft(
        run=run, full=True, engine="unsloth", learning_rate=1e-2, out="unsloth", **SHORT
    )
    theirs, ours = (training_log.logged(Path(one)) for one in (done.folder, f"{run}/sft"))
    assert [row["loss"] for row in theirs] == pytest.approx([row["loss"] for row in ours], rel=1e-5)


WHOLE, ADAPTER = Source("m", "m", None, ""), Source("sft", "m", Path("sft/adapter"), "")
SHARED = {"engine": "hf", "deepspeed": "deepspeed/zero2.json"}


@pytest.mark.parametrize(
    ("given", "source", "said", "mended"),
    [
        ({"full": True, "load_in_4bit": True}, WHOLE, "4 bit", "--load-in-4bit false"),
        ({"full": True, "load_in_8bit": True}, WHOLE, "8 bit", "--load-in-8bit false"),
        ({"full": True}, ADAPTER, "sft is an adapter", "--model m"),
        ({**SHARED, "load_in_4bit": True}, WHOLE, "4 bit", "--load-in-4bit false"),
        ({"deepspeed": "deepspeed/zero2.json"}, WHOLE, "not unsloth", "--engine hf"),
        (
            {**SHARED, "deepspeed": "deepspeed/zero9.json"},
            WHOLE,
            "cannot be read",
            "zero3_offload.json",
        ),
        (SHARED, WHOLE, "needs a launcher", "torchrun --nproc_per_node 2"),
    ],
)
def test_what_cannot_work_is_refused_with_what_can(given, source, said, mended, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(UserError) as told:
        deepspeed.refuse_unfit("sft", SftSettings(**given), source)
    assert said in str(told.value) and mended in told.value.fix
    assert told.value.exit_code == 2
    if "cannot be read" not in said:
        assert told.value.location == ("sft.full" if "full" in given else "sft.deepspeed")


def refused(command: str, settings: Any) -> str:
    with pytest.raises(UserError) as told:
        deepspeed.refuse_unfit(command, settings, WHOLE)
    return str(told.value)


def test_weighed_tokens_and_zero_3_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    deepspeed.refuse_unfit("sft", SftSettings(**SHARED, segment_weights="hermes"), WHOLE)
    settings = SftSettings(engine="hf", deepspeed="deepspeed/zero3.json", segment_weights="hermes")
    assert "zero2.json" in refused("sft", settings)
