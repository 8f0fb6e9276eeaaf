"""A stage's folder is up to date, carried on or refused; it is never half believed and never held
twice.
"""

import json
import os
from pathlib import Path

import msgspec
import pytest

from agentlite.config import resolve
from agentlite.config.settings import SftSettings
from agentlite.core.errors import UserError
from agentlite.workspace import run_folder
from agentlite.workspace.run_folder import Plan, finished, open_stage

PLAN = Plan("sft", {"lora_r": 16, "seed": 0}, {"data": "a" * 64})


def finish(folder: Path, plan: Plan = PLAN) -> None:
    with open_stage(folder, plan, force=False) as stage:
        (folder / "out.jsonl").write_text("{}\n", encoding="utf-8")
        stage.finish(["out.jsonl"], {"rows": 1})


def test_new_half_and_done_are_told_apart(tmp_path):
    folder = tmp_path / "sft"
    with open_stage(folder, PLAN, force=False) as stage:
        assert stage.status == "new"
    with open_stage(folder, PLAN, force=False) as stage:
        assert stage.status == "half"
    finish(folder)
    with open_stage(folder, PLAN, force=False) as stage:
        assert stage.status == "done"


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


@pytest.mark.parametrize("damage", ["change", "remove"])
def test_a_reader_believes_only_what_done_says(tmp_path, damage):
    folder = tmp_path / "sft"
    with pytest.raises(UserError, match="no such stage"):
        finished(folder, "sft")
    with open_stage(folder, PLAN, force=False):
        pass
    with pytest.raises(UserError, match="not finished"):
        finished(folder, "sft")
    finish(folder)
    assert finished(folder, "sft").figures == {"rows": 1}
    if damage == "change":
        (folder / "out.jsonl").write_text("{ }\n", encoding="utf-8")
    else:
        (folder / "out.jsonl").unlink()
    with pytest.raises(UserError, match=r"out\.jsonl"):
        finished(folder, "sft")
    with open_stage(folder, PLAN, force=False) as stage:
        assert stage.status == "half"


def test_a_done_that_was_harmed_is_named_and_not_believed(tmp_path):
    folder = tmp_path / "sft"
    finish(folder)
    content = (folder / "done.json").read_bytes()
    for harmed in (content.replace(b'"rows": 1', b'"rows": 3'), content[:-9], b"\xff" + content):
        (folder / "done.json").write_bytes(harmed)
        with pytest.raises(UserError, match="cannot be trusted") as told:
            finished(folder, "sft")
        assert "done.json" in told.value.location
        with (
            pytest.raises(UserError, match="cannot be trusted"),
            open_stage(folder, PLAN, force=False),
        ):
            pass


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


def test_a_stage_that_is_finished_says_so_and_one_that_is_opened_again_does_not(tmp_path):
    with open_stage(tmp_path / "sft", PLAN, force=False) as stage:
        assert stage.status == "new"
        stage.finish([], {})
        assert stage.status == "done"
        stage.reopen()
        assert stage.status == "half" and not (tmp_path / "sft/done.json").exists()


def test_a_folder_that_is_given_up_or_emptied_holds_no_plan_any_more(tmp_path, monkeypatch):
    """A kill in between finds failed.json alone, never a plan that seems to be half done."""
    with open_stage(tmp_path / "sft", PLAN, force=False) as stage:
        stage.fail()
    assert not (tmp_path / "sft/plan.json").exists()
    stored = run_folder.read(tmp_path / "sft")
    assert stored.given_up and stored.plan is not None and stored.plan.command == "sft"

    finish(tmp_path / "dpo")

    def killed(path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            run_folder.clear(tmp_path / "dpo")
    assert run_folder.read(tmp_path / "dpo").given_up
    assert not (tmp_path / "dpo/plan.json").exists()


def test_a_forced_start_that_was_killed_half_way_can_be_started_again(tmp_path):
    folder = tmp_path / "sft"
    finish(folder)
    (folder / "plan.json").rename(folder / "failed.json")  # what clear() does first
    other = Plan("sft", {"lora_r": 8}, {})
    with open_stage(folder, other, force=False) as stage:
        assert stage.status == "new"
        assert not {"failed.json", "out.jsonl", "done.json"} & set(os.listdir(folder))


def test_a_stage_of_another_command_is_no_input(tmp_path):
    finish(tmp_path / "sft")
    with pytest.raises(UserError, match="not of `prep`"):
        finished(tmp_path / "sft", "prep")


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


@pytest.mark.parametrize("name", ["plan.json", "done.json"])
def test_what_a_later_version_wrote_is_refused_naming_it_and_not_called_harmed(tmp_path, name):
    folder = tmp_path / "sft"
    here = run_folder.versions()["agentlite"]
    finish(folder, msgspec.structs.replace(PLAN, versions={"agentlite": here}))
    (folder / name).write_text(
        json.dumps({**json.loads((folder / name).read_text()), "more": 1}), encoding="utf-8"
    )
    with pytest.raises(UserError, match="unknown field `more`"):  # of this version: somebody's edit
        finished(folder, "sft")
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(
        json.dumps({**plan, "versions": {"agentlite": "9.1.0"}}), encoding="utf-8"
    )
    for attempt in (
        lambda: finished(folder, "sft"),
        lambda: open_stage(folder, PLAN, force=False).__enter__(),
    ):
        with pytest.raises(
            UserError, match=rf"written by agentlite 9\.1\.0, and this is {here}"
        ) as told:
            attempt()
        assert told.value.exit_code == 3 and "trusted" not in str(told.value)


def test_what_was_begun_with_other_versions_is_told_when_it_is_carried_on(tmp_path, capsys):
    for version in ("2.12", "2.13"):
        with open_stage(
            tmp_path / "eval", Plan("eval", {}, {}, {"torch": version}), force=False
        ) as stage:
            told = capsys.readouterr().err
    assert stage.status == "half" and "torch 2.12 -> 2.13" in told


def test_folders_of_the_first_version_are_still_read():
    earlier = Path(__file__).parent / "earlier"
    assert finished(earlier / "prep", "prep").figures["kept"] == 6
    assert finished(earlier / "sft", "sft").figures["steps"] == 2
    assert run_folder.read_plan(earlier / "sft").settings["lora_r"] == 1


def test_a_clock_that_is_set_back_makes_no_time_negative(tmp_path, monkeypatch):
    from agentlite.cli.run_listing import inventory

    folder = tmp_path / "sft"
    with open_stage(folder, PLAN, force=False) as stage:
        monkeypatch.setattr("time.time", lambda: 1e9)
        assert stage.finish([], {"last_loss": 1.0, "dev_loss": None}).seconds >= 0
    (kept,) = inventory(tmp_path)
    assert kept.state == "done" and kept.age == 0


def test_links_in_a_stage_are_taken_away_and_what_they_point_to_is_left(tmp_path):
    folder, outside = tmp_path / "sft", tmp_path / "outside"
    finish(folder)
    outside.mkdir()
    (outside / "thesis.txt").write_text("years of work", encoding="utf-8")
    (folder / "checkpoints").symlink_to(outside)
    (folder / "log").symlink_to(outside / "thesis.txt")
    (folder / ".holder").symlink_to(outside / "thesis.txt")
    with open_stage(folder, PLAN, force=True) as stage:
        assert stage.status == "new" and not (folder / "checkpoints").exists()
    assert (outside / "thesis.txt").read_text(encoding="utf-8") == "years of work"


@pytest.mark.parametrize(
    "edited",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"command": "sft"}',
        '{"command": "sft", "settings": [], "inputs": {}}',
        "[" * 10_000,
        '{"command": "sft", "settings": {"lora_r": "' + "9" * 10_000 + '"}, "inputs": {}}',
        "\x00",
    ],
)
def test_a_plan_edited_by_hand_is_refused_by_name_and_listed(tmp_path, edited):
    from agentlite.cli.run_listing import inventory

    folder = tmp_path / "sft"
    finish(folder)
    (folder / "plan.json").write_text(edited, encoding="utf-8")
    with pytest.raises(UserError) as told, open_stage(folder, PLAN, force=False):
        pass
    assert told.value.exit_code == 3 and str(folder) in told.value.location
    (folder / "done.json").unlink()
    assert [kept.state for kept in inventory(tmp_path)] != ["done"]
    with open_stage(folder, PLAN, force=True) as stage:
        assert stage.status == "new"


@pytest.mark.parametrize("done", [True, False])
def test_a_plan_edited_into_another_one_is_refused_whatever_is_asked_for(tmp_path, done):
    from agentlite.cli.run_listing import inventory

    folder, asked = (
        tmp_path / "sft",
        msgspec.structs.replace(PLAN, settings={"lora_r": 8, "seed": 0}),
    )
    finish(folder)
    if not done:
        (folder / "done.json").unlink()
    text = (folder / "plan.json").read_text(encoding="utf-8")
    (folder / "plan.json").write_text(text.replace('"lora_r": 16', '"lora_r": 8'), encoding="utf-8")
    for attempt in (
        lambda: open_stage(folder, asked, force=False).__enter__(),
        lambda: open_stage(folder, PLAN, force=False).__enter__(),
        lambda: run_folder.read_plan(folder),
    ):
        with pytest.raises(UserError, match="was changed since it was written") as told:
            attempt()
        assert told.value.exit_code == 3 and told.value.location == str(folder / "plan.json")
    assert [kept.detail for kept in inventory(tmp_path)] == [
        "plan.json was changed since it was written"
    ]
    (folder / "plan.json").write_text(text, encoding="utf-8")
    with open_stage(folder, PLAN, force=False) as stage:
        assert stage.status == ("done" if done else "half")


def test_a_done_without_its_files_is_told_when_they_are_made_again(tmp_path, capsys):
    finish(tmp_path / "sft")
    (tmp_path / "sft" / "out.jsonl").unlink()
    with open_stage(tmp_path / "sft", PLAN, force=False) as stage:
        assert stage.status == "half"
    assert "was finished, and out.jsonl is not as it was left" in capsys.readouterr().err


@pytest.mark.parametrize(("code", "kept"), [(2, False), (4, True), (74, True)])
def test_a_mistake_before_the_first_checkpoint_gives_a_folder_up_and_a_full_disk_does_not(
    tmp_path, code, kept
):
    from agentlite.workspace.lineage import failing_early

    def run() -> None:
        with open_stage(tmp_path / "grpo", PLAN, force=False) as stage, failing_early(stage):
            (stage.folder / "rollouts.jsonl").write_text("{}\n", encoding="utf-8")
            raise UserError("something.", exit_code=code)

    with pytest.raises(UserError, match="something"):
        run()
    with open_stage(tmp_path / "grpo", PLAN, force=False) as stage:
        assert (stage.folder / "rollouts.jsonl").exists() == kept


def test_a_done_without_its_files_is_not_believed(tmp_path):
    finish(tmp_path / "sft")
    (tmp_path / "sft" / "out.jsonl").unlink()
    with pytest.raises(UserError, match=r"out\.jsonl is not as the stage left it"):
        finished(tmp_path / "sft", "sft")
