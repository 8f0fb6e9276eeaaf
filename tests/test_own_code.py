"""A model that brings code of its own is refused, and the code is not run."""

import json
from pathlib import Path

import pytest

from agentlite.engine.loading import Loading, load
from agentlite.errors import MODEL, UserError
from agentlite.templates import Source


@pytest.mark.parametrize("engine", ["unsloth", "hf"])
def test_code_that_comes_with_a_model_is_not_run(tiny_model: Path, tmp_path: Path, engine: str, monkeypatch):
    folder, mark = tmp_path / "planted", tmp_path / "was-run"
    folder.mkdir()
    for file in tiny_model.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    classes = {"AutoConfig": "planted.Config", "AutoModelForCausalLM": "planted.Model"}
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "planted", "auto_map": classes}))
    (folder / "planted.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    monkeypatch.setattr("sys.stdin", open("/dev/zero"))  # noqa: SIM115  (would say yes to nothing for ever)
    with pytest.raises(UserError) as caught:
        load(Source("planted", str(folder), None, ""), Loading(engine, 256), trainable=False)
    assert caught.value.exit_code == MODEL
    assert not mark.exists() and "code of its own" in str(caught.value)
