"""ZeRO-2 and ZeRO-3 in two processes, killed and carried on: what one process gives, written once,
ended alike.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.examples import ALL
from support.processes import free_port
from support.samples import DATA, ROOT

import agentlite
from agentlite.engine import checkpoints, watch
from agentlite.workspace.lookup import find_model

pytest.importorskip("deepspeed")
SETTINGS = {
    "full": "true",
    "engine": "hf",
    "max_steps": "5",
    "save_steps": "2",
    "batch_size": "1",
    "learning_rate": "1e-2",
    "warmup_ratio": "0",
    "profile": "cpu",
}


# ZeRO-3 shares out all that ZeRO-2 does, and the weights too
STAGES = [2, 3] if ALL else [3]


@pytest.fixture(scope="module")
def run(tiny_model, tmp_path_factory):
    """A workspace with a prep, and an sft of all weights in one process."""
    run = str(tmp_path_factory.mktemp("shared") / "run")
    agentlite.prep(
        str(DATA / "weather.jsonl"), run=run, model=str(tiny_model), seed=3, profile="cpu"
    )
    agentlite.sft(run=run, out="one", gradient_accumulation=4, **SETTINGS)
    return run


def command(run: str, *more: str) -> list[str]:
    given = {**SETTINGS, "gradient_accumulation": "2"}
    profile = ["--profile", given.pop("profile")]
    told = [text for key, value in given.items() for text in ("--set", f"sft.{key}={value}")]
    return ["sft", "--run", run, "--json", *profile, *told, *more]


def launched(
    program: list[str], arguments: list[str], count: int = 2
) -> subprocess.CompletedProcess[str]:
    """By torchrun, in processes of one thread."""
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        str(count),
    ]
    return subprocess.run(
        [*launcher, *program, *arguments],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def figures(folder: Path) -> list[tuple[Any, ...]]:
    return [
        (row["step"], row["loss"], row.get("dev_loss", 0.0)) for row in watch.read_metrics(folder)
    ]


@pytest.mark.parametrize("stage", STAGES)
def test_two_processes_killed_and_carried_on_give_what_one_gives(stage, run):
    folder, one = Path(run) / f"zero{stage}", Path(run) / "one"
    asked = command(run, "--out", folder.name, "--deepspeed", f"deepspeed/zero{stage}.json")
    killed = launched(["--", str(ROOT / "tests/support/kill_at.py"), "log 4"], asked)
    assert killed.returncode == -9, killed.stderr
    assert len(figures(folder)) == 3 and not (folder / "model").exists()
    assert checkpoints.newest_whole(folder) == folder / "checkpoints" / "checkpoint-2"

    resumed = launched(["-m", "--", "agentlite"], asked)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["figures"]["steps"] == 5  # by one process, once
    assert "carrying on after step 2 of 5" in resumed.stderr
    expected = [pytest.approx(row, rel=1e-5) for row in figures(one)]
    assert figures(folder) == expected
    assert_same_model(folder / "model", one / "model")
    assert find_model(folder.name, Path(run)).base == str(folder / "model")


def assert_same_model(folder: Path, other: Path) -> None:
    """As transformers loads them: rounding is magnified by Adam, where a gradient is all but 0."""
    from transformers import AutoModelForCausalLM

    models = [AutoModelForCausalLM.from_pretrained(one).state_dict() for one in (folder, other)]
    for name, weights in models[0].items():
        assert (weights - models[1][name]).abs().mean() < 1e-5, name


def test_what_the_first_process_refuses_ends_both_with_its_code_and_is_said_once(run):
    place = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    asked = command(
        run, "--out", "one", "--deepspeed", "deepspeed/zero2.json"
    )  # a folder of another plan
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "agentlite", *asked],
            text=True,
            stderr=subprocess.PIPE,
            env={**os.environ, **place, "RANK": str(rank)},
        )
        for rank in (0, 1)
    ]
    said = [process.communicate(timeout=100)[1] for process in both]
    assert [process.returncode for process in both] == [3, 3]
    assert "with other settings or inputs" in said[0] and "processes absent" in said[0]
    assert said[1] == ""
