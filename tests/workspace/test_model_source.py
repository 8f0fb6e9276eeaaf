"""A model that brings code of its own, or a pickle, is refused, and no code is run."""

import json
import pickle
import shutil
from pathlib import Path

import pytest

from agentlite.core.errors import MODEL, UserError
from agentlite.engine.load import Loading, load
from agentlite.workspace.lookup import Source, find_model


@pytest.mark.parametrize("engine", ["unsloth", "hf"])
def test_code_that_comes_with_a_model_is_not_run(
    tiny_model: Path, tmp_path: Path, engine: str, monkeypatch
):
    folder, mark = tmp_path / "planted", tmp_path / "was-run"
    folder.mkdir()
    for file in tiny_model.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    classes = {"AutoConfig": "planted.Config", "AutoModelForCausalLM": "planted.Model"}
    (folder / "config.json").write_text(
        json.dumps({**config, "model_type": "planted", "auto_map": classes})
    )
    (folder / "planted.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    monkeypatch.setattr("sys.stdin", open("/dev/zero"))  # noqa: SIM115  (would say yes to nothing for ever)
    with pytest.raises(UserError) as caught:
        load(Source("planted", str(folder), None, ""), Loading(engine, 256), trainable=False)
    assert caught.value.exit_code == MODEL
    assert not mark.exists() and "its own code" in str(caught.value)


def changed(config: Path, **values: object) -> None:
    config.write_text(json.dumps({**json.loads(config.read_text()), **values}), encoding="utf-8")


@pytest.mark.parametrize(
    "values",
    [
        {"_attn_implementation_internal": "someone/kernel"},
        {"_experts_implementation_internal": "x"},
        {"attn_implementation": "someone/kernel"},
        {"text_config": {"layers": [{"_attn_implementation": "a/b@main:c"}]}},
        {"attn_implementation": {"text": "someone/kernel"}},
    ],
)
def test_a_config_that_names_code_is_refused_before_anything_is_loaded(
    tiny_model, tmp_path, values
):
    folder = Path(shutil.copytree(tiny_model, tmp_path / "model"))
    changed(
        folder / "config.json", attn_implementation="sdpa", auto_map={}, quantization_config=None
    )
    assert find_model(str(folder), tmp_path).base == str(folder)
    changed(folder / "config.json", **values)
    with pytest.raises(UserError, match="never runs a model's own code") as told:
        find_model(str(folder), tmp_path)
    assert told.value.exit_code == MODEL and told.value.location.endswith("config.json")


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth", "model.pkl"]
)
def test_weights_in_a_pickle_are_refused_with_how_to_convert_them(tiny_model, tmp_path, name):
    folder = Path(shutil.copytree(tiny_model, tmp_path / "model"))
    (folder / name).write_bytes(pickle.dumps({}))
    assert find_model(str(folder), tmp_path).base == str(
        folder
    )  # beside safetensors nobody reads it
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="pickle") as told:
        find_model(str(folder), tmp_path)
    assert told.value.exit_code == MODEL and "save_pretrained" in told.value.fix


@pytest.mark.parametrize("engine", ["unsloth", "hf"])
def test_no_pickle_is_loaded_where_safetensors_lie_beside_it_under_another_name(
    tiny_model, tmp_path, engine
):
    folder = Path(shutil.copytree(tiny_model, tmp_path / "model"))
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({}))
    with pytest.raises(UserError, match=r"safetensors"):
        load(find_model(str(folder), tmp_path), Loading(engine, 256), trainable=False)
