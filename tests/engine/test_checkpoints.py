"""Checkpoints: what is not whole is named and never loaded, and a full disk costs a checkpoint, not
the run.
"""

import errno
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.checkpoints import made
from support.trainers import losses, rows, sft, source

from agentlite.config.settings import DpoSettings
from agentlite.core.errors import DISK, DIVERGED, MODEL, OTHER_PLAN, UserError
from agentlite.core.row_files import Appender, read_rows, write_rows
from agentlite.engine import checkpoints, dpo, signals, training_log, watch
from agentlite.engine import sft as sft_trainer
from agentlite.workspace.run_folder import Done, Plan


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
    """As somebody would who does not know of the seal."""
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
    "a list that was edited": (
        lambda one: edit(one / "manifest.json", step=3),
        "manifest.json has changed since it was saved",
    ),
    "another step's": (lambda one: made(one, step=3), "is that of step 3"),
    "another run's": (lambda one: made(one, plan="0" * 16), "under another plan.json"),
    "a file too many": (
        lambda one: (one / "more.safetensors").write_bytes(b"1"),
        "holds more.safetensors, which",
    ),
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
        with pytest.raises(
            UserError, match=r"checkpoint-2\.broken, checkpoint-4\.broken"
        ) as caught:
            checkpoints.newest(folder)
        assert caught.value.exit_code == MODEL and "--force" in caught.value.fix


def test_a_run_goes_on_from_the_one_before_and_ends_the_same(tiny_model, folder, tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    sft_trainer.train(source(tiny_model), sft(), whole, rows(), [])
    part = tmp_path / "part"
    part.mkdir()
    stopping = sft(save_steps=2)
    shutil.copytree(whole / "checkpoints", part / "checkpoints")
    shutil.copy(whole / "metrics.jsonl", part)
    last = sorted((part / "checkpoints").glob("checkpoint-*"), key=checkpoints.step_of)[-1]
    flip(last / "optimizer.pt")
    sft_trainer.train(source(tiny_model), stopping, part, rows(), [])
    assert losses(part) == losses(whole)
    weights = "adapter/adapter_model.safetensors"
    assert (part / weights).read_bytes() == (whole / weights).read_bytes()


def test_a_save_by_the_clock_changes_nothing_in_the_result(tiny_model, tmp_path, monkeypatch):
    """The dev loss is measured where --save-steps says, and chooses among those checkpoints."""
    found = {}
    for name, most_lost in (("clock", 0), ("steps", 600)):
        monkeypatch.setattr(watch, "MOST_LOST", most_lost)
        monkeypatch.setattr(watch, "LEAST_PER_SAVE", 0)
        run = tmp_path / name
        run.mkdir()
        figures = sft_trainer.train(source(tiny_model), sft(save_steps=2), run, rows(), rows())
        weights = (run / "adapter/adapter_model.safetensors").read_bytes()
        found[name] = weights, losses(run), figures["kept_step"], figures["dev_loss"]
        kept = sorted(checkpoints.step_of(one) for one in checkpoints.manifests(run))
        assert (kept[-1] - kept[-2] == 1) == (name == "clock")
    assert found["clock"] == found["steps"]


@pytest.mark.parametrize(
    ("values", "code", "told"),
    [
        ({"trained": "0" * 16}, MODEL, "other parameters"),
        ({"versions": {"trl": "0.9.1"}}, OTHER_PLAN, "torch"),
    ],
)
def test_a_state_that_would_mean_something_else_is_refused(tiny_model, folder, values, code, told):
    for path in (folder / "checkpoints").glob("checkpoint-*"):
        made(path, **values)
    with pytest.raises(UserError, match=told) as caught:
        sft_trainer.train(source(tiny_model), sft(max_steps=4), folder, rows(), [])
    assert caught.value.exit_code == code and "--force" in caught.value.fix


@pytest.mark.parametrize(
    ("full_at", "code", "left"), [((2,), 0, [4, 6]), ((6,), DISK, [2, 4]), ((2, 4, 6), DISK, [])]
)
def test_a_full_disk_costs_the_checkpoint_and_not_the_run(
    tiny_model, tmp_path, monkeypatch, full_at, code, left
):
    listed = checkpoints._listed

    def full(made: Path) -> Any:
        if checkpoints.step_of(made) in full_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        return listed(made)

    monkeypatch.setattr(checkpoints, "_listed", full)
    if code:
        with pytest.raises(UserError, match="carries on") as caught:
            sft_trainer.train(source(tiny_model), sft(), tmp_path, rows(), [])
        assert caught.value.exit_code == code
    else:
        sft_trainer.train(source(tiny_model), sft(), tmp_path, rows(), [])
    assert [checkpoints.step_of(path) for path in checkpoints.manifests(tmp_path)] == left
    assert not (tmp_path / "checkpoints" / checkpoints.ASIDE).exists()
    monkeypatch.undo()
    sft_trainer.train(source(tiny_model), sft(), tmp_path, rows(), [])
    assert [step for step, *_ in losses(tmp_path)] == [1, 2, 3, 4, 5, 6]


def test_no_room_is_seen_before_the_save_is_begun(tiny_model, tmp_path, monkeypatch, capsys):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(UserError, match="the disk is full"):
        sft_trainer.train(source(tiny_model), sft(), tmp_path, rows(), [])
    told = capsys.readouterr().err  # the first one knows by what is trained
    assert all(f"no room for the checkpoint of step {step}; going on" in told for step in (2, 4))
    assert not [path.name for path in (tmp_path / "checkpoints").glob("*") if path.is_dir()]


def test_a_state_that_is_no_number_is_never_a_checkpoint(tiny_model, tmp_path, capsys):
    with pytest.raises(UserError, match="finite"):
        sft_trainer.train(
            source(tiny_model),
            sft(learning_rate=1e30, max_steps=12, save_steps=1),
            tmp_path,
            rows(),
            [],
        )
    lost = [row for row in losses(tmp_path) if row[1] is None]
    assert "not finite numbers" in capsys.readouterr().err
    assert all(
        checkpoints.step_of(path) < (lost[0][0] if lost else 12)
        for path in checkpoints.manifests(tmp_path)
    )


def test_the_checkpoint_of_a_later_version_is_refused_naming_it_and_left_where_it_is(folder):
    newest = folder / "checkpoints" / "checkpoint-4"
    edit(newest / "manifest.json", more=1, versions={"agentlite": "9.1.0"})
    with pytest.raises(UserError, match=r"agentlite 9\.1\.0") as caught:
        checkpoints.newest(folder)
    assert caught.value.exit_code == OTHER_PLAN and newest.is_dir()


def test_a_folder_that_vanishes_while_it_is_trained_is_not_made_again(
    tiny_model, tmp_path, monkeypatch
):
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.setattr(
        watch.TrainerRun,
        "judge",
        lambda *_, **__: folder.exists() and folder.rename(tmp_path / "gone"),
    )
    with pytest.raises(FileNotFoundError):
        sft_trainer.train(source(tiny_model), sft(max_steps=4), folder, rows(), [])
    assert not folder.exists()


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
    assert checkpoints.newest(tmp_path) is not None and not (tmp_path / "adapter").exists()


def test_a_run_that_has_no_good_step_ends_with_6_and_not_with_a_fault(
    tiny_model, tmp_path, monkeypatch
):
    ruined(monkeypatch, 1)
    with pytest.raises(UserError, match="not finite numbers since step 1") as caught:
        sft_trainer.train(source(tiny_model), sft(max_steps=1, save_steps=1), tmp_path, rows(), [])
    assert caught.value.exit_code == DIVERGED and not checkpoints.manifests(tmp_path)


def run(tmp_path: Path) -> watch.TrainerRun:
    return watch.TrainerRun(
        tmp_path,
        9,
        None,
        lambda *_: None,
        [],
        watch.Watch(),
        None,
        [],
        [],
    )


def test_what_float16_skips_while_it_looks_for_a_scale_is_no_divergence(tmp_path):
    found = run(tmp_path)
    for step in range(1, watch.SCALINGS):
        found.judge(step, 2.0, float("inf"), scaled=True)
    assert found.bad == []
    found.judge(16, 2.0, 1.0, scaled=True)
    for step in range(17, 17 + watch.SCALINGS - 1):
        found.judge(step, 2.0, float("nan"), scaled=True)
    with pytest.raises(UserError, match="since step 17"):
        found.judge(99, 2.0, float("inf"), scaled=True)
    found = run(tmp_path)
    for step in (1, 2):
        found.judge(step, 2.0, float("inf"), scaled=False)
    with pytest.raises(UserError, match="since step 1"):
        found.judge(3, 2.0, float("inf"), scaled=False)


def test_one_step_that_is_no_number_ends_neither_the_run_nor_what_comes_after_it(tmp_path):
    steps = [
        {"step": 1, "loss": 1.0, "margin": 0.5, "accuracy": 1.0, "dev_loss": 2.0},
        {"step": 2, "loss": None, "margin": None, "accuracy": None, "dev_loss": None},
    ]
    write_rows(tmp_path / "metrics.jsonl", steps)
    with training_log.Journal(tmp_path) as journal:
        assert journal.dev == {1: 2.0}
    figures = dpo._figures(DpoSettings(reference_free=True), training_log.logged(tmp_path))
    assert figures == {"margin": 0.5, "accuracy": 1.0}
    assert training_log.mean(steps, "kl") == 0.0


def test_rows_of_steps_that_find_no_room_wait_and_cost_nothing(
    tiny_model, tmp_path, monkeypatch, capsys
):
    append, full = Appender.append, [1, 2]

    def refused(self: Appender, row: Any) -> None:
        if row.get("step") in full:
            raise UserError(
                "cannot write: No space left on device.", exit_code=DISK, location=str(self.path)
            )
        append(self, row)

    monkeypatch.setattr(Appender, "append", refused)
    monkeypatch.setattr(
        checkpoints,
        "_listed",
        lambda made, listed=checkpoints._listed: full.clear() or listed(made),
    )
    with pytest.raises(UserError, match="disk is full"):  # the rows of a checkpoint are part of it
        sft_trainer.train(source(tiny_model), sft(), tmp_path, rows(), [])
    full.clear()
    told = capsys.readouterr().err
    assert told.count("rows wait in memory") == 1 and "no room for the checkpoint of step 2" in told
    sft_trainer.train(source(tiny_model), sft(), tmp_path, rows(), [])
    assert [step for step, *_ in losses(tmp_path)] == [1, 2, 3, 4, 5, 6]


def test_a_row_that_was_written_in_part_is_taken_back(tmp_path):
    with Appender(tmp_path / "rows.jsonl") as appender:
        appender.append({"a": 1})
        file, appender.file = appender.file, Torn(appender.file)  # type: ignore[assignment]
        with pytest.raises(UserError, match="No space left"):
            appender.append({"a": 2})
        appender.file = file
        appender.append({"a": 3})
    assert [row["a"] for row in read_rows(tmp_path / "rows.jsonl")] == [1, 3]


class Torn:
    """Takes three bytes of a row."""

    def __init__(self, file: Any):
        self.file = file

    def write(self, line: bytes) -> int:
        return int(self.file.write(line[:3]))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def test_a_finished_run_without_checkpoints_is_not_trained_again_over_what_is_there(
    tiny_model, folder
):
    done = Done({"metrics.jsonl": "0" * 64}, {}, 1.0)
    for name, part in (("plan", Plan("sft", {}, {})), ("done", done)):
        (folder / f"{name}.json").write_bytes(msgspec.json.encode(part.sealed()))
    shutil.rmtree(folder / "checkpoints")
    adapter = (folder / "adapter" / "adapter_model.safetensors").read_bytes()
    with pytest.raises(
        UserError,
        match=r"metrics\.jsonl has changed since the stage wrote it, and there is no checkpoint",
    ) as caught:
        sft_trainer.train(source(tiny_model), sft(max_steps=4), folder, rows(), [])
    assert caught.value.exit_code == OTHER_PLAN and "--force" in caught.value.fix
    assert (folder / "adapter" / "adapter_model.safetensors").read_bytes() == adapter


def test_steps_without_a_checkpoint_are_named_before_they_are_taken_again(
    tiny_model, folder, capsys
):
    shutil.rmtree(folder / "checkpoints")
    sft_trainer.train(source(tiny_model), sft(max_steps=4), folder, rows(), [])
    assert "no checkpoint of the 4 steps in metrics.jsonl" in capsys.readouterr().err


def test_a_checkpoint_holds_what_is_needed_and_says_it_in_one_order(trained):
    for checkpoint in checkpoints.manifests(trained):
        told = json.loads((checkpoint / "adapter_config.json").read_bytes())
        assert told["target_modules"] == sorted(told["target_modules"]) and [*told] == sorted(told)
        names = [path.name for path in checkpoint.iterdir()]
        assert not [name for name in names if name.startswith(("README", "token", "chat_template"))]
    assert not (trained / "checkpoints" / "README.md").exists()


@pytest.mark.parametrize("key", ["save_only_model", "ignore_data_skip", "resume_from_checkpoint"])
def test_what_would_make_another_run_of_one_that_is_carried_on_is_refused(key):
    with pytest.raises(UserError, match="is fixed"):
        sft_trainer.check(sft(trl={key: True}))


def test_the_least_dev_loss_is_kept_and_is_the_result_though_later_ones_are_newer(tmp_path):
    for step, dev_loss in ((2, 0.5), (4, 0.3), (6, 0.4), (8, 0.6), (10, 0.7)):
        folder = tmp_path / "checkpoints" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        manifest = checkpoints.CheckpointManifest(step, dev_loss, "", "", {}, {})
        (folder / checkpoints.MANIFEST).write_bytes(msgspec.json.encode(manifest.sealed()))
    best = tmp_path / "checkpoints" / "checkpoint-4"
    assert checkpoints.best(tmp_path) == checkpoints.best_whole(tmp_path) == best
    checkpoints._rotate(tmp_path)
    assert [checkpoints.step_of(path) for path in checkpoints.manifests(tmp_path)] == [4, 8, 10]


def test_a_terminal_that_closes_says_so_twice_and_other_signals_stop_at_the_second():
    before = {
        number: signal.signal(number, signal.SIG_DFL)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    }
    try:
        with signals.noted_signals() as caught:
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGHUP)
            assert caught == [signal.SIGHUP]
            os.kill(os.getpid(), signal.SIGINT)
            assert caught == [signal.SIGHUP, signal.SIGINT]
            assert (
                signal.getsignal(signal.SIGTERM)
                == signal.getsignal(signal.SIGINT)
                == signal.SIG_DFL
            )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
