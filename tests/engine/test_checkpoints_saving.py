"""The order of a save and rotation, by a trainer without a model."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.engine import checkpoints


class Trainer:
    """Writes two small files where TRL's trainers write a checkpoint."""

    def __init__(self, folder: Path, dev_loss: Callable[[int], float | None] = lambda step: None):
        self.folder, self.model = folder, SimpleNamespace()
        self.state = SimpleNamespace(global_step=0)
        self.processing_class: str | None = "tokenizer"
        checkpoints.take_over_saving(self, folder, lambda step: (True, dev_loss(step)))

    def _get_output_dir(self, trial: Any) -> str:
        return str(self.folder / "checkpoints")

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        target = Path(self._get_output_dir(trial)) / f"checkpoint-{self.state.global_step}"
        target.mkdir()
        assert self.processing_class is None, "it would be written into each checkpoint"
        (target / "weights").write_bytes(b"1" * 400)
        (target / "optimizer").write_bytes(b"2" * 600)

    def save(self, *steps: int) -> None:
        for step in steps:
            self.state.global_step = step
            self._save_checkpoint(None, None)


def steps_of(folder: Path) -> list[int]:
    return [checkpoints.step_of(path) for path in checkpoints.manifests(folder)]


def test_a_manifest_says_what_was_saved(tmp_path: Path) -> None:
    for name in checkpoints.LOG_FILES:
        (tmp_path / name).write_text(name, encoding="utf-8")
    Trainer(tmp_path, lambda step: step / 8).save(3)
    ((path, manifest),) = checkpoints.manifests(tmp_path).items()
    assert (manifest.step, manifest.dev_loss, manifest.plan) == (3, 0.375, "")
    assert {name: size for name, (size, _) in manifest.files.items()} == {
        "weights": 400,
        "optimizer": 600,
        "logs/metrics.jsonl": 13,
        "logs/experience.jsonl": 16,
        "logs/rollouts.jsonl": 14,
        "logs/trajectories.jsonl": 18,
    }
    assert manifest.files["weights"][1] != manifest.files["optimizer"][1]
    assert checkpoints.newest_whole(tmp_path) == path


def test_files_are_synced_before_the_list_and_the_list_before_the_name(
    tmp_path: Path, disk_calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def recorded(self: Path, target: Path) -> Path:
        disk_calls.append(f"rename {self.name} {Path(target).name}")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", recorded)
    Trainer(tmp_path).save(3)
    named = disk_calls.index("rename checkpoint-3 checkpoint-3")
    manifest = next(n for n, call in enumerate(disk_calls) if call.endswith(" manifest.json"))
    files = [disk_calls.index(f"fsync {name}") for name in ("optimizer", "weights")]
    assert max(files) < manifest < named
    assert any(call.startswith("fsync ") and "manifest" in call for call in disk_calls[:named])
    assert "fsync checkpoints" in disk_calls[named:]


def test_the_newest_two_and_the_best_stay_and_a_step_made_again_replaces_the_first(
    tmp_path: Path,
) -> None:
    losses = {1: 0.9, 2: 0.4, 3: 0.4, 4: 0.6, 5: 0.7}
    trainer = Trainer(tmp_path, losses.__getitem__)
    left = []
    for step in losses:
        trainer.save(step)
        left.append(steps_of(tmp_path))
    assert left == [[1], [1, 2], [2, 3], [2, 3, 4], [2, 4, 5]]  # of equal losses the first
    losses[5] = 0.1
    trainer.save(5)
    assert checkpoints.best(tmp_path).name == "checkpoint-5"
    assert steps_of(tmp_path) == [4, 5]
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "checkpoint-4",
        "checkpoint-5",
    ]


def test_nothing_is_removed_under_the_name_of_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill in between would leave a part of one that looks whole by its name."""
    removed: list[str] = []
    remove = shutil.rmtree
    monkeypatch.setattr(
        checkpoints.shutil,
        "rmtree",
        lambda path, **how: removed.append(Path(path).name) or remove(path, **how),
    )
    Trainer(tmp_path).save(1, 2, 3, 3)  # the last one is made again
    assert steps_of(tmp_path) == [2, 3]
    assert removed.count(checkpoints.DROPPED) >= 2
    assert not [name for name in removed if name.startswith("checkpoint-")]


def test_a_log_comes_back_as_it_was_at_the_checkpoint_and_stays_without_one(
    tmp_path: Path,
) -> None:
    log = tmp_path / "metrics.jsonl"
    log.write_text("one", encoding="utf-8")
    assert checkpoints.restore_log(log.name, tmp_path) == 0
    Trainer(tmp_path).save(1)
    log.write_text("one two", encoding="utf-8")
    assert checkpoints.restore_log(log.name, tmp_path) == 1
    assert log.read_text(encoding="utf-8") == "one"


def test_a_reference_is_not_stored_and_names_are_in_order(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path)
    write = Trainer._save_checkpoint

    class Adapted(Trainer):
        def _save_checkpoint(self, model: Any, trial: Any) -> None:
            write(self, model, trial)
            target = Path(self._get_output_dir(trial)) / f"checkpoint-{self.state.global_step}"
            (target / checkpoints.REFERENCE).mkdir()
            config = {"target_modules": ["v", "k"], "exclude_modules": ["z", "b"], "a": 1}
            (target / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")

    trainer = Adapted(tmp_path)
    trainer.save(1)
    (checkpoint,) = checkpoints.manifests(tmp_path)
    assert not (checkpoint / checkpoints.REFERENCE).exists()
    config = json.loads((checkpoint / "adapter_config.json").read_bytes())
    assert config == {"target_modules": ["k", "v"], "exclude_modules": ["b", "z"], "a": 1}
    assert [*config] == sorted(config)
