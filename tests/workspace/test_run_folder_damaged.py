"""A stage's folder where something is missing, torn or of another version: which words name it."""

from pathlib import Path

import pytest

from agentlite.core.errors import UserError
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


def test_a_file_that_is_new_among_the_inputs_has_not_changed(tmp_path):
    path = str(tmp_path / "rows.jsonl")
    old, new = (Plan("prep", {}, {path: digit * 64}) for digit in "ab")
    assert differences(old, new) == [f"input {path} aaaaaaaa -> bbbbbbbb"]
    Path(path).touch()
    assert differences(old, new) == [f"{path} has changed since"]
    assert differences(Plan("prep", {}, {}), new) == [f"input {path} absent -> bbbbbbbb"]
    assert differences(old, Plan("prep", {}, {})) == [f"input {path} aaaaaaaa -> absent"]


def test_the_turn_of_a_workspace_is_kept_where_a_stage_in_it_starts_over(tmp_path):
    """The folder of an ablation is the workspace of its cells."""
    finish(tmp_path / "ablate")
    with in_turn(tmp_path / "ablate"):
        pass
    with open_stage(tmp_path / "ablate", PLAN, force=True):
        assert (tmp_path / "ablate" / TURN).exists() and not (tmp_path / "ablate/out").exists()
