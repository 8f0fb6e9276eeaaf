"""The frame of the trainer stages: what a finished one has recorded, and when it trains again."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from agentlite.config.settings import COMMANDS
from agentlite.core.errors import UserError
from agentlite.engine.trainer import MICRO_BATCH_FILE
from agentlite.stages import training
from agentlite.stages.training import Training, train_stage
from agentlite.workspace import lookup
from agentlite.workspace.lookup import Result, RunTarget, find_model

LEFT = ["adapter/adapter_config.json", "adapter/adapter_model.safetensors", "metrics.jsonl"]


class FakeStage:
    """A trainer stage whose training writes files and counts how often it was asked for."""

    def __init__(self, command: str, run: Path, outputs: tuple[str, ...]):
        self.command, self.target, self.outputs = command, RunTarget(run, command), outputs
        self.settings: Any = COMMANDS[command](model="smollm2-135m", engine="hf")
        self.source, self.trained = find_model("smollm2-135m", run), 0

    def train(self) -> Training:
        folder = yield {"rows": 7}, 64
        self.trained += 1
        (folder / "adapter").mkdir(exist_ok=True)
        for name in (*LEFT, *self.outputs, "checkpoint.tmp"):
            (folder / name).write_text("as it was left", encoding="utf-8")
        return {"steps": 3}

    def __call__(self, **changed: Any) -> Result:
        given = {
            "protocol": "hermes",
            "inputs": {"data": "d"},
            "training": self.train(),
        }
        given |= changed
        return train_stage(
            self.command,
            self.settings,
            self.target,
            self.source,
            outputs=self.outputs,
            **given,
        )


@pytest.mark.parametrize(
    ("command", "outputs"),
    [("sft", ()), ("dpo", ()), ("grpo", ("records.jsonl", "rollouts.jsonl"))],
)
def test_all_that_training_leaves_is_recorded_and_made_again_where_it_was_changed(
    command: str, outputs: tuple[str, ...], tmp_path: Path
) -> None:
    stage = FakeStage(command, tmp_path, outputs)
    first = stage()
    assert first.status == "done" and sorted(first.outputs) == sorted([*LEFT, *outputs])
    assert first.figures == {"steps": 3, "lineage": ["smollm2-135m", command]}
    assert stage().status == "up to date" and stage.trained == 1
    for times, name in enumerate(first.outputs, 2):
        path = tmp_path / command / name
        path.write_text("as somebody else left it", encoding="utf-8")
        assert lookup.read_stage(tmp_path / command).changed_outputs() == [name]
        assert stage().status == "done" and stage.trained == times
        assert path.read_text(encoding="utf-8") == "as it was left"


def test_only_what_changes_the_outcome_makes_a_finished_stage_another_one(tmp_path: Path) -> None:
    """How it is done may change, and so may the trackers that follow it."""
    stage = FakeStage("grpo", tmp_path, ("rollouts.jsonl",))
    stage()
    settings = lookup.read_plan(tmp_path / "grpo").settings
    assert not settings.keys() & {"reward_seconds", "max_failures", "report_to", "requests"}
    assert settings["protocol"] == "hermes" and "group_size" in settings
    stage.settings = replace(stage.settings, reward_seconds=99.0, report_to=("tensorboard",))
    assert stage().status == "up to date" and stage.trained == 1
    for changed in ({"protocol": "react"}, {"inputs": {"data": "e"}}):
        with pytest.raises(UserError) as refused:
            stage(**changed)
        assert refused.value.exit_code == 3
    stage.settings = replace(stage.settings, group_size=2)
    with pytest.raises(UserError) as refused:
        stage()
    assert refused.value.exit_code == 3 and stage.trained == 1


def test_a_dry_run_trains_nothing_and_leaves_no_folder(tmp_path: Path) -> None:
    stage = FakeStage("sft", tmp_path, ())
    stage.target = stage.target._replace(dry_run=True)
    found = stage()
    assert found.status == "dry run" and found.figures["memory_gib"]["total"] > 0
    assert found.figures["folder"] == "new" and found.figures["rows"] == 7
    assert stage.trained == 0 and not (tmp_path / "sft").exists()


@pytest.mark.parametrize("dry_run", [True, False])
def test_what_is_passed_through_is_checked_before_anything_is_read(
    dry_run: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "check_libraries", lambda engine: None)
    stage = FakeStage("sft", tmp_path, ())
    stage.target = stage.target._replace(dry_run=dry_run)
    stage.settings = replace(stage.settings, trl={"weight_decay": 0.1})

    checked = []

    def check(command: str, settings: Any) -> None:
        checked.append(command)
        if len(checked) == 1:
            raise UserError("is not a setting")

    def read() -> Training:
        pytest.fail("rows were read")
        yield {}, 0

    monkeypatch.setattr(training.trainer, "check", check)
    with pytest.raises(UserError, match="is not a setting"):
        stage(training=read())
    assert stage.trained == 0
    stage()
    assert (checked, stage.trained) == (["sft"] * 2, not dry_run)


def test_smaller_micro_batches_are_known_to_the_next_process_without_a_checkpoint(
    tmp_path: Path,
) -> None:
    """As where several processes ran out of memory at the first step."""
    stage = FakeStage("sft", tmp_path, ())

    def out_of_memory() -> Training:
        folder = yield {"rows": 7}, 64
        (folder / MICRO_BATCH_FILE).write_text('{"batch_size": 1}', encoding="utf-8")
        raise UserError("out of the GPU's memory.")

    with pytest.raises(UserError, match="memory"):
        stage(training=out_of_memory())
    assert stage().status == "done"
    assert (tmp_path / "sft" / MICRO_BATCH_FILE).exists()
