"""distill on Unsloth's CUDA path, simulated and not run on a GPU."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.examples import in_turn
from support.simulated_cuda import simulated
from support.trainers import checkpointing, distill, distill_task, source

from agentlite.engine import training_log

pytestmark = pytest.mark.torch

SHORT = {
    "max_steps": 1,
    "batch_size": 2,
    "gradient_accumulation": 1,
    "warmup_ratio": 0.0,
    "beta": 0.5,
}
CASES: dict[str, dict[str, Any]] = {
    "recorded": {"lmbda": 0.0},
    "disk": {"lmbda": 0.0, "top_k": 20},
    "teacher": {"lmbda": 0.0, "off_policy": "teacher"},
    "student": {"lmbda": 1.0},
}


def runs(model: str, teacher: str, folder: str) -> dict[str, Any]:
    """A step of every case, and what the decoding had left on student and teacher before it."""
    from unsloth.models import _decode_graphs

    from agentlite.engine import distill as distill_trainer

    found: dict[str, Any] = {}
    distance = distill_trainer.distance
    buffers: list[int] = []
    modes: list[list[str]] = []

    def looked(student: Any, inputs: Any, labels: Any, teaching: Any, *rest: Any) -> Any:
        models = [student, *([teaching.loaded.model] if hasattr(teaching, "loaded") else [])]
        modules = [module for one in models for module in one.modules()]
        names = _decode_graphs._BUFFER_NAMES
        buffers.append(sum(name in vars(module) for module in modules for name in names))
        modes.append(checkpointing(student))
        return distance(student, inputs, labels, teaching, *rest)

    distill_trainer.distance = looked
    for name, changes in CASES.items():
        buffers.clear()
        modes.clear()
        case = Path(folder, name)
        case.mkdir()
        distill_trainer.train(
            source(Path(model)),
            source(Path(teacher)),
            distill(**{**SHORT, **changes}),
            case,
            distill_task(),
        )
        found[name] = {
            "row": training_log.logged(case)[0],
            "buffers": [*buffers],
            "modes": [*modes],
        }
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
    folder = tmp_path_factory.mktemp("run")
    return simulated(runs, tiny_model, teacher, folder, card="rtx3060")


@pytest.mark.parametrize("case", in_turn(2, ["recorded", "disk"]))
def test_the_loss_is_that_of_a_run_on_the_cpu(case, run, tiny_model, teacher, tmp_path):
    """The kernels run in bfloat16, so they agree to its precision."""
    from agentlite.engine import distill as distill_trainer

    settings = distill(**{**SHORT, **CASES[case]})
    distill_trainer.train(source(tiny_model), source(teacher), settings, tmp_path, distill_task())
    expected, row = training_log.logged(tmp_path)[0], run[case]["row"]
    assert row["loss"] == pytest.approx(expected["loss"], rel=0.02), (row, expected)
    assert row["grad_norm"] == pytest.approx(expected["grad_norm"], rel=0.1), (row, expected)


@pytest.mark.parametrize("case", ["teacher", "student"])
def test_sampled_answers_are_learned_from_after_the_buffers_of_the_decoding_are_freed(case, run):
    assert run[case]["row"]["loss"] > 0 and run[case]["row"]["grad_norm"] > 0
    assert 0 < run[case]["row"]["new_tokens"] <= 6  # what distill_task samples
    assert run[case]["buffers"] == [0]
    assert run[case]["modes"] == run["recorded"]["modes"]  # where nothing is sampled
