"""A stage's folder is up to date, carried on or refused; it is never half believed and never held
twice.
"""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from agentlite.config import resolve
from agentlite.config.settings import SftSettings
from agentlite.core.errors import UserError
from agentlite.workspace import lookup, stage_folder
from agentlite.workspace.lookup import Plan, find_model, find_stage, finished_stage
from agentlite.workspace.stage_folder import open_stage

PLAN = Plan("sft", {"lora_r": 16, "seed": 0}, {"data": "a" * 64})


def finish(folder: Path, plan: Plan = PLAN) -> None:
    with open_stage(folder, plan, force=False) as stage:
        (folder / "out.jsonl").write_text("{}\n", encoding="utf-8")
        stage.finish(["out.jsonl"], {"rows": 1})


@pytest.mark.parametrize("done", [True, False])
def test_a_stage_of_another_command_is_named_and_stays(tmp_path, done):
    folder = tmp_path / "one"
    if done:
        finish(folder)
    else:
        with open_stage(folder, PLAN, force=False):
            pass
    other = Plan("dpo", {"lora_r": 16}, {})
    for refuse in (
        lambda: stage_folder.status_for(folder, other),
        lambda: open_stage(folder, other, force=False).__enter__(),
    ):
        with pytest.raises(UserError, match="is a stage of `agentlite sft`, not of `dpo`") as told:
            refuse()
        assert told.value.location == str(folder)
    assert lookup.read_plan(folder).command == "sft"


@pytest.mark.parametrize("done", [True, False])
def test_another_plan_is_refused_naming_each_change_and_force_starts_over(tmp_path, done):
    folder = tmp_path / "sft"
    if done:
        finish(folder)
    else:
        with open_stage(folder, PLAN, force=False):
            (folder / "metrics.jsonl").write_text("{}\n", encoding="utf-8")
    other = Plan("sft", {"lora_r": 8, "seed": 0}, {"data": "b" * 64})
    with pytest.raises(UserError) as refused, open_stage(folder, other, force=False):
        pass
    assert refused.value.exit_code == 3
    assert "sft.lora_r 16 -> 8" in str(refused.value)
    assert "input data aaaaaaaa -> bbbbbbbb" in str(refused.value)
    assert "seed" not in str(refused.value)
    with open_stage(folder, other, force=True) as stage:
        assert stage.status == "new"
        assert not {"metrics.jsonl", "out.jsonl", "done.json"} & set(os.listdir(folder))


def test_a_stage_that_is_being_made_is_running_for_its_readers(tmp_path):
    folder = tmp_path / "sft"
    for read_it in (lambda: finished_stage(folder, "sft"), lambda: find_model("sft", tmp_path)):
        with open_stage(folder, PLAN, force=True):
            with pytest.raises(UserError, match=f"is running: process {os.getpid()} ") as refused:
                read_it()
            assert refused.value.exit_code == 75 and "agentlite runs" in str(refused.value)
        with pytest.raises(UserError, match="is not finished"):
            read_it()


@pytest.mark.parametrize("damage", ["change", "remove"])
def test_a_reader_believes_only_what_done_says(tmp_path, damage):
    folder = tmp_path / "sft"
    with pytest.raises(UserError, match="no such stage"):
        finished_stage(folder, "sft")
    with open_stage(folder, PLAN, force=False):
        pass
    with pytest.raises(UserError, match="Did you mean 'sft'"):
        finished_stage(tmp_path / "sfft", "sft")
    with pytest.raises(UserError, match="not finished"):
        finished_stage(folder, "sft")
    finish(folder)
    assert finished_stage(folder, "sft").figures == {"rows": 1}
    if damage == "change":
        (folder / "out.jsonl").write_text("{ }\n", encoding="utf-8")
    else:
        (folder / "out.jsonl").unlink()
    with pytest.raises(UserError, match=r"out\.jsonl"):
        finished_stage(folder, "sft")
    with open_stage(folder, PLAN, force=False) as stage:
        assert stage.status == "half"


def test_outputs_and_their_folders_are_synced_before_done_is_written(tmp_path, disk_calls):
    with open_stage(tmp_path / "sft", PLAN, force=False) as stage:
        (tmp_path / "sft/adapter").mkdir()
        for name in ("out.jsonl", "adapter/weights"):
            (tmp_path / "sft" / name).write_text("{}", encoding="utf-8")
        disk_calls.clear()
        stage.finish(["out.jsonl", "adapter/weights"], {})
    synced = ["fsync out.jsonl", "fsync weights", "fsync sft", "fsync adapter"]
    aside = ".done.json.partial"
    written = [f"fsync {aside}", f"rename {aside} done.json", "fsync sft"]
    assert disk_calls == [*synced, *written]


def test_a_folder_that_is_given_up_or_emptied_holds_no_plan_any_more(tmp_path, monkeypatch):
    """A kill in between finds failed.json alone, never a plan that seems to be half done."""
    with open_stage(tmp_path / "sft", PLAN, force=False) as stage:
        stage.fail()
    assert not (tmp_path / "sft/plan.json").exists()
    stored = lookup.read_stage(tmp_path / "sft")
    assert stored.given_up and stored.plan is not None and stored.plan.command == "sft"

    finish(tmp_path / "dpo")

    def killed(path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            stage_folder.clear(tmp_path / "dpo")
    assert lookup.read_stage(tmp_path / "dpo").given_up
    assert not (tmp_path / "dpo/plan.json").exists()


def test_a_folder_of_somebody_else_is_neither_written_into_nor_cleared(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work", encoding="utf-8")
    for force in (False, True):
        with pytest.raises(UserError) as refused, open_stage(tmp_path, PLAN, force=force):
            pass
        assert refused.value.exit_code == 3
    assert (tmp_path / "thesis.txt").exists()


def test_a_setting_that_an_earlier_version_did_not_have_was_as_its_default_is(tmp_path):
    folder = tmp_path / "sft"
    finish(folder)
    known = resolve.plain_settings(SftSettings(model="m"))
    newer = Plan(
        "sft", {**PLAN.settings, "batch_tokens": known["batch_tokens"], "trl": {}}, PLAN.inputs
    )
    with open_stage(folder, newer, force=False) as stage:
        assert stage.status == "done"
    other = Plan("sft", {**newer.settings, "batch_tokens": 1 + known["batch_tokens"]}, PLAN.inputs)
    with (
        pytest.raises(UserError, match=r"sft\.batch_tokens 8192 -> 8193"),
        open_stage(folder, other, force=False),
    ):
        pass


def test_an_output_that_was_changed_is_set_aside_and_others_are_left(tmp_path, capsys):
    finish(tmp_path / "sft")
    with open_stage(tmp_path / "sft", PLAN, force=False) as stage:
        stage.set_aside_changed("out.jsonl")
        assert sorted(os.listdir(stage.folder))[-1] == "plan.json"
        (stage.folder / "out.jsonl").write_text("mine", encoding="utf-8")
        stage.set_aside_changed("out.jsonl")
        stage.set_aside_changed("out.jsonl")  # gone: nothing is left to be kept
    assert (tmp_path / "sft/out.jsonl.broken").read_text(encoding="utf-8") == "mine"
    assert not (tmp_path / "sft/out.jsonl").exists()
    assert "set aside as out.jsonl.broken" in capsys.readouterr().err


def test_a_name_in_the_workspace_comes_before_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    assert find_stage("sft", run) == run / "sft"
    (tmp_path / "sft").mkdir()
    assert find_stage("sft", run) == Path("sft")
    (run / "sft").mkdir(parents=True)
    assert find_stage("sft", run) == run / "sft"
    (tmp_path / "file").write_bytes(b"")
    assert find_stage("file", run) == run / "file"


def test_a_forced_start_keeps_the_lock_and_takes_folders_away(tmp_path):
    folder = tmp_path / "sft"
    finish(folder)
    (folder / "checkpoints/checkpoint-1").mkdir(parents=True)
    with open_stage(folder, PLAN, force=True) as stage:
        assert stage.status == "new"
        assert sorted(os.listdir(folder)) == [".holder", ".lock", "plan.json"]
    assert not (folder / ".holder").exists()


def test_only_the_first_of_several_processes_writes_the_plan(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    with open_stage(tmp_path / "sft", PLAN, force=False) as stage:
        assert stage.status == "half" and not (tmp_path / "sft").exists()


def test_the_seconds_of_all_sessions_are_counted(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(stage_folder.time, "monotonic", lambda: now[0])
    with suppress(KeyboardInterrupt), open_stage(tmp_path / "a", PLAN, force=False):
        now[0] += 10
        raise KeyboardInterrupt
    with open_stage(tmp_path / "a", PLAN, force=False) as stage:
        now[0] += 5
        assert stage.finish([], {}).seconds == 15
    assert {path.name for path in (tmp_path / "a").glob("[!.]*")} == {"plan.json", "done.json"}
    with open_stage(tmp_path / "a", PLAN, force=False) as stage:  # more questions are asked
        stage.reopen()
        now[0] += 1
        assert stage.finish([], {}).seconds == 16
