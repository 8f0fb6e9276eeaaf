"""A micro-batch that does not fit -> the same steps in smaller ones, from the last checkpoint on;
none taken twice.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.trainers import dpo, grpo, preferences, rows, sft, source, task

from agentlite.core.errors import DISK, OUT_OF_MEMORY, UserError
from agentlite.engine import dpo as dpo_trainer
from agentlite.engine import grpo as grpo_trainer
from agentlite.engine import local_sampler, watch
from agentlite.engine import sft as sft_trainer
from agentlite.engine import trainer as training
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import Loading, load_for_inference

Fits = Callable[[int, int], bool]
SHAPE: dict[str, Any] = {"batch_size": 4, "gradient_accumulation": 2, "save_steps": 2}
OF_A_GPU = torch.OutOfMemoryError("CUDA out of memory.")
OF_A_CPU = RuntimeError(  # torch's own words
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you "
    "tried to allocate 7692288 bytes. Error code 12 (Cannot allocate memory)"
)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`fits` says of the number of a step and the rows of a micro-batch whether there is room."""

    train = training.train

    def limit(fits: Fits, error: Exception = OF_A_GPU, **changed: bool) -> None:
        def limited(make: Callable[..., Any], *given: Any, **named: Any) -> Any:
            made = {**named, **changed}
            return train(lambda micro: with_room(make(micro), fits, error), *given, **made)

        monkeypatch.setattr(training, "train", limited)

    return limit


def with_room(trainer: Any, fits: Fits, error: Exception) -> Any:
    take = trainer.training_step

    def training_step(*given: Any, **named: Any) -> Any:
        if not fits(trainer.state.global_step + 1, trainer.args.per_device_train_batch_size):
            raise type(error)(*error.args)
        return take(*given, **named)

    trainer.training_step = training_step
    return trainer


def train(command: str, tiny_model: Path, folder: Path, steps: int) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    model, shape = source(tiny_model), {**SHAPE, "max_steps": steps}
    if command == "sft":
        return sft_trainer.train(model, sft(lora_dropout=0.0, **shape), folder, rows(), rows()[:2])
    if command == "dpo":
        return dpo_trainer.train(model, dpo(**shape), folder, preferences())
    return grpo_trainer.train(model, grpo(**shape), folder, lambda: task())


def losses(folder: Path) -> list[tuple[int, float]]:
    return [(row["step"], row["loss"]) for row in watch.read_metrics(folder)]


@given(st.integers(1, 64), st.integers(1, 64))
def test_smaller_micro_batches_make_the_same_steps_down_to_single_rows(
    batch_size: int, accumulation: int
) -> None:
    plan: training.Schedule | None = training.Schedule(7, batch_size, accumulation)
    while plan and (smaller := plan.in_smaller()):
        assert smaller.rows == plan.rows
        assert smaller.batch_size <= plan.batch_size / 2
        plan = smaller
    assert plan and plan.batch_size == 1


@pytest.mark.parametrize(
    ("command", "steps", "at"),
    [("sft", 12, 5), ("sft", 12, 2), ("dpo", 6, 5), ("grpo", 6, 4)],
)
def test_a_step_that_does_not_fit_is_taken_in_halves_and_learns_the_same(
    command: str, steps: int, at: int, tiny_model: Path, tmp_path: Path, memory: Any, capsys: Any
) -> None:
    whole = train(command, tiny_model, tmp_path / "whole", steps)
    memory(lambda step, rows: step < at or rows <= 2)
    halved = train(command, tiny_model, tmp_path / "halved", steps)
    told = capsys.readouterr().err
    assert "out of memory; going on with batch_size 2 and gradient_accumulation 4" in told
    assert ("carrying on after step 4" in told) == (at == 5)
    assert (halved.pop("batch_size"), halved.pop("gradient_accumulation"), halved["steps"]) == (
        2,
        4,
        steps,
    )
    assert halved.keys() == whole.keys()
    expected = losses(tmp_path / "whole")
    assert [step for step, _ in losses(tmp_path / "halved")] == list(range(1, steps + 1))
    assert losses(tmp_path / "halved") == [
        (step, pytest.approx(loss, rel=1e-3, abs=1e-4)) for step, loss in expected
    ]


def test_where_a_process_restarts_nothing_the_next_one_takes_smaller_micro_batches(
    tiny_model: Path, tmp_path: Path, memory: Any
) -> None:
    memory(lambda step, rows: rows < 4, restarts=False)
    with pytest.raises(UserError, match=r"again: .* in micro-batches of 2") as caught:
        train("dpo", tiny_model, tmp_path, 6)
    assert caught.value.exit_code == OUT_OF_MEMORY
    assert train("dpo", tiny_model, tmp_path, 6)["batch_size"] == 2


@pytest.mark.parametrize("error", [OF_A_GPU, OF_A_CPU], ids=["GPU", "CPU"])
def test_one_row_that_does_not_fit_is_exit_7(
    error: Exception, tiny_model: Path, tmp_path: Path, memory: Any
) -> None:
    tried: list[int] = []
    memory(lambda step, rows: bool(tried.append(rows)), error)
    with pytest.raises(UserError, match="one row alone does not fit into this machine") as caught:
        train("dpo", tiny_model, tmp_path, 6)
    assert caught.value.exit_code == OUT_OF_MEMORY
    assert tried == [4, 2, 1]
    assert not (tmp_path / training.MICRO_BATCH_FILE).exists()


def test_a_batch_of_samples_is_halved_for_good_and_draws_the_same(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_for_inference(source(tiny_model), Loading("unsloth", 128))
    asked = [
        local_sampler.SampleRequest([5, 6, 7, n], tuple(f"{n} {seed}" for seed in range(5)))
        for n in range(3)
    ]
    decoding = Decoding(6, temperature=1.0, turn_end=2)
    expected = local_sampler.sample(loaded, asked, decoding)
    draw, most = local_sampler._draw, 2
    tried = []

    def limited(loaded: Any, answers: Sequence[Any], *rest: Any) -> None:
        tried.append(len(answers))
        if len(answers) > most:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        draw(loaded, answers, *rest)

    monkeypatch.setattr(local_sampler, "_draw", limited)
    for one, whole in zip(local_sampler.sample(loaded, asked, decoding), expected, strict=True):
        assert one._replace(log_probabilities=()) == whole._replace(log_probabilities=())
        assert one.log_probabilities == pytest.approx(whole.log_probabilities, abs=1e-4)
    assert tried == [15, 7, 3, *[1] * 15]
    tried.clear()
    assert local_sampler.sample(loaded, asked, decoding)
    assert tried == [1] * 15, "the size that fitted is kept"
    most = 0
    with pytest.raises(UserError, match="a prompt of 4 tokens") as error:
        local_sampler.sample(loaded, asked, decoding)
    assert error.value.exit_code == OUT_OF_MEMORY


def test_another_error_keeps_the_size_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / training.MICRO_BATCH_FILE).write_text('{"batch_size": 1}', encoding="utf-8")

    tried: list[int] = []

    def fill_the_disk(*_: Any) -> Any:
        raise UserError("the disk is full.", exit_code=DISK)

    monkeypatch.setattr(training, "_run", fill_the_disk)
    with pytest.raises(UserError, match="disk"):
        training.train(
            lambda micro: tried.append(micro.batch_size), tmp_path, training.Schedule(3, 4, 2)
        )
    assert tried == [1]
    assert (tmp_path / training.MICRO_BATCH_FILE).exists()
