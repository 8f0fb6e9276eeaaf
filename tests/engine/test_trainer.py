"""What every trainer shares, as far as it needs no model: schedules, arguments and refusals."""

import json
import random
import sys
from dataclasses import make_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.trainers import sft

from agentlite.config.settings import GrpoSettings
from agentlite.core import distributed
from agentlite.core.errors import UserError
from agentlite.engine import checkpoints, grpo, trainer
from agentlite.engine.decoding import Decoding
from agentlite.engine.local_sampler import Sample, SampleRequest
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
        known = trainer.arguments(settings, tmp_path, plan, with_dev=dev)
        assert known["warmup_steps"] == 5 and known["eval_steps"] == known["save_steps"] == 7
        assert known["eval_strategy"] == ("steps" if dev else "no")


def test_on_a_gpu_the_optimizer_is_small_and_blocks_are_computed_again(
    no_torch: Any, tmp_path: Path
) -> None:
    for dtype in ("bfloat16", "float16"):
        no_torch(True, dtype)
        known = trainer.arguments(sft(), tmp_path, Schedule(1, 1, 1), with_dev=False)
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
    monkeypatch.setattr(distributed, "count", lambda: processes)
    numbers = {"num_epochs": 3.0, "max_steps": None, "batch_size": 2, "gradient_accumulation": 4}
    plan = trainer.schedule(sft(**{**numbers, **changed}), rows)
    assert plan.steps == steps and plan.processes == processes
    accumulated = changed.get("gradient_accumulation", 4)
    assert plan.rows_a_step == 2 * accumulated * processes
    assert plan.rows == steps * plan.rows_a_step


@pytest.mark.parametrize(
    ("settings", "said", "named"),
    [
        ({"trl": {"warmup_ratio": 1}}, "sft.warmup_ratio", "sft.trl.warmup_ratio"),
        ({"trl": {"per_device_train_batch_size": 1}}, "sft.batch_size", "trl"),
        ({"trl": {"eval_steps": 1}}, "sft.save_steps", "trl"),
        ({"trl": {"output_dir": "x"}}, "sft.out", "trl"),
        ({"trl": {"save_total_limit": 1}}, "is fixed", "trl"),
        ({"trl": {"mine": 1}}, "is fixed", "trl"),
        ({"trl": {"wait_decay": 1}}, "no such setting", "sft.trl.wait_decay"),
        ({"peft": {"r": 1}}, "sft.lora_r", "sft.peft.r"),
        ({"peft": {"target_modules": "x"}}, "sft.lora_target_modules", "peft"),
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
        trainer.check_passed_through("sft", sft(**settings), library, {}, {"mine": "A reason."})
    assert said in str(error.value) and named in str(error.value.location)
    trainer.check_passed_through(
        "sft", sft(trl={"weight_decay": 1}, peft={"use_rslora": True}), library, {}
    )


def rows_of(folder: Path, rows: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps({"step": step, **row}) + "\n" for step, row in enumerate(rows, 1))
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")


def test_the_result_is_the_best_checkpoint_and_figures_say_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = tmp_path / "checkpoints" / "checkpoint-2"
    best.mkdir(parents=True)
    for name in ("adapter_config.json", "adapter_model.safetensors", "optimizer.pt"):
        (best / name).write_text(name, encoding="utf-8")
    monkeypatch.setattr(checkpoints, "best_whole", lambda folder: best)
    facts = SimpleNamespace(step=2, dev_loss=0.25)
    monkeypatch.setattr(checkpoints, "manifests", lambda folder: {best: facts})
    rows_of(tmp_path, [{"loss": 3.0}, {"loss": 2.0}, {"loss": 1.0}])
    for _ in range(2):  # a kill after the first copy leaves the folder there
        assert trainer._keep_best(tmp_path) == {
            "steps": 3,
            "kept_step": 2,
            "first_loss": 3.0,
            "last_loss": 1.0,
            "dev_loss": 0.25,
        }
    made = {
        path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "adapter").iterdir()
    }
    assert made == {name: name for name in ("adapter_config.json", "adapter_model.safetensors")}


def test_without_a_checkpoint_all_rows_go_and_are_named(tmp_path: Path, capsys: Any) -> None:
    rows_of(tmp_path, [{"loss": 3.0}, {"loss": 2.0}])
    trainer._restore_metrics(tmp_path)
    assert not (tmp_path / "metrics.jsonl").exists()
    assert "no checkpoint of the 2 steps" in capsys.readouterr().err
    trainer._restore_metrics(tmp_path)
    assert not capsys.readouterr().err


def test_the_answers_of_a_step_stand_group_by_group_in_whatever_order_they_are_sampled() -> None:
    asked: list[SampleRequest] = []
    judged: list[grpo.SampledAnswer] = []

    def sample(requests: Any, decoding: Decoding) -> list[Sample]:
        asked.extend(requests)
        every = [
            Sample(index, n, [index, n], f"{index} {n}", "turn", (-1.0, -2.0))
            for index, request in enumerate(requests)
            for n in range(len(request.seeds))
        ]
        return random.Random(4).sample(every, len(every))

    def judge(answers: Any) -> list[grpo.Reward]:
        judged.extend(answers)
        return [{"x": float(number)} for number in range(len(answers))]

    settings = GrpoSettings(model="tiny", group_size=3, seed=7)
    task = grpo.GrpoTask([[5], [6, 6], [7, 7, 7]], [("a",), (), ("c",)], judge, {}, Decoding(9), [])
    for step in (0, 1):
        rows = grpo.answered_rows(task, settings, sample, [2, 0, 2], step)  # one prompt twice
        assert [row.prompt for row in rows] == [[7, 7, 7]] * 3 + [[5]] * 3 + [[7, 7, 7]] * 3
        assert [row.ids for row in rows] == [[group, n] for group in range(3) for n in range(3)]
        assert [row.reward for row in rows] == [{"x": float(number)} for number in range(9)]
        assert grpo.surprisal(rows) == 1.5
        assert [answer.batch_index for answer in judged[-9:]] == [*range(9)]
        assert [answer.prompt for answer in judged[-9:]] == [2] * 3 + [0] * 3 + [2] * 3
        assert {answer.trained for answer in judged[-9:]} == {step}
        assert [request.stops for request in asked[-3:]] == [("c",), ("a",), ("c",)]
    # no two answers of a run are sampled by the same numbers, also those to the same prompt
    seeds = [seed for request in asked for seed in request.seeds]
    assert len(seeds) == len({*seeds}) == 18
