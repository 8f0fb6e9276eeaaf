"""All weights: the result is a model like any other, its reference is the start, and what cannot
work is said first.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.samples import DATA

import agentlite
from agentlite.config.resolve import Given, config_folder, resolve
from agentlite.config.settings import GrpoSettings, SftSettings
from agentlite.core import distributed
from agentlite.core.errors import UserError
from agentlite.engine import deepspeed, training_log
from agentlite.workspace.model_source import Source, find_model, load_template
from agentlite.workspace.run_folder import finished, read_plan

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


def test_a_changed_file_of_the_result_is_noticed(run):
    done = finished(Path(run) / "sft", "sft")
    assert {
        "model/model.safetensors",
        "model/config.json",
        "model/tokenizer.json",
    } <= done.outputs.keys()
    assert read_plan(Path(run) / "sft").settings["full"] is True


def test_all_weights_get_a_tenth_of_an_adapters_learning_rate_unless_told(run):
    settings, origin = resolve(
        "sft",
        Given({"full": True}, profile="cpu"),
        deepspeed.inherited("sft", SftSettings(full=True)),
    )
    assert (settings.learning_rate, origin["learning_rate"]) == (pytest.approx(2e-5), "--full")
    told, _ = resolve(
        "sft",
        Given({"full": True, "learning_rate": 1e-4}, profile="cpu"),
        deepspeed.inherited("sft", settings),
    )
    assert told.learning_rate == 1e-4


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


def test_numbers_of_processes_that_disagree_are_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "one of 2 processes" in refused("sft", SftSettings())
    assert "grpo runs in one process" in refused("grpo", GrpoSettings(**SHARED))
    path = tmp_path / "own.json"
    settings = SftSettings(engine="hf", deepspeed=str(path), batch_size=2, gradient_accumulation=3)
    for sizes, said in (
        ({"train_batch_size": 24}, "Start 4 processes"),
        ({"train_batch_size": 7}, 'Better set it to "auto"'),
        ({"train_micro_batch_size_per_gpu": 1}, "batch_size: is 2"),
        ({"gradient_accumulation_steps": 1}, "gradient_accumulation: is 3"),
    ):
        path.write_text(json.dumps(sizes), encoding="utf-8")
        assert said in refused("sft", settings)
    path.write_text(
        json.dumps({"train_batch_size": 12, "train_micro_batch_size_per_gpu": 2}), encoding="utf-8"
    )
    deepspeed.refuse_unfit("sft", settings, WHOLE)


def test_weighed_tokens_and_zero_3_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    deepspeed.refuse_unfit("sft", SftSettings(**SHARED, segment_weights="hermes"), WHOLE)
    settings = SftSettings(engine="hf", deepspeed="deepspeed/zero3.json", segment_weights="hermes")
    assert "zero2.json" in refused("sft", settings)


def test_deepspeed_that_is_not_installed_is_said(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "agentlite[deepspeed]" in refused("sft", SftSettings(**SHARED))


@pytest.mark.parametrize("name", ["zero2", "zero2_offload", "zero3", "zero3_offload"])
def test_offload_without_a_compiler_is_refused(name, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("CXX", "no-such-compiler")
    settings = SftSettings(engine="hf", deepspeed=f"deepspeed/{name}.json")
    if "offload" in name:
        assert "no C++ compiler" in refused("sft", settings)
    else:
        deepspeed.refuse_unfit("sft", settings, WHOLE)


def test_the_kernel_that_is_compiled_and_a_lock_that_was_left_are_reported(tmp_path, capsys):
    deepspeed.note_kernel(tmp_path)
    assert "compiling DeepSpeed's kernel" in capsys.readouterr().err
    (tmp_path / "lock").touch()  # this moment: by another process of this run
    deepspeed.note_kernel(tmp_path)
    assert "rm " not in capsys.readouterr().err
    os.utime(tmp_path / "lock", (0, 0))
    deepspeed.note_kernel(tmp_path)
    assert f"rm {tmp_path / 'lock'}" in capsys.readouterr().err
    (tmp_path / "lock").unlink()
    (tmp_path / "cpu_adam.so").touch()
    deepspeed.note_kernel(tmp_path)
    assert capsys.readouterr().err == ""


def test_a_card_without_bfloat16_trains_an_adapter_but_not_all_weights(monkeypatch, tmp_path):
    monkeypatch.setattr(deepspeed, "gpu_has_bf16", lambda: False)
    deepspeed.refuse_unfit("sft", SftSettings(), WHOLE)
    assert "Leave --full out" in refused("sft", SftSettings(full=True))
    monkeypatch.setenv("WORLD_SIZE", "2")
    deepspeed.refuse_unfit(
        "sft", SftSettings(full=True, **SHARED), WHOLE
    )  # in float16, beside weights in float32
    path = tmp_path / "own.json"
    path.write_text('{"bf16": {"enabled": true}}', encoding="utf-8")
    assert "bfloat16" in refused("sft", SftSettings(engine="hf", deepspeed=str(path)))


def test_the_shipped_files_of_deepspeed_leave_every_size_to_us():
    names = [path.name for path in (config_folder() / "deepspeed").iterdir()]
    assert sorted(names) == ["zero2.json", "zero2_offload.json", "zero3.json", "zero3_offload.json"]
    for name in names:
        content = deepspeed.read(f"deepspeed/{name}")
        sizes = (
            "train_batch_size",
            "train_micro_batch_size_per_gpu",
            "gradient_accumulation_steps",
        )
        assert [content[size] for size in sizes] == ["auto"] * 3
        assert content["zero_optimization"]["stage"] == int(name[4])
        assert ("offload_optimizer" in content["zero_optimization"]) == ("offload" in name)


def test_one_process_is_the_first_of_one(monkeypatch):
    for name in ("WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    assert (distributed.count(), distributed.first()) == (1, True)
