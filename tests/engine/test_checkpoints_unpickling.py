"""A checkpoint is data: what is loaded of it runs no code, also where somebody made its list anew
to match.
"""

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from support.checkpoints import made
from support.trainers import rows, sft, source

from agentlite.core.errors import MODEL, UserError
from agentlite.engine import checkpoints, load_libraries
from agentlite.engine import sft as sft_trainer
from agentlite.workspace.digests import content_digest


class Planted:
    """What unpickling it runs: a file is made."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> Any:
        return (open, (str(self.mark), "w"))


@pytest.fixture(scope="module")
def trained_once(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps of four, and the checkpoint of the second."""
    folder = tmp_path_factory.mktemp("pickles")
    sft_trainer.train(source(tiny_model), sft(max_steps=2), folder, rows(), [])
    return folder


READ = ["rng_state.pth", "optimizer.pt", "scheduler.pt", "adapter_model.bin"]


@pytest.mark.parametrize("how", ["pickle", "torch"])
@pytest.mark.parametrize("name", [*READ, "training_args.bin"])
def test_code_in_a_checkpoint_is_not_run(
    trained_once: Path, tiny_model: Path, tmp_path, name, how, monkeypatch
):
    folder, mark = Path(shutil.copytree(trained_once, tmp_path / "run")), tmp_path / "was-run"
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    load_libraries("unsloth")
    newest = folder / "checkpoints" / "checkpoint-2"
    planted = newest / name
    if how == "torch":
        torch.save({"planted": Planted(mark)}, planted)
    else:
        planted.write_bytes(pickle.dumps(Planted(mark)))
    if name == "adapter_model.bin":
        (newest / "adapter_model.safetensors").unlink()
    files = {
        path.relative_to(newest).as_posix(): (path.stat().st_size, content_digest(path))
        for path in newest.rglob("*")
        if path.is_file() and path.name != checkpoints.MANIFEST
    }
    made(newest, files=files)
    if name in READ:
        with pytest.raises(UserError, match="contains code") as told:
            sft_trainer.train(source(tiny_model), sft(max_steps=4), folder, rows(), [])
        assert told.value.exit_code == MODEL
    else:  # of no use to a run that is carried on
        assert (
            sft_trainer.train(source(tiny_model), sft(max_steps=4), folder, rows(), [])["steps"]
            == 4
        )
    assert not mark.exists()
    assert "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD" not in os.environ
