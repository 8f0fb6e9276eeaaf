"""What every trainer shares, as far as it needs no model: schedules, arguments and refusals."""

import importlib.util
import sys
from dataclasses import make_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from support.trainers import sft

from agentlite.config.settings import Tracker
from agentlite.core import distributed
from agentlite.core.errors import MODEL, UserError
from agentlite.engine import trainer
from agentlite.engine.trainer import Schedule


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`on_gpu` and the type of weights without asking torch."""

    def machine(gpu: bool, dtype: str) -> None:
        monkeypatch.setattr(trainer, "on_gpu", lambda: gpu)
        monkeypatch.setattr(trainer, "load_dtype", lambda: f"torch.{dtype}")

    machine(False, "float32")
    return machine


def test_the_rate_rises_over_whole_steps_and_dev_rows_are_read_where_there_are_some(
    no_torch: Any, tmp_path: Path
) -> None:
    settings, plan = sft(warmup_ratio=0.1, save_steps=7), Schedule(41, 3, 6)
    for dev in (True, False):
        known = trainer.trl_arguments(settings, tmp_path, plan, with_dev=dev)
        assert known["warmup_steps"] == 5 and known["eval_steps"] == known["save_steps"] == 7
        assert known["eval_strategy"] == ("steps" if dev else "no")


def test_on_a_gpu_the_optimizer_is_small_and_blocks_are_computed_again(
    no_torch: Any, tmp_path: Path
) -> None:
    for dtype in ("bfloat16", "float16"):
        no_torch(True, dtype)
        known = trainer.trl_arguments(sft(), tmp_path, Schedule(1, 1, 1), with_dev=False)
        assert (known["bf16"], known["fp16"]) == (dtype == "bfloat16", dtype == "float16")
        assert known["optim"] == "adamw_8bit" and known["gradient_checkpointing"]
        assert not known["use_cpu"] and known["dataloader_pin_memory"]


@pytest.mark.parametrize(
    ("rows", "changed", "processes", "steps"),
    [
        (24, {}, 1, 9),  # 24 * 3 / 8
        (25, {}, 1, 10),  # a part of a step is one
        (24, {"num_epochs": 0.5}, 1, 2),
        (1, {"num_epochs": 0.01}, 1, 1),
        (24, {}, 2, 5),
        (24, {"max_steps": 4}, 2, 4),
        (24, {"gradient_accumulation": 1}, 1, 36),
    ],
)
def test_a_run_has_as_many_steps_as_its_epochs_need(
    rows: int, changed: dict[str, Any], processes: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "world_size", lambda: processes)
    numbers = {"num_epochs": 3.0, "max_steps": None, "batch_size": 2, "gradient_accumulation": 4}
    plan = trainer.schedule(sft(**{**numbers, **changed}), rows)
    assert plan.steps == steps and plan.processes == processes
    accumulated = changed.get("gradient_accumulation", 4)
    assert plan.rows_a_step == 2 * accumulated * processes
    assert plan.rows == steps * plan.rows_a_step


@pytest.mark.parametrize(
    ("settings", "said", "named"),
    [
        ({"trl": {"warmup_ratio": 1}}, "is set by agentlite", "sft.trl.warmup_ratio"),
        ({"trl": {"output_dir": "x"}}, "is set by agentlite", "trl"),
        ({"trl": {"mine": 1}}, "is set by agentlite", "trl"),
        ({"trl": {"wait_decay": 1}}, "no such setting", "sft.trl.wait_decay"),
        ({"peft": {"r": 1}}, "is set by agentlite", "sft.peft.r"),
        ({"peft": {"rslora": 1}}, "no such setting", "sft.peft.rslora"),
    ],
)
def test_what_passes_through_is_known_and_set_in_one_way(
    settings: dict[str, Any], said: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = make_dataclass("LoraConfig", [("use_rslora", bool), ("r", int)])
    monkeypatch.setitem(sys.modules, "peft", SimpleNamespace(LoraConfig=adapter))
    kinds = {"weight_decay": float, "warmup_ratio": float, "save_total_limit": int | None}
    library = make_dataclass("Config", kinds.items())
    with pytest.raises(UserError) as error:
        trainer.check_passed_through("sft", sft(**settings), library, ["mine"])
    assert said in str(error.value) and named in str(error.value.location)
    trainer.check_passed_through(
        "sft", sft(trl={"weight_decay": 1}, peft={"use_rslora": True}), library
    )


@pytest.mark.parametrize("name", get_args(Tracker))
def test_a_tracker_that_is_not_installed_is_refused_before_anything_is_loaded(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda one: None if one == name else find(one))
    with pytest.raises(UserError, match=f"pip install {name}") as refused:
        trainer.check_trackers([name])
    assert "setup.sh" not in refused.value.fix
    assert refused.value.exit_code == MODEL and refused.value.location == f"--report-to {name}"
    trainer.check_trackers([])
