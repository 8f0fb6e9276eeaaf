"""An export without a model: folders that appear whole."""

import hashlib
import json

import pytest

from agentlite.core.errors import DISK, MODEL, UserError
from agentlite.deploy.export import move_into_place, partial_folder
from agentlite.deploy.export.exported_model import refuse_quantized
from agentlite.workspace.lookup import EXPORT, Source


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_folder_is_made_beside_the_target_and_gone_when_it_is_left(tmp_path):
    target = tmp_path / "a/b/model"
    (tmp_path / "a/b/.model.partial").mkdir(parents=True)
    (tmp_path / "a/b/.model.partial/old").write_bytes(b"of a run that was killed")
    with partial_folder(target) as aside:
        assert aside.parent == target.parent and list(aside.iterdir()) == []
    assert list(target.parent.iterdir()) == []
    with pytest.raises(UserError, match="no more room") as refused, partial_folder(target):
        raise OSError(28, "no more room")
    assert refused.value.exit_code == DISK and list(target.parent.iterdir()) == []
    with pytest.raises(KeyboardInterrupt), partial_folder(target):
        raise KeyboardInterrupt
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize("earlier", [False, True])
def test_an_export_is_put_whole_into_the_place_of_the_one_before(tmp_path, earlier):
    target = tmp_path / "model"
    if earlier:
        target.mkdir()
        (target / "gone").write_bytes(b"of before")
    with partial_folder(target) as aside:
        (aside / "b").write_bytes(b"B")
        (aside / "a").write_bytes(b"A")
        (aside / "b").chmod(0o600)
        move_into_place(aside, target, aside / EXPORT, {"kind": "merged"})
    assert sorted(path.name for path in target.iterdir()) == ["a", "b", "export.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    mark = json.loads((target / "export.json").read_bytes())
    assert mark == {"kind": "merged", "outputs": {"a": sha256(b"A"), "b": sha256(b"B")}}
    mode = (target / "export.json").stat().st_mode
    assert {path.stat().st_mode for path in target.iterdir()} == {mode}


@pytest.mark.parametrize("config", ["{}", '{"quantization_config": null}'])
def test_plain_weights_take_an_adapter_and_quantized_ones_do_not(tmp_path, config):
    source = Source("m", str(tmp_path), None, "d")
    (tmp_path / "config.json").write_text(config, encoding="utf-8")
    refuse_quantized(source)
    text = '{"quantization_config": {"bits": 4}}'
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match="are quantized") as refused:
        refuse_quantized(source)
    assert refused.value.exit_code == MODEL
