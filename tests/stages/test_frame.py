"""The frame of a stage: what is done, what is found done, and what a mistake leaves behind."""

from pathlib import Path

import pytest

from agentlite.core.errors import UserError
from agentlite.stages.frame import Work, run_stage
from agentlite.workspace.lookup import Plan, Result, RunTarget

PLAN = Plan("sft", {"seed": 0}, {})


def frame(tmp_path: Path, worked: list[str], **target: bool) -> Result:
    def work() -> Work:
        stage = yield {"rows": 7}
        worked.append(stage.status)
        (stage.folder / "rows.jsonl").write_text("{}\n")
        return ["rows.jsonl"], {"rows": 1}

    return run_stage(
        PLAN,
        RunTarget(tmp_path, "sft", **target),
        work(),
        next_command=lambda figures: f"agentlite eval --rows {figures['rows']}",
    )


def test_a_stage_works_once_and_says_what_comes_next(tmp_path: Path) -> None:
    worked: list[str] = []
    planned = frame(tmp_path, worked, dry_run=True)
    assert planned.figures == {"folder": "new", "rows": 7} and not (tmp_path / "sft").exists()
    first, second = frame(tmp_path, worked), frame(tmp_path, worked)
    assert (first.status, second.status, worked) == ("done", "up to date", ["new"])
    assert first.figures == second.figures == {"rows": 1} and first.outputs == ["rows.jsonl"]
    assert second.next == f"agentlite eval --rows 1 --run {tmp_path}"
    assert frame(tmp_path, worked, force=True).status == "done" and worked == ["new", "new"]


@pytest.mark.parametrize("left", ["", "checkpoints/checkpoint-2", "done.json"])
def test_a_mistake_gives_the_folder_up_unless_something_is_worth_keeping(
    tmp_path: Path, left: str
) -> None:
    def work() -> Work:
        stage = yield {}
        if left == "done.json":
            stage.finish([], {})
        elif left:
            (stage.folder / left).mkdir(parents=True)
        raise UserError("something.")

    with pytest.raises(UserError, match="something"):
        run_stage(
            PLAN,
            RunTarget(tmp_path, "sft"),
            work(),
            next_command="",
            keep=["checkpoints/checkpoint-*"],
        )
    assert (tmp_path / "sft/failed.json").exists() is not bool(left)
    assert (tmp_path / "sft/plan.json").exists() is bool(left)
