"""The order of a save, full disks and rotation, by a trainer without a model."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest

from agentlite.core.errors import DISK, MODEL, OTHER_PLAN, UserError
from agentlite.engine import checkpoints
from agentlite.engine.checkpoints import StepFacts
from agentlite.workspace import run_folder


class Weight(NamedTuple):
    nbytes: int
    shape: tuple[int, ...] = (2, 3)
    requires_grad: bool = True


class Model:
    def __init__(self, **weights: Weight):
        self.weights = weights

    def parameters(self) -> list[Weight]:
        return [*self.weights.values()]

    def named_parameters(self) -> list[tuple[str, Weight]]:
        return [*self.weights.items()]


class Trainer:
    """Writes two small files where TRL's trainers write a checkpoint."""

    def __init__(self, folder: Path, steps: int, facts: Callable[[int], StepFacts] | None = None):
        self.folder, self.model = folder, Model(a=Weight(100), frozen=Weight(10**9, (9,), False))
        self.state = SimpleNamespace(global_step=0)
        self.control = SimpleNamespace(should_training_stop=False)
        self.optimizer = SimpleNamespace(state={"a": {"moment": Weight(300), "step": 1}})
        self.processing_class: str | None = "tokenizer"
        self.full: set[int] = set()
        checkpoints.keep(self, folder, steps, facts or (lambda step: StepFacts()))

    def _get_output_dir(self, trial: Any) -> str:
        return str(self.folder / "checkpoints")

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        target = Path(self._get_output_dir(trial)) / f"checkpoint-{self.state.global_step}"
        target.mkdir()
        assert self.processing_class is None, "it would be written into each checkpoint"
        (target / "weights").write_bytes(b"1" * 400)
        if self.state.global_step in self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        (target / "optimizer").write_bytes(b"2" * 600)

    def save(self, *steps: int) -> None:
        for step in steps:
            self.state.global_step = step
            self._save_checkpoint(None, None)


def steps_of(folder: Path) -> list[int]:
    return [checkpoints.step_of(path) for path in checkpoints.manifests(folder)]


@pytest.mark.parametrize(
    ("full", "ended_at"),
    [
        ((1, 2), None),  # two in a row cost two checkpoints
        ((1, 2, 3), 3),
        ((2, 3, 4), 4),
        ((1, 2, 4, 5, 7), None),  # never three in a row
        ((1, 2, 4, 5, 6), 6),
        ((8,), 8),  # the last one of the run
    ],
)
def test_three_full_disks_in_a_row_end_the_run_and_neither_two_nor_those_apart(
    full: tuple[int, ...], ended_at: int | None, tmp_path: Path, capsys: Any
) -> None:
    trainer = Trainer(tmp_path, 8)
    trainer.full = set(full)
    if ended_at is None:
        trainer.save(*range(1, 9))
        assert steps_of(tmp_path) == [step for step in range(1, 9) if step not in full][-2:]
    else:
        trainer.save(*range(1, ended_at))
        with pytest.raises(UserError, match="the disk is full") as error:
            trainer.save(ended_at)
        assert error.value.exit_code == DISK
    notices = capsys.readouterr().err
    for step in full:
        assert (f"no room for the checkpoint of step {step};" in notices) == (step != ended_at)
    assert not (tmp_path / "checkpoints" / checkpoints.ASIDE).exists()


def test_a_full_disk_at_a_stop_ends_the_run_since_nothing_would_be_left_of_it(
    tmp_path: Path,
) -> None:
    trainer = Trainer(tmp_path, 8)
    trainer.full, trainer.control.should_training_stop = {3}, True
    with pytest.raises(UserError, match="the disk is full"):
        trainer.save(3)


def test_a_full_disk_of_one_process_of_several_is_raised_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others have their shares of that checkpoint, and would wait for it."""
    monkeypatch.setattr(checkpoints.distributed, "count", lambda: 2)
    monkeypatch.setattr(checkpoints.coordinate, "barrier", lambda: None)
    trainer = Trainer(tmp_path, 8)
    trainer.full = {1}
    with pytest.raises(OSError, match="No space left"):
        trainer.save(1)


def test_a_trainer_has_its_own_folder_and_tokenizer_again_behind_every_save(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, 8)
    trainer.full = {2}
    for step in (1, 2):
        trainer.save(step)
        assert trainer._get_output_dir(None) == str(tmp_path / "checkpoints")
        assert trainer.processing_class == "tokenizer"


def test_what_is_no_full_disk_is_raised_as_it_is(tmp_path: Path) -> None:
    def broken(step: int) -> StepFacts:
        raise PermissionError(errno.EACCES, "Permission denied")

    with pytest.raises(PermissionError):
        Trainer(tmp_path, 8, broken).save(1)


def test_a_step_that_is_not_sound_leaves_no_checkpoint_and_those_before_stay(
    tmp_path: Path, capsys: Any
) -> None:
    trainer = Trainer(tmp_path, 9, lambda step: StepFacts(0.5, sound=step != 2))
    trainer.save(1, 2)
    assert steps_of(tmp_path) == [1]
    assert "no checkpoint of step 2" in capsys.readouterr().err


def test_a_manifest_says_what_was_saved(tmp_path: Path) -> None:
    for name in checkpoints.LOGGED:
        (tmp_path / name).write_text(name, encoding="utf-8")
    Trainer(tmp_path, 9, lambda step: StepFacts(step / 8)).save(3)
    ((path, manifest),) = checkpoints.manifests(tmp_path).items()
    assert (manifest.step, manifest.dev_loss, manifest.plan) == (3, 0.375, "")
    assert manifest.is_as_written and manifest.versions == run_folder.versions()
    assert {name: size for name, (size, _) in manifest.files.items()} == {
        "weights": 400,
        "optimizer": 600,
        "logs/metrics.jsonl": 13,
        "logs/experience.jsonl": 16,
        "logs/rollouts.jsonl": 14,
        "logs/trajectories.jsonl": 18,
    }
    assert manifest.files["weights"][1] != manifest.files["optimizer"][1]
    assert checkpoints.newest(tmp_path) == path


def test_files_are_synced_before_the_list_and_the_list_before_the_name(
    tmp_path: Path, disk_calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def recorded(self: Path, target: Path) -> Path:
        disk_calls.append(f"rename {self.name} {Path(target).name}")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", recorded)
    Trainer(tmp_path, 9).save(3)
    named = disk_calls.index("rename checkpoint-3 checkpoint-3")
    manifest = next(n for n, call in enumerate(disk_calls) if call.endswith(" manifest.json"))
    files = [disk_calls.index(f"fsync {name}") for name in ("optimizer", "weights")]
    assert max(files) < manifest < named
    assert any(call.startswith("fsync ") and "manifest" in call for call in disk_calls[:named])
    assert "fsync checkpoints" in disk_calls[named:]


def test_of_several_processes_the_first_makes_the_checkpoint_of_what_all_have_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[bool] = []
    saving = tmp_path / "checkpoints" / checkpoints.ASIDE
    for first in (False, True):
        monkeypatch.setattr(checkpoints.distributed, "first", lambda first=first: first)
        monkeypatch.setattr(
            checkpoints.coordinate, "barrier", lambda: waits.append((saving / "x").exists())
        )
        if not first:  # another one has made the folder, and put its share there
            saving.mkdir(parents=True)
            (saving / "x").touch()
        Trainer(tmp_path, 9).save(1)
        if not first:
            assert {path.name for path in (saving / "checkpoint-1").iterdir()} == {
                "weights",
                "optimizer",
            }
    assert steps_of(tmp_path) == [1] and not saving.exists()
    assert waits == [True, True, False, False]  # before writing and before listing


def test_the_newest_two_and_the_best_stay_and_a_step_made_again_replaces_the_first(
    tmp_path: Path,
) -> None:
    losses = {1: 0.9, 2: 0.4, 3: 0.4, 4: 0.6, 5: 0.7}
    trainer = Trainer(tmp_path, 9, lambda step: StepFacts(losses[step]))
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


def test_a_dev_loss_of_nothing_is_the_least(tmp_path: Path) -> None:
    losses = {1: 0.5, 2: 0.0, 3: 0.25}
    Trainer(tmp_path, 9, lambda step: StepFacts(losses[step])).save(*losses)
    assert checkpoints.best(tmp_path).name == "checkpoint-2"


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
    Trainer(tmp_path, 9).save(1, 2, 3, 3)  # the last one is made again
    assert steps_of(tmp_path) == [2, 3]
    assert removed.count(checkpoints.DROPPED) >= 2
    assert not [name for name in removed if name.startswith("checkpoint-")]


def test_without_a_dev_loss_the_newest_is_the_best_by_number_and_not_by_letters(
    tmp_path: Path,
) -> None:
    trainer = Trainer(tmp_path, 99)
    trainer.save(8, 9, 10)
    assert steps_of(tmp_path) == [9, 10]
    newest = tmp_path / "checkpoints" / "checkpoint-10"
    assert checkpoints.best(tmp_path) == checkpoints.newest(tmp_path) == newest


@pytest.mark.parametrize(
    ("free", "saved"), [(499, False), (501, True)]
)  # 400 bytes are trained: 100 of weights, 300 of moments; a quarter more
def test_the_first_checkpoint_needs_room_for_what_is_trained_and_its_moments(
    free: int, saved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=free))
    Trainer(tmp_path, 9).save(1)
    assert bool(steps_of(tmp_path)) == saved


@pytest.mark.parametrize(("free", "saved"), [(1249, False), (1250, True)])
def test_a_later_checkpoint_needs_room_for_the_size_of_the_one_before_and_a_quarter(
    free: int, saved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(tmp_path, 9)
    (tmp_path / "metrics.jsonl").write_bytes(b"x" * 9000)
    trainer.save(1)
    (tmp_path / "metrics.jsonl").unlink()
    trainer.save(2)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=free))
    trainer.save(3)
    assert steps_of(tmp_path) == ([2, 3] if saved else [1, 2])


def test_what_a_kill_left_is_removed_before_the_next_checkpoint_and_at_a_start(
    tmp_path: Path,
) -> None:
    for act in (lambda: checkpoints.newest(tmp_path), lambda: Trainer(tmp_path, 9).save(1)):
        for name in (checkpoints.ASIDE, checkpoints.DROPPED):
            (tmp_path / "checkpoints" / name / "checkpoint-1").mkdir(parents=True)
        act()
        hidden = [path for path in (tmp_path / "checkpoints").iterdir() if path.name[0] == "."]
        assert not hidden


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, "x"), True),
        (OSError(errno.EDQUOT, "x"), True),
        (OSError(errno.EFBIG, "x"), True),
        (OSError(errno.EIO, "x"), True),
        (OSError(errno.EACCES, "x"), False),
        (RuntimeError("I/O error: No space left on device (os error 28)"), True),
        (RuntimeError("PytorchStreamWriter failed writing file data/3"), True),
        (RuntimeError("[enforce fail at inline_container.cc:603]"), True),
        (RuntimeError("basic_ios::clear: iostream error"), True),
        (RuntimeError("File too large (os error 27)"), True),
        (RuntimeError("Input/output error (os error 5)"), True),
        (RuntimeError("shapes differ"), False),
        (UserError("full.", exit_code=DISK), True),
        (UserError("No space left.", exit_code=MODEL), False),
    ],
)
def test_a_full_disk_is_recognised_as_each_library_says_it(error: Exception, full: bool) -> None:
    assert checkpoints.is_disk_full(error) == full


def test_a_log_comes_back_as_it_was_at_the_checkpoint_and_stays_without_one(
    tmp_path: Path,
) -> None:
    log = tmp_path / "metrics.jsonl"
    log.write_text("one", encoding="utf-8")
    trainer = Trainer(tmp_path, 9)
    trainer.save(1)
    log.write_text("one two", encoding="utf-8")
    checkpoints.restore_log(log.name, tmp_path, None)
    assert log.read_text(encoding="utf-8") == "one two"
    checkpoints.restore_log(log.name, tmp_path, checkpoints.newest(tmp_path))
    assert log.read_text(encoding="utf-8") == "one"


def test_a_checkpoint_is_of_all_that_is_trained_by_name_and_shape() -> None:
    first = checkpoints.trained(Model(a=Weight(1), b=Weight(2)))
    assert first == checkpoints.trained(Model(b=Weight(2), a=Weight(1)))
    for other in (
        Model(a=Weight(1)),
        Model(a=Weight(1), c=Weight(2)),
        Model(a=Weight(1), b=Weight(2, (3, 2))),
        Model(a=Weight(1), b=Weight(2, requires_grad=False)),
    ):
        assert checkpoints.trained(other) != first
    # ZeRO-3 leaves a weight empty, with its whole shape in a name of its own
    shared = SimpleNamespace(requires_grad=True, shape=(0,), ds_shape=(2, 3))
    assert checkpoints.trained(Model(a=shared, b=Weight(2))) == first


@pytest.mark.parametrize("name", ["torch", "transformers", "trl", "peft"])
@pytest.mark.parametrize(("part", "refused"), [(0, True), (1, True), (2, False)])
def test_another_major_or_minor_version_of_a_library_is_refused_and_a_patch_is_not(
    name: str, part: int, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(tmp_path, 9)
    versions = dict.fromkeys(("torch", "transformers", "trl", "peft", "other"), "2.3.4")
    monkeypatch.setattr(run_folder, "versions", lambda: dict(versions))
    trainer.save(1)
    numbers = ["2", "3", "4"]
    numbers[part] = "9"
    versions |= {name: ".".join(numbers), "other": "9"}
    (checkpoint,) = checkpoints.manifests(tmp_path)
    if not refused:
        checkpoints.refuse_other(checkpoint, trainer.model)
        return
    with pytest.raises(UserError, match=f"{name} 2.3.4") as error:
        checkpoints.refuse_other(checkpoint, trainer.model)
    assert error.value.exit_code == OTHER_PLAN and f"{name} 2.3.4" in error.value.fix


def test_names_that_are_no_checkpoint_are_none() -> None:
    names = ("checkpoint-12", "checkpoint-", "checkpoint-4.broken", "12x", ".saving")
    assert [checkpoints.step_of(Path(name)) for name in names] == [12, -1, -1, -1, -1]


def test_a_second_broken_checkpoint_of_a_step_does_not_replace_the_first(tmp_path: Path) -> None:
    for _ in range(3):
        Trainer(tmp_path, 9).save(1)
        (tmp_path / "checkpoints" / "checkpoint-1" / "weights").unlink()
        with pytest.raises(UserError, match="no checkpoint that is whole"):
            checkpoints.newest(tmp_path)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "checkpoint-1.broken",
        "checkpoint-1.broken1",
        "checkpoint-1.broken2",
    ]


def test_a_whole_checkpoint_is_read_once_and_again_where_its_list_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Trainer(tmp_path, 9).save(1)
    read: list[str] = []
    digest = checkpoints.digests.content_digest
    monkeypatch.setattr(
        checkpoints.digests, "content_digest", lambda path: read.append(path.name) or digest(path)
    )
    for _ in range(2):
        checkpoints.newest(tmp_path)
    assert sorted(read) == ["optimizer", "weights"]
    os.utime(tmp_path / "checkpoints" / "checkpoint-1" / checkpoints.MANIFEST, (1, 1))
    checkpoints.newest(tmp_path)
    assert len(read) == 4


def test_a_reference_is_not_stored_and_names_are_in_order(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, 9)
    write = Trainer._save_checkpoint

    class Adapted(Trainer):
        def _save_checkpoint(self, model: Any, trial: Any) -> None:
            write(self, model, trial)
            target = Path(self._get_output_dir(trial)) / f"checkpoint-{self.state.global_step}"
            (target / checkpoints.REFERENCE).mkdir()
            config = {"target_modules": ["v", "k"], "exclude_modules": ["z", "b"], "a": 1}
            (target / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")

    trainer = Adapted(tmp_path, 9)
    trainer.save(1)
    (checkpoint,) = checkpoints.manifests(tmp_path)
    assert not (checkpoint / checkpoints.REFERENCE).exists()
    config = json.loads((checkpoint / "adapter_config.json").read_bytes())
    assert config == {"target_modules": ["k", "v"], "exclude_modules": ["b", "z"], "a": 1}
    assert [*config] == sorted(config)


def test_a_checkpoint_of_another_plan_is_set_aside_and_one_of_the_same_plan_is_not(
    tmp_path: Path,
) -> None:
    def write_plan(**changed: Any) -> None:
        plan = {"command": "sft", "settings": {"a": 1}, "inputs": {"data": "1"}, **changed}
        (tmp_path / "plan.json").write_text(json.dumps(plan), encoding="utf-8")

    for changed, same in (
        ({}, True),
        ({"versions": {"agentlite": "9"}}, True),
        ({"command": "dpo"}, False),
        ({"settings": {"a": 2}}, False),
        ({"inputs": {"data": "2"}}, False),
    ):
        write_plan()
        Trainer(tmp_path, 9).save(1)
        write_plan(**changed)
        if same:
            assert checkpoints.newest(tmp_path) is not None
        else:
            with pytest.raises(UserError):
                checkpoints.newest(tmp_path)
        shutil.rmtree(tmp_path / "checkpoints")


def test_a_manifest_without_a_seal_is_not_trusted(tmp_path: Path) -> None:
    Trainer(tmp_path, 9).save(1)
    ((path, manifest),) = checkpoints.manifests(tmp_path).items()
    bare = msgspec.structs.replace(manifest, seal="")
    (path / checkpoints.MANIFEST).write_bytes(msgspec.json.encode(bare))
    with pytest.raises(UserError):
        checkpoints.newest(tmp_path)
