"""The engine hf in 4 and 8 bit, with bitsandbytes' own backend for the CPU: what is trained stays
float32, and a killed run goes on as if it had not been killed. Run on a CPU, not on a GPU.

For evaluation bitsandbytes repacks 4-bit weights on a CPU with AVX512, and only there: not here.
"""

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import kill_at
from support.examples import in_turn
from support.simulated_cuda import simulated
from support.trainers import dpo, grpo, preferences, prompts, rows, sft, source, task

from agentlite.workspace.digests import file_digest

pytestmark = pytest.mark.torch

FOUR, EIGHT = {"load_in_4bit": True}, {"load_in_8bit": True}
WIDE = {"lora_r": 128}  # bitsandbytes keeps 8 bits of the state of 4,096 weights and more


def allow_few_bits() -> None:
    """agentlite refuses few bits without a GPU, here alone; all else is as users run it."""
    from bitsandbytes.nn import modules

    from agentlite.engine import load

    modules.has_avx512bf16 = lambda: False
    load.refuse_few_bits = lambda: None


def use_optimizer(name: str) -> None:
    """The optimizer that GPUs get, which Unsloth would replace on a CPU."""
    from transformers.training_args import OptimizerNames

    from agentlite.engine import trainer

    run = trainer._run

    def run_with(ready: Any, *rest: Any) -> dict[str, object]:
        ready.args.optim = OptimizerNames(name)
        return run(ready, *rest)

    trainer._run = run_with


def train(stage: str, model: str, adapter: str, folder: Path, changes: dict[str, Any]) -> None:
    """One run of a stage; from the adapter, if there is one."""
    from agentlite.engine import dpo as dpo_trainer
    from agentlite.engine import grpo as grpo_trainer
    from agentlite.engine import sft as sft_trainer

    base = source(Path(model), Path(adapter) if adapter else None)
    changes = {"engine": "hf", "max_length": 512, **changes}
    if stage == "sft":
        sft_trainer.train(base, sft(**changes), folder, rows(), [])
    elif stage == "dpo":
        dpo_trainer.train(base, dpo(**changes), folder, preferences())
    else:
        grpo_trainer.train(base, grpo(**changes), folder, lambda loaded: task())


def in_child(run: Callable[[], None]) -> int:
    """Runs it in a copy of this process, which has the libraries loaded; the signal that ended
    it.
    """
    child = os.fork()
    if not child:
        try:
            run()
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or not os.WEXITSTATUS(status), "see stderr"
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def checkpoints(folder: Path) -> dict[str, dict[str, str]]:
    """The dtype of every tensor of each checkpoint's adapter."""
    from safetensors import safe_open

    found = {}
    for path in sorted((folder / "checkpoints").glob("checkpoint-*")):
        with safe_open(path / "adapter_model.safetensors", "pt") as tensors:
            found[path.name] = {
                name: tensors.get_slice(name).get_dtype()
                for name in tensors.keys()  # noqa: SIM118
            }
    return found


def optimizer_dtypes(folder: Path) -> Counter[str]:
    """Of the tensors that the optimizer keeps; bitsandbytes wraps those of 8 bit once more."""
    import torch

    found: Counter[str] = Counter()
    path = folder / "checkpoints/checkpoint-6/optimizer.pt"
    waiting = [*torch.load(path, weights_only=True)["state"].values()]
    while waiting:
        for name, value in waiting.pop().items():
            if isinstance(value, dict):
                waiting.append(value)
            elif isinstance(value, torch.Tensor):
                found[f"{name} {value.dtype}"] += 1
    return found


def killed_and_whole(
    stage: str,
    model: str,
    adapter: str,
    scratch: str,
    moment: str,
    changes: dict[str, Any],
    optimizer: str,
) -> dict[str, Any]:
    """A run, and the same run killed at `moment` and carried on: the lines of their metrics, and
    the bytes and dtypes of their adapters.
    """
    allow_few_bits()
    import bitsandbytes

    from agentlite.engine import load_libraries, on_gpu

    load_libraries("hf")
    assert not on_gpu() and bitsandbytes.__version__
    if optimizer:
        use_optimizer(optimizer)
    found: dict[str, Any] = {}
    for name in ("whole", "killed"):
        folder = Path(scratch) / name
        folder.mkdir(parents=True)

        def run(folder: Path = folder) -> None:
            train(stage, model, adapter, folder, changes)

        if name == "killed":

            def die() -> None:
                kill_at.die_at(moment)
                run()

            found["signal"] = in_child(die)
        in_child(run)
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        found[name] = {
            "metrics": [json.loads(line) for line in lines],
            "adapter": file_digest(folder / "adapter/adapter_model.safetensors"),
            "dtypes": sorted(
                {kind for kinds in checkpoints(folder).values() for kind in kinds.values()}
            ),
            "optimizer": optimizer_dtypes(folder),
        }
    return found


@pytest.fixture(scope="module")
def adapter(tiny_model, tmp_path_factory) -> Path:
    """Trained in 4 bit, for the stages that go on from one."""
    folder = tmp_path_factory.mktemp("adapter")
    simulated(train_once, tiny_model, folder, card=None)
    return folder / "adapter"


def train_once(model: str, folder: str) -> None:
    allow_few_bits()
    train("sft", model, "", Path(folder), {**FOUR, "max_steps": 2})


@pytest.mark.parametrize(
    ("stage", "changes", "moment", "optimizer"),
    in_turn(
        3,
        [
            pytest.param("sft", FOUR, "log 5", "", id="sft-4"),
            pytest.param("sft", EIGHT, "save 4", "", id="sft-8"),
            pytest.param("sft", FOUR | WIDE, "log 5", "adamw_8bit", id="sft-4-states-8"),
            pytest.param("dpo", FOUR, "log 5", "", id="dpo-4"),
            pytest.param("grpo", FOUR, "log 5", "", id="grpo-4"),
        ],
    ),
)
def test_a_killed_run_in_few_bits_ends_with_the_same_numbers(
    stage, changes, moment, optimizer, tiny_model, adapter, tmp_path
):
    base, runs = "" if stage == "sft" else adapter, tmp_path / "runs"
    request = (stage, tiny_model, base, runs, moment, changes, optimizer)
    found = simulated(killed_and_whole, *request, card=None)
    whole, killed = found["whole"], found["killed"]
    assert found["signal"] == signal.SIGKILL
    assert len(whole["metrics"]) == 6
    assert killed["metrics"] == whole["metrics"]
    assert killed["adapter"] == whole["adapter"]
    assert whole["dtypes"] == killed["dtypes"] == ["F32"]
    assert killed["optimizer"] == whole["optimizer"]
    if optimizer:
        assert whole["optimizer"]["state1 torch.uint8"] > 0
    if stage == "dpo":  # the policy starts as its reference, to the last bit
        assert whole["metrics"][0]["margin"] == 0 and whole["metrics"][0]["loss"] > 0.69
    if stage == "grpo":
        assert abs(whole["metrics"][0]["kl"]) < 1e-6


def trained_dtypes(model: str, adapter: str, scratch: str) -> dict[str, Any]:
    """What each stage trains, as its first step finds it, on a base in float16 as on a T4; and the
    gradients, all of them 2, as the scaler of float16 hands them on.
    """
    allow_few_bits()
    import torch

    from agentlite.engine import load, load_libraries, trainer

    load_libraries("hf")
    load.load_dtype = lambda: torch.float16
    found: dict[str, dict[str, Any]] = {"sft": {}, "dpo": {}, "grpo": {}}

    def look(ready: Any, *_: object) -> None:
        of_stage = found[stage]
        for name, weight in ready.model.named_parameters():
            kind = "trained" if weight.requires_grad else "ref" if ".ref." in name else "base"
            of_stage.setdefault(kind, Counter())[str(weight.dtype)] += 1
        ready.create_optimizer()
        weights = ready.optimizer.param_groups[0]["params"]
        for weight in weights:
            weight.grad = torch.full_like(weight, 2.0)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(torch.ones(()))
        scaler.unscale_(ready.optimizer)
        of_stage["unscaled"] = float(weights[0].grad.max())
        raise InterruptedError

    trainer._run = look
    for stage in found:
        folder = Path(scratch, stage)
        folder.mkdir(parents=True)
        with pytest.raises(InterruptedError):
            train(stage, model, "" if stage == "sft" else adapter, folder, FOUR)
    return found


def test_what_is_trained_is_float32_on_a_card_without_bfloat16(tiny_model, adapter, tmp_path):
    stages = simulated(trained_dtypes, tiny_model, adapter, tmp_path / "run", card=None)
    for stage, found in stages.items():
        assert found["trained"] == {"torch.float32": 28}, stage
        assert ("ref" in found) is (stage != "sft")
        assert found.get("ref", {"torch.float32": 28}) == {"torch.float32": 28}, stage
        assert found["base"] == {"torch.uint8": 14, "torch.float32": 6}, stage
        assert found["unscaled"] == pytest.approx(2.0 / 2**16)


def ask_and_merge(model: str, adapter: str, scratch: str) -> dict[str, Any]:
    allow_few_bits()
    from agentlite.engine import load
    from agentlite.engine.decoding import Decoding
    from agentlite.engine.generate import generate
    from agentlite.engine.merge import merge

    base = source(Path(model), Path(adapter))
    loaded = load.load_for_inference(base, load.Loading("hf", 512, load_in_4bit=True))
    kinds = Counter(type(module).__name__ for module in loaded.model.modules())
    decoding = Decoding(4, turn_end=2)
    answers = [
        one for batch in generate(loaded, prompts(), decoding, batch_size=2) for one in batch
    ]
    folder = Path(scratch)
    folder.mkdir()
    return {
        "kinds": kinds,
        "answers": [one.new_tokens for one in answers],
        "merged": merge(base, folder),
        "files": sorted(path.name for path in folder.iterdir()),
    }


def test_a_model_in_4_bit_answers_and_its_adapter_is_merged_into_plain_weights(
    tiny_model, adapter, tmp_path
):
    found = simulated(ask_and_merge, tiny_model, adapter, tmp_path / "merged", card=None)
    assert found["kinds"]["Linear4bit"] == 28  # 14 of bitsandbytes, and PEFT's around each
    assert len(found["answers"]) == 5 and all(found["answers"])
    assert found["merged"] == "float32" and "model.safetensors" in found["files"]
    shutil.rmtree(tmp_path / "merged")
