"""What every trainer shares, as far as it needs no model: schedules, arguments and refusals."""

import json
import os
import random
import signal
import sys
from dataclasses import make_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.trainers import sft

from agentlite.config.settings import DpoSettings, GrpoSettings, SftSettings
from agentlite.core import distributed
from agentlite.core.errors import DISK, DIVERGED, MODEL, OUT_OF_MEMORY, UserError
from agentlite.engine import checkpoints, coordinate, deepspeed, dpo, grpo, trainer
from agentlite.engine import sft as sft_engine
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import Loaded
from agentlite.engine.local_sampler import Sample, SampleRequest
from agentlite.engine.signals import Stopped
from agentlite.engine.trainer import Schedule
from agentlite.engine.watch import Watch
from agentlite.rendering import Encoded


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`on_gpu` and the type of weights without asking torch."""

    def machine(gpu: bool, dtype: str) -> None:
        monkeypatch.setattr(trainer, "on_gpu", lambda: gpu)
        monkeypatch.setattr(trainer, "load_dtype", lambda: f"torch.{dtype}")

    machine(False, "float32")
    return machine


def test_the_arguments_of_a_trainer_are_the_settings(no_torch: Any, tmp_path: Path) -> None:
    settings = sft(
        learning_rate=3e-4, warmup_ratio=0.1, lr_scheduler="linear", save_steps=7, seed=5
    )
    plan = Schedule(41, 3, 6)
    known = trainer.arguments(settings, tmp_path, plan, with_dev=True)
    expected = {
        "output_dir": str(tmp_path / "checkpoints"),
        "max_steps": 41,
        "per_device_train_batch_size": 3,
        "per_device_eval_batch_size": 3,
        "gradient_accumulation_steps": 6,
        "learning_rate": 3e-4,
        "warmup_steps": 5,
        "lr_scheduler_type": "linear",
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "eval_strategy": "steps",
        "eval_steps": 7,
        "save_strategy": "steps",
        "save_steps": 7,
        "report_to": "none",
        "seed": 5,
        "optim": "adamw_torch",
        "deepspeed": None,
        "bf16": False,
        "fp16": False,
        "use_cpu": True,
        "gradient_checkpointing": False,
        "train_sampling_strategy": "sequential",
    }
    assert {key: known[key] for key in expected} == expected
    without = trainer.arguments(settings, tmp_path, plan, with_dev=False)
    assert without["eval_strategy"] == "no"


@pytest.mark.parametrize("ratio", [0.0, 0.03, 0.1, 0.5, 0.99])
def test_a_warmup_takes_its_share_of_the_steps_but_never_the_last_one(
    ratio: float, no_torch: Any, tmp_path: Path
) -> None:
    for steps in range(1, 41):
        settings, plan = sft(warmup_ratio=ratio), Schedule(steps, 1, 1)
        known = trainer.arguments(settings, tmp_path, plan, with_dev=False)["warmup_steps"]
        assert 0 <= known < steps
        assert known >= min(ratio * steps, steps - 1) and known < ratio * steps + 1


def test_on_a_gpu_the_optimizer_is_small_and_blocks_are_computed_again(
    no_torch: Any, tmp_path: Path
) -> None:
    for dtype in ("bfloat16", "float16"):
        no_torch(True, dtype)
        known = trainer.arguments(sft(), tmp_path, Schedule(1, 1, 1), with_dev=False)
        assert (known["bf16"], known["fp16"]) == (dtype == "bfloat16", dtype == "float16")
        assert known["optim"] == "adamw_8bit" and known["gradient_checkpointing"]
        assert not known["use_cpu"] and known["dataloader_pin_memory"]


def test_the_users_own_arguments_of_trl_come_last(
    no_torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    settings = sft(trl={"optim": "sgd", "report_to": "wandb"})
    known = trainer.arguments(settings, tmp_path, Schedule(1, 1, 1), with_dev=False)
    assert known["optim"] == "sgd" and known["report_to"] == "wandb"
    assert "WANDB_MODE" not in os.environ
    trainer.arguments(sft(), tmp_path, Schedule(1, 1, 1), with_dev=False)
    assert os.environ["WANDB_MODE"] == "disabled"  # nothing is sent unless asked for


@pytest.mark.parametrize(
    ("rows", "changed", "processes", "steps"),
    [
        (24, {}, 1, 9),  # 24 * 3 / 8
        (25, {}, 1, 10),  # a part of a step is one
        (24, {"epochs": 0.5}, 1, 2),
        (1, {"epochs": 0.01}, 1, 1),
        (24, {}, 2, 5),
        (24, {"max_steps": 4}, 2, 4),
        (24, {"gradient_accumulation": 1}, 1, 36),
    ],
)
def test_a_run_has_as_many_steps_as_its_epochs_need(
    rows: int, changed: dict[str, Any], processes: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "count", lambda: processes)
    numbers = {"epochs": 3.0, "max_steps": None, "batch_size": 2, "gradient_accumulation": 4}
    plan = trainer.schedule(rows, **{**numbers, **changed})
    assert plan.steps == steps and plan.processes == processes
    accumulated = changed.get("gradient_accumulation", 4)
    assert plan.rows_a_step == 2 * accumulated * processes
    assert plan.rows == steps * plan.rows_a_step


def test_halves_have_the_rows_of_a_step_down_to_one() -> None:
    plan: Schedule | None = Schedule(5, 12, 1)
    sizes = []
    while plan := plan.in_smaller():
        sizes.append((plan.batch_size, plan.gradient_accumulation))
    assert sizes == [(6, 2), (3, 4), (1, 12)]
    assert Schedule(5, 12, 2).rows == 120  # in one process
    found = Schedule(5, 7, 3).in_smaller()
    assert found == Schedule(5, 3, 7)  # 21 rows in micro-batches of 3


def test_micro_batches_hold_rows_of_like_length_and_each_epoch_has_its_own_order() -> None:
    lengths = list(range(1, 65))
    plan = Schedule(32, 4, 1)
    order = trainer.row_order(lengths, plan, 0)
    spans = []
    for start in range(0, len(order), 4):
        batch = [lengths[row] for row in order[start : start + 4]]
        spans.append(max(batch) - min(batch))
    assert sum(spans) / len(spans) < 12  # at random: about 39
    assert lengths[order[0]] == 64 and order[0] == max(order[:4])
    assert sorted(order[:64]) != order[:64] and order[:64] != order[64:]
    assert order != trainer.row_order(lengths, plan, 1)


def test_the_order_of_rows_is_the_same_in_every_version() -> None:
    """A run that is carried on takes the rest of its rows in it."""
    lengths = [5, 3, 9, 1, 7, 7, 2, 8, 4, 6]
    order = trainer.row_order(lengths, Schedule(9, 2, 1), 3)
    assert order == [2, 2, 1, 6, 5, 5, 6, 3, 0, 0, 7, 4, 8, 8, 9, 9, 1, 3]


@pytest.mark.parametrize("seed", range(20))
def test_no_micro_batch_is_padded_to_more_than_the_first_one(seed: int) -> None:
    # the longest row often stands beside a short one, the two next ones beside each other
    lengths = [100, 60, 60] + [1] * 29
    order = trainer.row_order(lengths, Schedule(16, 2, 1), seed)
    padded = [2 * max(lengths[row] for row in order[i : i + 2]) for i in range(0, len(order), 2)]
    assert padded[0] == max(padded)


def test_a_run_that_was_halved_goes_on_in_halves(tmp_path: Path) -> None:
    plan = Schedule(9, 8, 3)
    assert trainer._fitting(tmp_path, plan) == plan
    (tmp_path / trainer.MICRO_BATCH).write_text('{"batch_size": 2}', encoding="utf-8")
    micro = trainer._fitting(tmp_path, plan)
    assert micro == Schedule(9, 2, 12)
    assert trainer._smaller_batches(plan, plan) == {}
    assert trainer._smaller_batches(plan, micro) == {"batch_size": 2, "gradient_accumulation": 12}


def out_of_memory(*_: Any) -> Any:
    raise UserError("memory.", exit_code=OUT_OF_MEMORY)


def test_several_processes_are_not_halved_but_say_which_settings_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "count", lambda: 2)
    monkeypatch.setattr(trainer, "_run", out_of_memory)
    with pytest.raises(UserError) as error:
        trainer.train(lambda micro: None, tmp_path, Schedule(9, 4, 3, 2))
    assert error.value.exit_code == OUT_OF_MEMORY
    assert "batch_size 2 and gradient_accumulation 6" in error.value.fix


def test_another_error_is_never_taken_for_a_lack_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        raise UserError("full.", exit_code=DISK)

    made: list[Schedule] = []
    monkeypatch.setattr(trainer, "_run", full)
    with pytest.raises(UserError, match="full"):
        trainer.train(made.append, tmp_path, Schedule(9, 4, 3))
    assert made == [Schedule(9, 4, 3)]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (type("OutOfMemoryError", (RuntimeError,), {})("x"), OUT_OF_MEMORY),
        (RuntimeError("CUDA out of memory"), OUT_OF_MEMORY),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED"), OUT_OF_MEMORY),
        (type("UnpicklingError", (Exception,), {})("x"), MODEL),
        (OSError(28, "No space left on device"), DISK),
        (RuntimeError("shapes differ"), None),
        (ValueError("out of memory"), None),
    ],
)
def test_errors_of_libraries_become_those_that_a_user_can_fix(
    error: Exception, code: int | None, tmp_path: Path
) -> None:
    found = trainer._explained(error, tmp_path)
    assert (found.exit_code if isinstance(found, UserError) else None) == code
    assert code is not None or found is error


class FakeTrainer:
    """A trainer that says how it was started, and takes `steps`."""

    def __init__(self, steps: int):
        self.model = SimpleNamespace(named_parameters=list, parameters=list)
        self.state = SimpleNamespace(global_step=0)
        self.steps, self.resumed = steps, "not started"

    def train(self, resume_from_checkpoint: Any) -> None:
        self.resumed, self.state.global_step = resume_from_checkpoint, self.steps


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is followed, saved or kept."""
    for name in ("listen", "follower"):
        monkeypatch.setattr(trainer, name, lambda *_: None)
    monkeypatch.setattr(checkpoints, "keep", lambda *_: None)
    monkeypatch.setattr(trainer, "_keep_best", lambda folder: {"kept": 1})


def test_a_run_that_ends_before_its_last_step_was_stopped(loop: None, tmp_path: Path) -> None:
    with pytest.raises(Stopped) as error:
        trainer.train(lambda micro: FakeTrainer(8), tmp_path, Schedule(9, 1, 1))
    assert error.value.exit_code == 128 + signal.SIGTERM
    for steps in (9, 10):
        figures = trainer.train(
            lambda micro, steps=steps: FakeTrainer(steps), tmp_path, Schedule(9, 1, 1)
        )
        assert figures == {"kept": 1}


def test_what_halts_a_run_is_raised_though_all_steps_were_taken(loop: None, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        trainer.train(
            lambda micro: FakeTrainer(9),
            tmp_path,
            Schedule(9, 1, 1),
            Watch(halt=[ZeroDivisionError(), KeyError()]),
        )


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
        ({"peft": {"use_rslora": 1}}, "sft.peft.use_rslora: 1 does not fit", "sft.peft.use_rslora"),
        ({"trl": {"weight_decay": "1e-2"}}, "a number is expected", "sft.trl.weight_decay"),
        ({"trl": {"weight_decay": None}}, "None does not fit", "sft.trl.weight_decay"),
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


def test_an_epoch_of_grpo_takes_a_whole_group_of_answers_to_each_prompt() -> None:
    settings = GrpoSettings(batch_size=4, gradient_accumulation=2, group_size=4, num_epochs=2.0)
    plan = grpo.schedule(settings, 5)
    assert (plan.steps, plan.batch_size, plan.gradient_accumulation) == (5, 4, 2)
    order = grpo.prompt_order(5, 10, 0)
    assert len(order) == 10 and sorted(order[:5]) == sorted(order[5:]) == [0, 1, 2, 3, 4]
    assert order[:5] != order[5:] and order == grpo.prompt_order(5, 10, 0)
    assert order[:7] == grpo.prompt_order(5, 7, 0)
    assert grpo.prompt_order(50, 25, 1) != grpo.prompt_order(50, 25, 2)
    levels = [2, 0, 1, 0, 2]
    by_level = grpo.prompt_order(5, 10, 0, levels)
    assert [levels[one] for one in by_level[:5]] == [0, 0, 1, 2, 2]
    assert sorted(by_level[5:]) == [0, 1, 2, 3, 4] and by_level[5:] == order[5:]
    by_value = GrpoSettings(advantage="value", ppo_epochs=3, num_epochs=2.0)
    assert grpo.schedule(by_value, 5).steps == 8 and grpo.schedule(by_value, 5).rows_a_step == 16


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"flat": 0.5}, "50% of groups"),
        ({"flat": 0.49}, ""),
        ({"reward/timeout": 0.5}, "50% of completions"),
        ({"reward/timeout": 0.49}, ""),
        ({"reward/timeout": 1.0}, "every completion"),
        ({"kl": 1.01}, "KL 1"),
        ({"kl": 1.0}, ""),
        ({"sampler_gap": 0.11}, "by 0.11 on average: leave --vllm out"),
        ({"sampler_gap": 0.1}, ""),
    ],
)
def test_a_complaint_begins_at_half_of_the_groups_half_of_the_answers_and_a_kl_above_1(
    row: dict[str, float], said: str
) -> None:
    found = grpo.complaints([row])
    assert (len(found) == 1 and said in found[0]) if said else found == []


def test_complaints_are_made_every_five_steps_and_at_the_last_of_those_steps_alone(
    tmp_path: Path, capsys: Any
) -> None:
    look = grpo._Look(tmp_path / "grpo", 12)
    spoken = []
    for step in range(1, 13):
        look(step, {"kl": 9.0 if step in (2, 12) else 0.0})
        spoken.append(capsys.readouterr().err)
    assert [step for step, text in enumerate(spoken, 1) if text] == [5, 12]
    assert "steps 1 to 5" in spoken[4] and "steps 11 to 12" in spoken[11]


def test_flat_steps_are_counted_in_a_row_with_those_before_a_stop(tmp_path: Path) -> None:
    rows = [{"step": step, "flat": flat} for step, flat in enumerate((1, 0.5, 1), 1)]
    (tmp_path / "metrics.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
    )
    flat = grpo._Flat(tmp_path, 3)
    assert flat(4, {"flat": 1}) is None
    error = flat(5, {"flat": 1})
    assert error is not None and "for 3 steps" in error.problem
    assert flat(6, {"flat": 0.99}) is None
    assert all(flat(step, {"flat": 1}) is None for step in (7, 8))
    assert flat(9, {"flat": 1}) is not None
    assert grpo._Flat(tmp_path, 0)(4, {"flat": 1}) is None


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"sigmoid": 1.0}),
        ({"loss_type": "ipo"}, {"ipo": 1.0}),
        ({"loss_type": "robust", "label_smoothing": 0.1}, {"robust": 1.0}),
        ({"loss_type": "orpo", "sft_weight": 1.0}, {"sft": 1.0}),
        ({"loss_type": "simpo"}, {}),
        ({"sft_weight": 0.5}, {"sigmoid": 1.0, "sft": 0.5}),
        ({"label_smoothing": 0.1}, {"sigmoid": 1.8, "robust": -0.8}),
        ({"label_smoothing": 0.25, "sft_weight": 2}, {"sigmoid": 1.5, "robust": -0.5, "sft": 2}),
    ],
)
def test_losses_of_dpo_are_mixed_by_their_weights(
    settings: dict[str, Any], expected: dict[str, float]
) -> None:
    found = dpo.losses(DpoSettings(**settings))
    mixed = dict(zip(found["loss_type"], found["loss_weights"], strict=True))
    assert mixed == pytest.approx(expected)
    assert found["label_smoothing"] == settings.get("label_smoothing", 0.0)


def test_a_pair_has_its_prompt_twice_and_drifts_are_in_nats() -> None:
    assert dpo.Preference([1, 2, 3], [4, 5], [6]).tokens == 9
    rows = [
        {"margin": 1.0, "accuracy": 0.5, "chosen_reward": 0.2, "rejected_reward": -0.4},
        {"margin": 3.0, "accuracy": 1.0, "chosen_reward": 0.4, "rejected_reward": -0.8},
    ]
    expected = {"margin": 2.0, "accuracy": 0.75}
    drifts = {"chosen_drift": 0.6, "rejected_drift": -1.2}
    assert dpo._figures(DpoSettings(beta=0.5), rows) == {**expected, **drifts}
    assert dpo._figures(DpoSettings(beta=0.5, reference_free=True), rows) == expected
    thirds = dpo._figures(DpoSettings(beta=0.3), rows)
    assert (thirds["chosen_drift"], thirds["rejected_drift"]) == (1.0, -2.0)
    assert dpo._figures(DpoSettings(beta=0.7), rows)["chosen_drift"] == 0.429
    kto = dpo._figures(DpoSettings(beta=0.5, loss_type="kto"), [row | {"kl": 0.3} for row in rows])
    assert kto == {"margin": 2.0, "kl": 0.3, **drifts}


@pytest.mark.parametrize("side", ["chosen_reward", "rejected_reward"])
@pytest.mark.parametrize(
    ("dtype", "nats", "refused"),
    [
        ("float32", 0.009, False),
        ("float32", 0.011, True),
        ("float32", -0.011, True),
        ("bfloat16", 0.9, False),
        ("bfloat16", -1.1, True),
        ("float32", float("nan"), True),
    ],
)
def test_a_start_that_differs_from_its_reference_is_refused_on_either_side(
    side: str, dtype: str, nats: float, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dpo, "load_dtype", lambda: f"torch.{dtype}")
    row = {"chosen_reward": 0.0, "rejected_reward": 0.0, side: 0.2 * nats}
    if not refused:
        dpo._refuse_other_start(row, 0.2)
        return
    with pytest.raises(UserError, match=side.split("_")[0]) as error:
        dpo._refuse_other_start(row, 0.2)
    assert error.value.exit_code == MODEL


def test_packed_rows_fill_sequences_and_a_micro_batch_its_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from agentlite.engine import sft as sft_trainer

    rows = [Encoded([1] * 30, [1] * 30) for _ in range(20)]  # 600 tokens: 6 sequences and a part
    settings = SftSettings(
        packing=True,
        max_length=99,
        batch_tokens=200,
        batch_size=5,
        num_epochs=1.0,
        gradient_accumulation=1,
    )
    for gpu, steps, size in ((True, 4, 2), (False, 4, 5)):
        monkeypatch.setattr(sft_trainer, "on_gpu", lambda gpu=gpu: gpu)
        plan = sft_trainer.schedule(settings, rows)
        assert (plan.steps, plan.batch_size) == (steps, size)


def test_a_plan_keeps_the_deepspeed_file_and_the_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "own.json"
    path.write_text("{}", encoding="utf-8")
    settings = SftSettings(engine="hf", deepspeed=str(path))
    assert deepspeed.inputs(SftSettings()) == {}
    found = []
    for count, content in ((1, "{}"), (2, "{}"), (2, '{"a": 1}')):
        monkeypatch.setattr(distributed, "count", lambda count=count: count)
        path.write_text(content, encoding="utf-8")
        found.append(deepspeed.inputs(settings))
    assert [one["processes"] for one in found] == ["1", "2", "2"]
    assert found[0]["deepspeed"] == found[1]["deepspeed"] != found[2]["deepspeed"]


@pytest.mark.parametrize("command", ["sft", "dpo", "grpo"])
def test_all_weights_get_a_tenth_of_the_default_of_each_command(command: str) -> None:
    kinds = {"sft": SftSettings, "dpo": DpoSettings, "grpo": GrpoSettings}
    default = kinds[command]().learning_rate
    assert deepspeed.inherited(command, kinds[command]()) == {}
    inherited = deepspeed.inherited(command, kinds[command](full=True))
    assert inherited == {"learning_rate": (pytest.approx(default / 10), "--full")}


@pytest.mark.parametrize("content", ["[]", "{", "1"])
def test_a_deepspeed_file_that_holds_no_object_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match="JSON"):
        deepspeed.read(str(path))


def test_one_process_neither_waits_nor_leaves() -> None:
    assert (coordinate.any_of(True), coordinate.any_of(False)) == (True, False)
    coordinate.barrier()
    coordinate.go()
    coordinate.leave()


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


def test_one_process_of_several_cuts_the_log_and_the_others_leave_it(
    loop: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows_of(tmp_path, [{"loss": 3.0}])
    monkeypatch.setattr(coordinate, "barrier", lambda: None)
    monkeypatch.setattr(coordinate, "leave", lambda: None)
    for first in (False, True):
        monkeypatch.setattr(distributed, "first", lambda first=first: first)
        trainer.train(lambda micro: FakeTrainer(9), tmp_path, Schedule(9, 1, 1, 2))
        assert bool((tmp_path / "metrics.jsonl").read_bytes()) != first


def test_rows_after_the_last_checkpoint_go_and_without_one_all_go_and_are_named(
    tmp_path: Path, capsys: Any
) -> None:
    checkpoint = tmp_path / "checkpoint-1"
    (checkpoint / checkpoints.LOGS).mkdir(parents=True)
    (checkpoint / checkpoints.LOGS / "metrics.jsonl").write_text('{"step":1}\n', encoding="utf-8")
    rows_of(tmp_path, [{"loss": 3.0}, {"loss": 2.0}])
    trainer._restore_metrics(tmp_path, checkpoint)
    assert (tmp_path / "metrics.jsonl").read_text(encoding="utf-8") == '{"step":1}\n'
    assert not capsys.readouterr().err
    rows_of(tmp_path, [{"loss": 3.0}, {"loss": 2.0}])
    trainer._restore_metrics(tmp_path, None)
    assert not (tmp_path / "metrics.jsonl").exists()
    assert "no checkpoint of the 2 steps" in capsys.readouterr().err
    trainer._restore_metrics(tmp_path, None)
    assert not capsys.readouterr().err


def trained(
    engine: Any, monkeypatch: pytest.MonkeyPatch, folder: Path, rows: list[dict[str, Any]]
) -> list[Watch]:
    """The watch of the next run of an engine, which leaves these rows and loads nothing."""
    watches: list[Watch] = []

    def train(make: Any, folder: Path, plan: Schedule, watch: Watch) -> dict[str, Any]:
        watches.append(watch)
        rows_of(folder, rows)
        return {"steps": plan.steps}

    for name in ("prepare", "check"):
        monkeypatch.setattr(engine, name, lambda *_: None)
    monkeypatch.setattr(engine, "load", lambda *_, **__: None)
    monkeypatch.setattr(engine, "load_dtype", lambda: "torch.float32")
    monkeypatch.setattr(trainer, "train", train)
    return watches


def grpo_task() -> Any:
    return grpo.GrpoTask(
        [[1], [2]], [(), ()], lambda answers: [], {"even": 1.0}, grpo.Decoding(3), []
    )


SOURCE: Any = None


def test_grpo_watches_its_start_its_flat_steps_and_says_how_it_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"reward": float(step), "kl": step / 8, "flat": step % 2} for step in range(12)]
    watches, task = trained(grpo, monkeypatch, tmp_path, rows), grpo_task()
    settings = GrpoSettings(max_steps=12, max_flat_steps=2)
    figures = grpo.train(SOURCE, settings, tmp_path, lambda loaded: task)
    assert figures == {
        "steps": 12,
        "first_reward": 2.0,  # 0 to 4
        "last_reward": 9.0,  # 7 to 11
        "kl": 1.125,
        "flat_groups": 0.5,
    }
    (watch,) = watches
    assert watch.measures["rewards/even/mean"] == "reward/even" and watch.halt is task.halt
    assert {"reward", "reward_std", "flat", "kl", "entropy", "new_tokens"} <= {
        *watch.measures.values()
    }
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "metrics.jsonl").touch()
    with pytest.raises(UserError, match="differ before the first step"):
        watch.at_step(1, {"kl": 0.00011})
    watch.at_step(1, {"kl": 0.00009, "flat": 1})
    assert not task.halt
    watch.at_step(2, {"kl": 5.0, "flat": 1})
    assert len(task.halt) == 1
    watch.at_step(12, {"kl": 5.0, "flat": 0})
    assert len(task.halt) == 1


@pytest.mark.parametrize(
    ("dtype", "gap", "vllm", "halted"),
    [
        ("float32", 0.0011, False, True),
        ("float32", 0.0009, False, False),
        ("bfloat16", 0.11, False, True),
        ("float16", 0.09, False, False),
        ("bfloat16", 9.0, True, False),  # vLLM rounds otherwise: only said
    ],
)
def test_answers_that_are_sampled_by_other_probabilities_halt_a_run(
    dtype: str, gap: float, vllm: bool, halted: bool, tmp_path: Path, monkeypatch: Any
) -> None:
    watches, task = trained(grpo, monkeypatch, tmp_path, [{"reward": 1.0}]), grpo_task()
    monkeypatch.setattr(grpo, "load_dtype", lambda: f"torch.{dtype}")
    monkeypatch.setattr(grpo.vllm_sampler, "refuse", lambda settings: None)
    monkeypatch.setattr(grpo, "_loading", lambda *_: None)
    settings = GrpoSettings(max_steps=9, beta=0.0, vllm=vllm)
    grpo.train(SOURCE, settings, tmp_path, lambda loaded: task)
    watches[0].at_step(3, {"flat": 0, "sampler_gap": gap})
    watches[0].at_step(4, {"flat": 0})
    assert len(task.halt) == halted
    if halted:
        assert task.halt[0].exit_code == DIVERGED and "doctor" in task.halt[0].fix


def test_the_gap_of_a_sampler_is_logged_as_mean_99th_percentile_and_greatest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gaps = [float(n) for n in range(201)]
    monkeypatch.setattr(grpo, "sampler_gaps", lambda *_: gaps)
    measured: dict[str, list[float]] = {f"sampler_gap/{n}": [] for n in ("mean", "p99", "max")}
    run: Any = SimpleNamespace(model=None, _metrics={"train": measured})
    grpo._log_gap(run, [], grpo_task(), 1.0)
    assert measured == {
        "sampler_gap/mean": [100.0],
        "sampler_gap/p99": [198.0],
        "sampler_gap/max": [200.0],
    }


def test_flat_steps_at_the_very_end_are_no_failure_and_without_beta_there_is_no_divergence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watches, task = trained(grpo, monkeypatch, tmp_path, [{"reward": 1.0}]), grpo_task()
    settings = GrpoSettings(max_steps=2, max_flat_steps=2, beta=0.0)
    assert "kl" not in grpo.train(SOURCE, settings, tmp_path, lambda loaded: task)
    watches[0].at_step(1, {"flat": 1})
    watches[0].at_step(2, {"flat": 1})
    assert not task.halt


def test_dpo_watches_its_start_and_figures_are_the_mean_of_its_last_five_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("margin", "accuracy", "chosen_reward", "rejected_reward")
    rows = [dict.fromkeys(names, float(step)) for step in range(-3, 10)]
    watches = trained(dpo, monkeypatch, tmp_path, rows)
    pairs = [dpo.Preference([1], [2], [3])] * 4
    figures = dpo.train(SOURCE, DpoSettings(max_steps=7, beta=0.5), tmp_path, pairs)
    drifts = {"chosen_drift": 14.0, "rejected_drift": 14.0}
    assert figures == {"steps": 7, "margin": 7.0, "accuracy": 7.0, **drifts}
    row = {"chosen_reward": 0.3, "rejected_reward": 0.0}
    assert {*names, "chosen_logp", "rejected_logp", "kl"} == {*watches[0].measures.values()}
    watches[0].at_step(2, row)
    with pytest.raises(UserError, match="differ before the first step"):
        watches[0].at_step(1, row)
    dpo.train(SOURCE, DpoSettings(max_steps=7, reference_free=True), tmp_path, pairs)
    watches[1].at_step(1, row)


@pytest.mark.torch
def test_names_of_the_libraries_and_of_our_settings_are_as_they_are() -> None:
    """Each argument that is a setting here, or fixed, is one that the library takes."""
    from peft import LoraConfig
    from trl import DPOConfig, GRPOConfig, SFTConfig

    from agentlite.config import settings as config

    tables = {
        "sft": (SFTConfig, {"packing": "packing"}, {}),
        "dpo": (DPOConfig, dpo.OURS_OF_TRL, {}),
        "grpo": (GRPOConfig, grpo.OURS_OF_TRL, grpo.FIXED),
    }
    # of other versions of transformers, and of the other trainers
    later = {"warmup_ratio", "enable_jit_checkpoint", "max_length"}
    for command, (library, ours, fixed) in tables.items():
        known = {*library.__dataclass_fields__} | later
        assert {*ours, *fixed, *trainer.FIXED, *trainer.OURS_OF_TRL} <= known, command
        assert {*ours.values()} <= {"out", *config.fields(command)}, command
        shared = {*trainer.OURS_OF_TRL.values(), *trainer.OURS_OF_PEFT.values()}
        assert shared - {"deepspeed", "out"} <= {*config.fields(command)}
    assert {*trainer.OURS_OF_PEFT} <= {*LoraConfig.__dataclass_fields__}


@pytest.mark.long
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("with_dev", [False, True])
def test_dev_is_measured_on_its_own_rows_and_train_is_learned_in_the_order_of_the_run(
    with_dev: bool, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, Any] = {}
    monkeypatch.setattr(sft_engine, "_trainer", lambda loaded, rows: made.update)
    monkeypatch.setattr(trainer, "warming_up", lambda trainer_class: trainer_class)
    monkeypatch.setattr(sft_engine, "uncast", lambda trainer_class: trainer_class)
    monkeypatch.setattr(sft_engine, "adapted", lambda loaded, settings: "the adapter")
    monkeypatch.setattr(sft_engine, "on_gpu", lambda: True)
    rows = [Encoded([n] * n, [-100] * (n - 1) + [n]) for n in (1, 2, 3, 4, 5)]
    dev = [Encoded([8, 9], [-100, 9]), Encoded([7], [7])] if with_dev else []
    settings = sft(batch_size=2, gradient_accumulation=1, packing=packed)
    loaded: Any = SimpleNamespace(tokenizer="its tokenizer")
    sft_engine.make_trainer(loaded, settings, "arguments", rows, dev)

    def of(dataset: Any) -> list[Encoded]:
        return [Encoded(row["input_ids"], row["labels"]) for row in dataset or ()]

    order = trainer.row_order([1, 2, 3, 4, 5], sft_engine.schedule(settings, rows), settings.seed)
    assert of(made["train_dataset"]) == (rows if packed else [rows[index] for index in order])
    assert of(made["eval_dataset"]) == dev and (made["eval_dataset"] is not None) == with_dev
    assert (made["model"], made["args"]) == ("the adapter", "arguments")


def test_the_answers_of_a_step_stand_group_by_group_in_whatever_order_they_are_sampled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[list[SampleRequest]] = []
    judged: list[list[grpo.SampledAnswer]] = []

    def drawn(loaded: Any, requests: list[SampleRequest], decoding: Decoding, answers: Any) -> Any:
        assert (loaded[:2], answers) == (("the model", "a tokenizer"), None)
        asked.append(requests)
        every = [
            Sample(index, n, [index, n], f"{index} {n}", "turn", (-1.0, -2.0))
            for index, request in enumerate(requests)
            for n in range(len(request.seeds))
        ]
        return random.Random(4).sample(every, len(every))

    def judge(answers: Any) -> list[grpo.AnswerReward]:
        judged.append(list(answers))
        return [grpo.AnswerReward({"x": float(number)}) for number in range(len(answers))]

    monkeypatch.setattr(grpo, "draw", drawn)
    compared: list[list[int]] = []  # the answers whose probabilities are looked at again
    monkeypatch.setattr(
        grpo, "_log_gap", lambda _, rows, *__: compared.append([row.ids for row in rows])
    )
    settings = GrpoSettings(model="tiny", group_size=3, seed=7)
    task = grpo.GrpoTask([[5], [6, 6], [7, 7, 7]], [("a",), (), ("c",)], judge, {}, Decoding(9), [])
    rollout = grpo._rollout(Loaded("the model", "a tokenizer"), settings, task)
    measured: dict[str, list[float]] = {"surprisal": []}
    for step in (0, 1):
        # the prompts of two groups, as TRL says them: one of them twice
        prompts = [prompt for prompt in ("2", "0", "2") for _ in range(3)]
        run: Any = SimpleNamespace(
            state=SimpleNamespace(global_step=step),
            model="wrapped",
            accelerator=SimpleNamespace(unwrap_model={"wrapped": "the model"}.get),
            _metrics={"train": measured},
        )
        found = rollout(prompts, run)
        assert found["prompt_ids"] == [[7, 7, 7]] * 3 + [[5]] * 3 + [[7, 7, 7]] * 3
        assert found["completion_ids"] == [[group, n] for group in range(3) for n in range(3)]
        assert [one.parts["x"] for one in found["verdicts"]] == [*range(9)]
        assert [one.batch_index for one in judged[-1]] == [*range(9)]
        assert [one.prompt for one in judged[-1]] == [2] * 3 + [0] * 3 + [2] * 3
        assert {one.trained for one in judged[-1]} == {step}
        assert [one.stops for one in asked[-1]] == [("c",), ("a",), ("c",)]
        assert found["logprobs"] is None  # only vLLM's are learned from
    assert measured["surprisal"] == [1.5, 1.5]
    # the first of each group, every fifth step
    assert compared == [[[0, 0], [1, 0], [2, 0]]]
    # no two answers of a run are sampled by the same numbers, also those to the same prompt
    seeds = [seed for requests in asked for request in requests for seed in request.seeds]
    assert len(seeds) == len({*seeds}) == 18
