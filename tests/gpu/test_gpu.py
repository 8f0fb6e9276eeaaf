"""The paths that only a CUDA machine takes: 4-bit weights, Unsloth's kernels, packing. Skipped
where there is none. Each case is a process of its own: Unsloth changes the libraries for good.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import kill_at, processes
from support.samples import DATA
from support.simulated_cuda import simulated

import agentlite
from agentlite.engine import watch

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def cuda() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")


@pytest.fixture
def model(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--gpu-model"))


def sft_and_eval(model: str, run: str, engine: str, settings: dict[str, bool]) -> dict[str, Any]:
    agentlite.prep(str(DATA / "weather.jsonl"), run=run, model=model, dev=0.2, test=0.3)
    trained = agentlite.sft(
        run=run,
        engine=engine,
        max_steps=12,
        learning_rate=1e-3,
        batch_size=2,
        save_steps=6,
        gradient_accumulation=1,
        warmup_ratio=0.0,
        **settings,
    )
    four_bit = settings.get("load_in_4bit", False)
    result = agentlite.evaluate(
        run=run, engine=engine, model=["sft"], max_new_tokens=48, load_in_4bit=four_bit
    )
    return {"sft": trained.figures, "eval": result.figures["sft"]}


@pytest.mark.parametrize(
    ("engine", "settings"),
    [
        ("unsloth", {}),
        ("unsloth", {"load_in_4bit": True}),
        ("unsloth", {"packing": True}),
        ("hf", {}),
        ("hf", {"load_in_4bit": True}),
    ],
    ids=["unsloth-16bit", "unsloth-4bit", "unsloth-packed", "hf-16bit", "hf-4bit"],
)
def test_prep_sft_and_eval_run_and_the_loss_falls(
    model: str, engine: str, settings: dict[str, bool], tmp_path: Path
) -> None:
    figures = simulated(sft_and_eval, model, tmp_path / "run", engine, settings, card=None)
    assert figures["sft"]["last_loss"] < figures["sft"]["first_loss"]
    assert figures["eval"]["prompts"] > 0


def pairs_dpo_and_grpo(model: str, run: str, engine: str, four_bit: bool) -> dict[str, Any]:
    given = {"run": run, "engine": engine, "load_in_4bit": four_bit}
    short = {"max_steps": 4, "save_steps": 2, "gradient_accumulation": 1}
    agentlite.prep(str(DATA / "weather.jsonl"), run=run, model=model, dev=0.2, test=0.3)
    agentlite.sft(**given, **short, batch_size=2, learning_rate=1e-3)
    sampled = agentlite.pairs(**given, num_samples=4, max_new_tokens=48, gold=True)
    preferred = agentlite.dpo(**given, **short, batch_size=2)
    rewarded = agentlite.grpo(**given, **short, batch_size=4, max_new_tokens=48)
    return {"pairs": sampled.figures, "dpo": preferred.figures, "grpo": rewarded.figures}


@pytest.mark.parametrize(
    ("engine", "four_bit"),
    [("unsloth", True), ("unsloth", False), ("hf", False)],
    ids=["unsloth-4bit", "unsloth-16bit", "hf-16bit"],
)
def test_pairs_dpo_and_grpo_go_on_from_the_tuned_adapter(
    model: str, engine: str, four_bit: bool, tmp_path: Path
) -> None:
    """That the reference is the adapter they start from is asserted by the run itself: log-ratios
    and KL of 0.
    """
    figures = simulated(pairs_dpo_and_grpo, model, tmp_path / "run", engine, four_bit, card=None)
    assert figures["pairs"]["candidates"] == 4 * figures["pairs"]["steps"]
    assert figures["dpo"]["first_loss"] == pytest.approx(0.6931, abs=1e-2)
    assert figures["grpo"]["steps"] == 4


def grpo_by_vllm(model: str, run: str, engine: str) -> list[dict[str, Any]]:
    given = {"run": run, "engine": engine}
    short = {"max_steps": 2, "save_steps": 2, "gradient_accumulation": 1}
    agentlite.prep(str(DATA / "weather.jsonl"), run=run, model=model, dev=0.2, test=0.3)
    agentlite.sft(**given, **short, batch_size=2, learning_rate=1e-3)
    agentlite.grpo(**given, **short, batch_size=4, max_new_tokens=48, vllm=True)
    return watch.read_metrics(Path(run, "grpo"))


@pytest.mark.parametrize("engine", ["unsloth", "hf"])
def test_vllm_samples_by_the_probabilities_that_are_trained(
    model: str, engine: str, tmp_path: Path
) -> None:
    pytest.importorskip("vllm")
    rows = simulated(grpo_by_vllm, model, tmp_path / "run", engine, card=None)
    assert [row["step"] for row in rows] == [1, 2]
    assert rows[0]["sampler_gap"] < 0.1
    assert all(row["importance"] == pytest.approx(1, abs=0.1) for row in rows)


def losses(model: str, run: Path, engine: str, *settings: str, moment: str = "") -> list[float]:
    """Of the six steps of an sft that is killed at `moment`, if there is one, and carried on."""
    rows = str(DATA / "weather.jsonl")
    split = ["--dev", "0.2", "--test", "0.3"]
    processes.agentlite("prep", rows, "--run", run, "--model", model, *split, new=True)
    words = ["sft", "--run", str(run), "--engine", engine, *settings, "--batch-size", "2"]
    words += ["--max-steps", "6", "--save-steps", "2", "--gradient-accumulation", "1"]
    if moment:
        command = [sys.executable, str(kill_at.__file__), moment, *words]
        killed = subprocess.run(command, env=processes.environment(), timeout=processes.TIMEOUT)
        assert killed.returncode == -signal.SIGKILL
    done = processes.agentlite(*words, new=True)
    assert done.returncode == 0, done.stderr.decode()
    lines = (run / "sft/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["loss"] for line in lines]


@pytest.mark.parametrize("engine", ["unsloth", "hf"])
def test_a_killed_run_in_four_bits_goes_on_with_the_losses_of_a_whole_one(
    model: str, engine: str, tmp_path: Path
) -> None:
    """Not to the last bit: a card adds in any order."""
    whole = losses(model, tmp_path / "whole", engine, "--load-in-4bit")
    killed = losses(model, tmp_path / "killed", engine, "--load-in-4bit", moment="log 5")
    assert len(whole) == 6
    assert killed == pytest.approx(whole, rel=0.02)
