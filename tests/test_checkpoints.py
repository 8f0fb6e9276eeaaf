"""Checkpoints: what is not whole is named and never loaded, and a full disk costs a checkpoint, not the run."""

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from test_training import losses, rows, sft, source

from agentlite.engine import checkpoints, supervised, training
from agentlite.errors import DISK, MODEL, OTHER_PLAN, UserError


@pytest.fixture(scope="module")
def trained(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four steps, checkpoints of steps 2 and 4."""
    folder = tmp_path_factory.mktemp("trained")
    supervised.train(source(tiny_model), sft(max_steps=4), folder, rows(), [])
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def edit(path: Path, **values: Any) -> None:
    """As somebody would who does not know of the seal."""
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **values}), encoding="utf-8")


def made(checkpoint: Path, **values: Any) -> None:
    """As if it had been made so."""
    path = checkpoint / checkpoints.MANIFEST
    manifest = msgspec.json.decode(path.read_bytes(), type=checkpoints.Manifest)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(manifest, **values).sealed()))


HARM: dict[str, tuple[Callable[[Path], object], str]] = {
    "a bit of the weights": (lambda one: flip(one / "adapter_model.safetensors"), "is not as it was saved"),
    "a bit of the optimizer": (lambda one: flip(one / "optimizer.pt"), "optimizer.pt is not as it was saved"),
    "a file too short": (lambda one: (one / "rng_state.pth").write_bytes(b"1"), "rng_state.pth is not as"),
    "a file gone": (lambda one: (one / "scheduler.pt").unlink(), "has no scheduler.pt"),
    "two files swapped": (lambda one: shutil.copy(one / "scheduler.pt", one / "rng_state.pth"), "is not as it was"),
    "no list": (lambda one: (one / "manifest.json").unlink(), "has no manifest.json"),
    "half a list": (lambda one: (one / "manifest.json").write_text("{"), "cannot be read"),
    "an empty list": (lambda one: (one / "manifest.json").write_bytes(b""), "cannot be read"),
    "a list with more in it": (lambda one: edit(one / "manifest.json", more=1), "cannot be read"),
    "a list that was edited": (lambda one: edit(one / "manifest.json", step=3), "manifest.json is not as it was saved"),
    "another step's": (lambda one: made(one, step=3), "is that of step 3"),
    "another run's": (lambda one: made(one, plan="0" * 16), "under another plan.json"),
    "a file too many": (lambda one: (one / "more.safetensors").write_bytes(b"1"), "holds more.safetensors, which"),
}


@pytest.mark.parametrize("harm", HARM)
def test_what_is_not_whole_is_set_aside_by_name_and_the_one_before_taken(folder, harm, capsys):
    harmed = folder / "checkpoints" / "checkpoint-4"
    HARM[harm][0](harmed)
    assert checkpoints.newest(folder) == folder / "checkpoints" / "checkpoint-2"
    told = capsys.readouterr().err
    assert HARM[harm][1] in told and "checkpoint-4.broken" in told
    assert not harmed.exists() and harmed.with_name("checkpoint-4.broken").is_dir()


def test_without_a_whole_one_nothing_is_lost_by_itself(folder):
    for _ in range(2):  # nor the second time
        for path in (folder / "checkpoints").glob("checkpoint-*[0-9]"):
            flip(path / "adapter_model.safetensors")
        with pytest.raises(UserError, match=r"checkpoint-2\.broken, checkpoint-4\.broken") as caught:
            checkpoints.newest(folder)
        assert caught.value.exit_code == MODEL and "--force" in caught.value.fix


def test_a_run_goes_on_from_the_one_before_and_ends_the_same(tiny_model, folder, tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    supervised.train(source(tiny_model), sft(), whole, rows(), [])
    part = tmp_path / "part"
    part.mkdir()
    stopping = sft(save_steps=2)
    shutil.copytree(whole / "checkpoints", part / "checkpoints")
    shutil.copy(whole / "metrics.jsonl", part)
    last = sorted((part / "checkpoints").glob("checkpoint-*"), key=checkpoints.step_of)[-1]
    flip(last / "optimizer.pt")
    supervised.train(source(tiny_model), stopping, part, rows(), [])
    assert losses(part) == losses(whole)
    weights = "adapter/adapter_model.safetensors"
    assert (part / weights).read_bytes() == (whole / weights).read_bytes()


@pytest.mark.parametrize(("values", "code", "told"), [
    ({"trained": "0" * 16}, MODEL, "other parameters"),
    ({"versions": {"trl": "0.9.1"}}, OTHER_PLAN, "torch"),
])  # fmt: skip
def test_a_state_that_would_mean_something_else_is_refused(tiny_model, folder, values, code, told):
    for path in (folder / "checkpoints").glob("checkpoint-*"):
        made(path, **values)
    with pytest.raises(UserError, match=told) as caught:
        supervised.train(source(tiny_model), sft(max_steps=4), folder, rows(), [])
    assert caught.value.exit_code == code and "--force" in caught.value.fix


@pytest.mark.parametrize(("full_at", "code", "left"), [((2,), 0, [4, 6]), ((6,), DISK, [2, 4]), ((2, 4, 6), DISK, [])])
def test_a_full_disk_costs_the_checkpoint_and_not_the_run(tiny_model, tmp_path, monkeypatch, full_at, code, left):
    listed = checkpoints._listed

    def full(made: Path) -> Any:
        if checkpoints.step_of(made) in full_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        return listed(made)

    monkeypatch.setattr(checkpoints, "_listed", full)
    if code:
        with pytest.raises(UserError, match="carries on") as caught:
            supervised.train(source(tiny_model), sft(), tmp_path, rows(), [])
        assert caught.value.exit_code == code
    else:
        supervised.train(source(tiny_model), sft(), tmp_path, rows(), [])
    assert [checkpoints.step_of(path) for path in checkpoints.manifests(tmp_path)] == left
    assert not (tmp_path / "checkpoints" / checkpoints.ASIDE).exists()
    monkeypatch.undo()
    supervised.train(source(tiny_model), sft(), tmp_path, rows(), [])
    assert [step for step, *_ in losses(tmp_path)] == [1, 2, 3, 4, 5, 6]


def test_no_room_is_seen_before_the_save_is_begun(tiny_model, tmp_path, monkeypatch, capsys):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(UserError, match="the disk is full"):  # the first save does not know how much it needs
        supervised.train(source(tiny_model), sft(), tmp_path, rows(), [])
    assert "no room for the checkpoint of step 4; going on" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "checkpoints").glob("*") if path.is_dir()] == ["checkpoint-2"]


def test_a_state_that_is_no_number_is_never_a_checkpoint(tiny_model, tmp_path, capsys):
    with pytest.raises(UserError, match="finite"):
        supervised.train(source(tiny_model), sft(learning_rate=1e30, max_steps=12, save_steps=1), tmp_path, rows(), [])
    lost = [row for row in losses(tmp_path) if row[1] != row[1]]
    assert "no finite number" in capsys.readouterr().err
    assert all(checkpoints.step_of(path) < (lost[0][0] if lost else 12) for path in checkpoints.manifests(tmp_path))


def test_the_checkpoint_of_a_later_version_is_refused_naming_it_and_left_where_it_is(folder):
    newest = folder / "checkpoints" / "checkpoint-4"
    edit(newest / "manifest.json", more=1, versions={"agentlite": "9.1.0"})
    with pytest.raises(UserError, match=r"agentlite 9\.1\.0") as caught:
        checkpoints.newest(folder)
    assert caught.value.exit_code == OTHER_PLAN and newest.is_dir()


def test_a_folder_that_vanishes_while_it_is_trained_is_not_made_again(tiny_model, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.setattr(training, "_refuse_divergence", lambda *_: folder.exists() and folder.rename(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError):
        supervised.train(source(tiny_model), sft(max_steps=4), folder, rows(), [])
    assert not folder.exists()
