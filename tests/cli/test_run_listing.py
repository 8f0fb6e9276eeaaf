"""What a listing says of a stage, from its files alone."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from agentlite.cli.run_listing import inventory
from agentlite.core.errors import UserError
from agentlite.core.row_files import write_rows
from agentlite.workspace.lookup import Plan
from agentlite.workspace.stage_folder import StageFolder, open_stage


def stage(folder: Path, command: str = "sft", **settings: Any) -> Any:
    return open_stage(folder, Plan(command, settings, {}), force=False)


def checkpoint(folder: Path, step: int, max_steps: int | None = 9, whole: bool = True) -> None:
    path = folder / f"checkpoints/checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "trainer_state.json").write_text(json.dumps({"max_steps": max_steps}))
    (path / "weights").write_bytes(b"x" * 100)
    if whole:
        (path / "manifest.json").write_text("{}")


def listed(run: Path) -> dict[str, tuple[str, str, str]]:
    return {one.stage: (one.state, one.detail, one.figure) for one in inventory(run)}


def test_a_half_trained_stage_says_its_step_and_one_that_runs_the_time_left(tmp_path):
    with stage(tmp_path / "none"):
        pass
    with stage(tmp_path / "some") as one:
        file = one.folder / "metrics.jsonl"
        write_rows(file, [{"step": 1, "loss": 2.0}])
        one.expect_rows(file.name, 31)
        write_rows(file, [{"step": step, "loss": 1.23456} for step in range(1, 12)])
        with open(file, "ab") as growing:
            growing.write(b'{"step": 12, "lo')  # it is being written
        begun = (one.folder / "expected.json").stat().st_mtime
        os.utime(file, (begun + 60, begun + 60))  # ten steps in a minute
        running = ("running", "step 11 of 31, 2 min left", "loss 1.235")
        assert listed(tmp_path)["some"] == running
        os.utime(file, (begun - 60, begun - 60))  # the clock was set back
        assert listed(tmp_path)["some"][1] == "step 11 of 31, 0 s left"
    assert listed(tmp_path) == {
        "none": ("half", "", ""),
        "some": ("half", "step 11 of 31", "loss 1.235"),
    }


def test_a_stage_is_done_failed_broken_or_half_done(tmp_path):
    for name in ("done", "failed", "broken", "half"):
        with stage(tmp_path / name, "prep") as one:
            assert isinstance(one, StageFolder)
            (one.folder / "out").write_bytes(b"x")
            if name == "failed":
                one.fail()
            elif name != "half":
                one.finish(["out"], {"kept": 3, "read": 5})
    (tmp_path / "broken/out").write_bytes(b"y")
    assert listed(tmp_path) == {
        "done": ("done", "", "3 of 5 rows kept"),
        "failed": ("failed", "the same command starts over", ""),
        "broken": ("broken", "out has changed since the stage wrote it", "3 of 5 rows kept"),
        "half": ("half", "", ""),
    }


@pytest.mark.parametrize(
    ("name", "problem", "fix"),
    [
        ("none", "no such workspace", "agentlite init FOLDER"),
        ("empty", "holds no stage", "agentlite init FOLDER"),
    ],
)
def test_a_folder_that_is_no_workspace_is_refused_with_a_way_on(tmp_path, name, problem, fix):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=problem) as refused:
        inventory(tmp_path / name)
    assert fix in refused.value.fix
