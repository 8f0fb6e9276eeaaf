"""A stage's folder where something is missing, torn or of another version: which words name it."""

import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from agentlite.core.errors import UserError
from agentlite.workspace import run_folder
from agentlite.workspace.folder_lock import TURN, in_turn
from agentlite.workspace.run_folder import (
    Expected,
    Plan,
    RunTarget,
    differences,
    finished,
    open_stage,
    read,
    read_expected,
    stages_in,
)

PLAN = Plan("sft", {"lora_r": 16}, {}, {"agentlite": "1", "torch": "2.12"})


def finish(folder: Path, plan: Plan = PLAN) -> None:
    with open_stage(folder, plan, force=False) as stage:
        (folder / "out").write_bytes(b"x")
        stage.finish(["out"], {})


def test_what_was_begun_is_carried_on_unless_it_is_started_over(tmp_path):
    assert RunTarget(tmp_path, "sft").begun == tmp_path / "sft"
    assert RunTarget(tmp_path, "sft", force=True).begun is None


def test_a_stage_whose_plan_is_lost_was_begun_when_its_done_was_written(tmp_path):
    finish(tmp_path / "sft")
    os.utime(tmp_path / "sft/done.json", (7, 7))
    (tmp_path / "sft/plan.json").unlink()
    assert read(tmp_path / "sft").begun == 7


def test_a_done_whose_plan_is_lost_is_refused_by_all_and_listed_with_those_given_up(tmp_path):
    folder = tmp_path / "sft"
    finish(folder)
    (folder / "plan.json").unlink()
    for reader in (
        lambda: finished(folder, "sft"),
        lambda: RunTarget(tmp_path, "sft").has_work(PLAN),
        lambda: open_stage(folder, PLAN, force=False).__enter__(),
        lambda: open_stage(folder, PLAN, force=True).__enter__(),
        lambda: read(folder).trusted(),
    ):
        with pytest.raises(UserError, match="nobody knows how the stage was made") as refused:
            reader()
        assert refused.value.exit_code == 3
        assert refused.value.location == str(folder / "plan.json")
    assert (folder / "out").exists() and stages_in(tmp_path) == []
    patterns = ((tmp_path, "*"), (tmp_path, "s*"), (tmp_path.parent, f"{tmp_path.name}/*"))
    for run, pattern in patterns:
        assert stages_in(run, pattern, given_up=True) == [folder]


def test_the_number_of_rows_that_are_expected_is_known_until_the_stage_is_finished(tmp_path):
    folder = tmp_path / "eval"
    with open_stage(folder, PLAN, force=False) as stage:
        assert read_expected(folder) is None
        stage.expect("answers.jsonl", 12)
        assert read_expected(folder) == Expected("answers.jsonl", 12)
        for torn in (b'{"file": "answ', b"{}", b"\xff"):
            (folder / "expected.json").write_bytes(torn)
            assert read_expected(folder) is None
        stage.finish([], {})
    assert not (folder / "expected.json").exists()


def test_a_folder_that_cannot_be_made_or_given_up_is_an_error_of_the_disk(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(UserError, match="cannot write") as refused,
        open_stage(tmp_path / "file/sft", PLAN, force=False),
    ):
        pass
    assert (refused.value.exit_code, refused.value.location) == (74, str(tmp_path / "file/sft"))
    with open_stage(tmp_path / "sft", PLAN, force=False) as stage:
        (tmp_path / "sft/plan.json").unlink()
        with pytest.raises(UserError, match="cannot write") as refused:
            stage.fail()
    assert refused.value.exit_code == 74


def test_only_packages_of_both_times_are_compared(tmp_path, capsys):
    for versions in ({"torch": "2.12", "gone": "1"}, {"torch": "2.13", "came": "1"}):
        with open_stage(tmp_path / "sft", replace(PLAN, versions=versions), force=False):
            shown = capsys.readouterr().err
    assert shown.endswith("was begun with other versions: torch 2.12 -> 2.13\n")


@pytest.mark.parametrize(("done", "state"), [(True, "was finished"), (False, "is half done")])
def test_a_refusal_says_what_would_be_lost(tmp_path, done, state):
    finish(tmp_path / "sft")
    if not done:
        (tmp_path / "sft/done.json").unlink()
    with pytest.raises(UserError) as refused:
        RunTarget(tmp_path, "sft").has_work(Plan("sft", {"lora_r": 8}, {}))
    assert refused.value.problem.startswith(f"{state} with other settings or inputs: sft.lora_r")


def test_a_file_that_is_new_among_the_inputs_has_not_changed(tmp_path):
    path = str(tmp_path / "rows.jsonl")
    old, new = (Plan("prep", {}, {path: digit * 64}) for digit in "ab")
    assert differences(old, new) == [f"input {path} aaaaaaaa -> bbbbbbbb"]
    Path(path).touch()
    assert differences(old, new) == [f"{path} has changed since"]
    assert differences(Plan("prep", {}, {}), new) == [f"input {path} absent -> bbbbbbbb"]
    assert differences(old, Plan("prep", {}, {})) == [f"input {path} aaaaaaaa -> absent"]


def test_a_long_text_that_is_no_digest_is_shown_whole():
    old, new = (Plan("sft", {"system": letter * 20}, {}) for letter in "ab")
    assert differences(old, new) == [f'sft.system "{"a" * 20}" -> "{"b" * 20}"']


def test_a_folder_that_is_removed_while_it_is_read_holds_nothing(tmp_path, monkeypatch):
    finish(tmp_path / "sft")

    def removed(path: Path) -> None:
        raise FileNotFoundError(path)

    monkeypatch.setattr(run_folder, "_read_plan", removed)
    stored = read(tmp_path / "sft")
    assert (stored.plan, stored.done, stored.refusal) == (None, None, None)


def test_a_torn_file_is_torn_whatever_version_wrote_the_plan(tmp_path):
    finish(tmp_path / "sft", replace(PLAN, versions={"agentlite": "9.1.0"}))
    done = tmp_path / "sft/done.json"
    whole = json.loads(done.read_bytes())
    done.write_bytes(done.read_bytes()[:-9])
    with pytest.raises(UserError, match="cannot be trusted"):
        finished(tmp_path / "sft", "sft")
    done.write_text(json.dumps({**whole, "of_a_later_version": 1}))
    with pytest.raises(UserError, match=r"was written by agentlite 9\.1\.0") as refused:
        finished(tmp_path / "sft", "sft")
    assert refused.value.fix.startswith("Use agentlite 9.1.0 for this folder")


def test_the_turn_of_a_workspace_is_kept_where_a_stage_in_it_starts_over(tmp_path):
    """The folder of an ablation is the workspace of its cells."""
    finish(tmp_path / "ablate")
    with in_turn(tmp_path / "ablate"):
        pass
    with open_stage(tmp_path / "ablate", PLAN, force=True):
        assert (tmp_path / "ablate" / TURN).exists() and not (tmp_path / "ablate/out").exists()


def test_a_stage_that_is_missing_or_changed_is_named_with_its_command(tmp_path):
    with pytest.raises(UserError, match="no such stage") as refused:
        finished(tmp_path / "sft", "sft")
    assert f"Looked for it in {tmp_path}." in refused.value.fix
    assert "Run `agentlite sft` first" in refused.value.fix
    finish(tmp_path / "sft")
    (tmp_path / "sft/out").write_bytes(b"y")
    with pytest.raises(UserError, match="out has changed") as refused:
        finished(tmp_path / "sft", "sft")
    assert refused.value.fix == "Run `agentlite sft` again with --force."


@pytest.mark.parametrize("servers", [None, {"m": {"replies": 3}}])
def test_a_result_says_what_its_servers_cost(tmp_path, servers):
    with open_stage(tmp_path / "sft", PLAN, force=False) as stage:
        stage.finish([], {})
        assert stage.result("", servers).servers == (servers or {})
