"""All weights: the result is a model like any other."""

from pathlib import Path
from typing import Any

import pytest
from support.samples import DATA

import agentlite

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
