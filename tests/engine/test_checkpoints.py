"""Checkpoints: what is not whole is named and never loaded, and no code in one is run."""

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.checkpoints import made
from support.trainers import losses, rows, sft, source

from agentlite.core.errors import DIVERGED, MODEL, UserError
from agentlite.engine import checkpoints, load_libraries
from agentlite.engine import sft as sft_trainer
from agentlite.workspace.input_files import content_digest


@pytest.fixture(scope="module")
def trained(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four steps, checkpoints of steps 2 and 4."""
    folder = tmp_path_factory.mktemp("trained")
    sft_trainer.train(source(tiny_model), sft(max_steps=4), folder, rows(), [])
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def edit(path: Path, **values: Any) -> None:
    path.write_text(
        json.dumps({**json.loads(path.read_text(encoding="utf-8")), **values}), encoding="utf-8"
    )


HARM: dict[str, tuple[Callable[[Path], object], str]] = {
    "a bit of the weights": (
        lambda one: flip(one / "adapter_model.safetensors"),
        "has changed since it was saved",
    ),
    "a bit of the optimizer": (
        lambda one: flip(one / "optimizer.pt"),
        "optimizer.pt has changed since it was saved",
    ),
    "a file too short": (
        lambda one: (one / "rng_state.pth").write_bytes(b"1"),
        "rng_state.pth has changed",
    ),
    "a file gone": (lambda one: (one / "scheduler.pt").unlink(), "has no scheduler.pt"),
    "two files swapped": (
        lambda one: shutil.copy(one / "scheduler.pt", one / "rng_state.pth"),
        "has changed since it was saved",
    ),
    "no list": (lambda one: (one / "manifest.json").unlink(), "has no manifest.json"),
    "half a list": (lambda one: (one / "manifest.json").write_text("{"), "cannot be read"),
    "an empty list": (lambda one: (one / "manifest.json").write_bytes(b""), "cannot be read"),
    "a list with more in it": (lambda one: edit(one / "manifest.json", more=1), "cannot be read"),
    "another run's": (lambda one: made(one, plan="0" * 16), "under another plan.json"),
}


@pytest.mark.parametrize("harm", HARM)
def test_what_is_not_whole_is_set_aside_by_name_and_the_one_before_taken(folder, harm, capsys):
    harmed = folder / "checkpoints" / "checkpoint-4"
    HARM[harm][0](harmed)
    assert checkpoints.newest_whole(folder) == folder / "checkpoints" / "checkpoint-2"
    told = capsys.readouterr().err
    assert HARM[harm][1] in told and "checkpoint-4.broken" in told
    assert not harmed.exists() and harmed.with_name("checkpoint-4.broken").is_dir()


def test_a_run_goes_on_from_the_one_before_and_ends_the_same(trained, folder, tiny_model, capsys):
    flip(folder / "checkpoints/checkpoint-4/optimizer.pt")
    sft_trainer.train(source(tiny_model), sft(max_steps=4), folder, rows(), [])
    assert "carrying on after step 2 of 4" in capsys.readouterr().err
    assert losses(folder) == losses(trained)
    weights = "adapter/adapter_model.safetensors"
    assert (folder / weights).read_bytes() == (trained / weights).read_bytes()


def test_without_a_whole_one_nothing_is_lost_by_itself(folder):
    for _ in range(2):  # nor the second time
        for path in (folder / "checkpoints").glob("checkpoint-*[0-9]"):
            flip(path / "adapter_model.safetensors")
        with pytest.raises(
            UserError, match=r"checkpoint-2\.broken, checkpoint-4\.broken"
        ) as caught:
            checkpoints.newest_whole(folder)
        assert caught.value.exit_code == MODEL and "--force" in caught.value.fix


def ruined(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """One weight becomes infinite in the update of that step, whose own loss is a number."""
    from transformers import Trainer

    step = Trainer.training_step

    def training_step(self: Any, *given: Any, **named: Any) -> Any:
        loss = step(self, *given, **named)
        if self.state.global_step == at - 1:
            weight = next(weight for weight in self.model.parameters() if weight.requires_grad)
            weight.data.fill_(float("inf"))
        return loss

    monkeypatch.setattr(Trainer, "training_step", training_step)


@pytest.mark.parametrize("dev", [0, 2])
@pytest.mark.parametrize(("at", "left"), [(4, [2]), (6, [2, 4])])
def test_weights_that_a_step_has_ruined_are_no_result(
    tiny_model, tmp_path, monkeypatch, at, left, dev
):
    ruined(monkeypatch, at)
    with pytest.raises(UserError, match=rf"not finite numbers since step {at}") as caught:
        sft_trainer.train(
            source(tiny_model), sft(max_steps=6, save_steps=2), tmp_path, rows(), rows()[:dev]
        )
    assert caught.value.exit_code == DIVERGED
    assert [checkpoints.step_of(path) for path in checkpoints.manifests(tmp_path)] == left
    assert checkpoints.newest_whole(tmp_path) is not None and not (tmp_path / "adapter").exists()


def test_a_checkpoint_holds_what_is_needed_and_says_it_in_one_order(trained):
    for checkpoint in checkpoints.manifests(trained):
        told = json.loads((checkpoint / "adapter_config.json").read_bytes())
        assert told["target_modules"] == sorted(told["target_modules"]) and [*told] == sorted(told)
        names = [path.name for path in checkpoint.iterdir()]
        assert not [name for name in names if name.startswith(("README", "token", "chat_template"))]
    assert not (trained / "checkpoints" / "README.md").exists()


class Planted:
    """What unpickling it runs: a file is made."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> Any:
        return (open, (str(self.mark), "w"))


READ = ["rng_state.pth", "optimizer.pt", "scheduler.pt", "adapter_model.bin"]


@pytest.mark.parametrize("how", ["pickle", "torch"])
@pytest.mark.parametrize("name", [*READ, "training_args.bin"])
def test_code_in_a_checkpoint_is_not_run(folder, tiny_model, tmp_path, name, how, monkeypatch):
    """Also where somebody has made its list anew to match."""
    mark = tmp_path / "was-run"
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    load_libraries("unsloth")
    newest = folder / "checkpoints" / "checkpoint-4"
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
            sft_trainer.train(source(tiny_model), sft(max_steps=6), folder, rows(), [])
        assert told.value.exit_code == MODEL
    else:  # of no use to a run that is carried on
        done = sft_trainer.train(source(tiny_model), sft(max_steps=6), folder, rows(), [])
        assert done["steps"] == 6
    assert not mark.exists()
    assert "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD" not in os.environ
