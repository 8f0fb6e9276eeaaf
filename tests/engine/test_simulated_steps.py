"""Three steps of every trainer on Unsloth's CUDA path, simulated and not run on a GPU."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.simulated_cuda import simulated
from support.trainers import (
    checkpointing,
    distill,
    distill_task,
    dpo,
    grpo,
    preferences,
    prompts,
    sft,
    short_rows,
    source,
    task,
)

from agentlite.engine import watch
from agentlite.engine.grpo import Reward

pytestmark = pytest.mark.torch

SHORT: dict[str, Any] = {
    "max_steps": 3,
    "batch_size": 2,
    "gradient_accumulation": 1,
    "save_steps": 3,
    "warmup_ratio": 0.0,
    "lora_dropout": 0.0,  # its random numbers would differ
}
SAMPLED = {**SHORT, "group_size": 2, "max_new_tokens": 3}
ROUNDS = {"advantage": "value", "rollouts": 4, "ppo_epochs": 1}
TRAINERS = ("sft", "dpo", "grpo", "ppo", "distill", "distill sampled")


def trained(name: str, model: str, teacher: str, folder: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl."""
    from agentlite.engine import distill as distill_trainer
    from agentlite.engine import dpo as dpo_trainer
    from agentlite.engine import grpo as grpo_trainer
    from agentlite.engine import ppo as ppo_trainer
    from agentlite.engine import sft as sft_trainer

    start = source(Path(model))
    folder.mkdir()
    if name == "sft":
        sft_trainer.train(start, sft(**SHORT), folder, short_rows(), [])
    elif name == "dpo":
        dpo_trainer.train(start, dpo(**SHORT), folder, preferences())
    elif name == "grpo":
        settings = grpo(**SAMPLED)
        grpo_trainer.train(start, settings, folder, lambda: judged(settings))
    elif name == "ppo":
        rounds = grpo(**SAMPLED, **ROUNDS)
        grpo_trainer.train(start, rounds, folder, lambda: judged(rounds), ppo_trainer.make_trainer)
    else:
        chosen = distill(**SHORT, beta=0.5, lmbda=float(name == "distill sampled"))
        distill_trainer.train(start, source(Path(teacher)), chosen, folder, distill_task())
    return watch.read_metrics(folder)


def judged(settings: Any) -> Any:
    def judge(answers: Any) -> list[Reward]:
        odd = [float(answer.sample % 2) for answer in answers]
        return [{"even": one, "long": 0.0, "timeout": 0.0} for one in odd]

    return task(settings, judge, prompts()[:2])


def steps(model: str, teacher: str, folder: str) -> dict[str, Any]:
    """The rows of every trainer, and what its model had before each optimizer step."""
    from unsloth.models import _decode_graphs

    from agentlite.engine import trainer as shared

    found: dict[str, Any] = {}
    models: list[Any] = []
    states: list[dict[str, Any]] = []
    follow = shared.follow

    def following(trl_trainer: Any, follower: Any) -> None:
        models.append(trl_trainer.model)
        trl_trainer.add_callback(looking(models[-1]))
        follow(trl_trainer, follower)

    def looking(model: Any) -> Any:
        from transformers import TrainerCallback

        class Look(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
            def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
                names = _decode_graphs._BUFFER_NAMES
                trained = [one for one in model.named_parameters() if one[1].requires_grad]
                states.append(
                    {
                        "buffers": sum(
                            name in vars(module) for module in model.modules() for name in names
                        ),
                        "checkpointing": checkpointing(model),
                        "reference": any(".ref." in name for name, _ in trained),
                        "dtypes": sorted({str(weight.dtype) for _, weight in trained}),
                    }
                )

        return Look()

    shared.follow = following
    for name in TRAINERS:
        states.clear()
        rows = trained(name, model, teacher, Path(folder, name))
        found[name] = {"rows": rows, "states": [*states]}
    return found


@pytest.fixture(scope="module")
def teacher(tiny_model, tmp_path_factory):
    """The tiny model with larger weights, and so with other and surer answers."""
    from safetensors.torch import load_file, save_file

    folder = tmp_path_factory.mktemp("teacher") / "tiny"
    shutil.copytree(tiny_model, folder)
    (path,) = folder.glob("*.safetensors")
    weights = {name: 1.5 * weight for name, weight in load_file(path).items()}
    save_file(weights, path, {"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def run(tiny_model, teacher, tmp_path_factory):
    return simulated(steps, tiny_model, teacher, tmp_path_factory.mktemp("run"), card="rtx3060")


@pytest.mark.parametrize("name", TRAINERS)
def test_every_trainer_takes_three_steps(name, run):
    """What the decoding leaves is freed before the backward pass, which computes blocks again; the
    adapter alone is trained, in float32.
    """
    rows, states = run[name]["rows"], run[name]["states"]
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert all(row["grad_norm"] > 0 for row in rows[:1])
    for state in states:
        assert state["buffers"] == 0 and not state["reference"]
        assert "False" not in state["checkpointing"] and state["dtypes"] == ["torch.float32"]
    if "kl" in rows[0]:
        assert rows[0]["kl"] == pytest.approx(0, abs=1e-2)


@pytest.mark.parametrize("name", ["sft", "dpo", "distill"])
def test_losses_and_gradients_are_those_of_a_run_on_the_cpu(
    name, run, tiny_model, teacher, tmp_path
):
    """The kernels run in bfloat16, so they agree to its precision."""
    rows = trained(name, str(tiny_model), str(teacher), tmp_path / "run")
    for expected, row in zip(rows, run[name]["rows"], strict=True):
        assert row["loss"] == pytest.approx(expected["loss"], abs=0.02), row
        assert row["grad_norm"] == pytest.approx(expected["grad_norm"], rel=0.1), row
