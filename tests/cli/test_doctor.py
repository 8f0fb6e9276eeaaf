"""`agentlite doctor` finds what is in the way, and says what to do about it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.samples import ROOT

from agentlite.cli.commands import doctor as checks
from agentlite.cli.commands.doctor import Facts
from agentlite.config import this_machine

CARD = this_machine.Gpu("NVIDIA GeForce RTX 4090", 24.0, 23.0)
BARE = Facts(Path("runs/default"), None, None)


def doctor(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    every = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "NO_COLOR": "1",
        **environment,
    }
    command = [sys.executable, "-m", "agentlite", "doctor", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=every, timeout=120)


def driver(folder: Path, answers: str) -> str:
    """A PATH with an nvidia-smi of our own first."""
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{answers}\n", encoding="utf-8")
    (folder / "nvidia-smi").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch):
    """Pretends that packages have other versions; "" for one that is not there."""
    real = checks.version

    def pretend(**versions: str) -> None:
        monkeypatch.setattr(
            checks, "version", lambda name: versions.get(name.replace("-", "_"), real(name))
        )

    return pretend


@pytest.mark.long
def test_one_json_object_and_a_table_and_torch_is_not_imported(tmp_path):
    done = doctor("--json", "--run", tmp_path, CUDA_VISIBLE_DEVICES="-1")
    told = json.loads(done.stdout)
    assert done.returncode == bool(told["problems"])
    names = [one["name"] for one in told["findings"]]
    every = {"python", "packages", "gpu", "disk", "can train"}
    assert every <= {*names}
    assert all(set(one) == {"name", "state", "detail", "fix"} for one in told["findings"])
    assert all(bool(one["fix"]) == (one["state"] != "ok") for one in told["findings"])
    table = doctor("--run", tmp_path).stdout
    for name in names:
        assert f"  {name} " in table
    program = (
        "import sys; from agentlite.cli.commands.doctor import findings; from pathlib import Path; "
        "findings(Path('r')); "
    )
    program += "print(*{'torch', 'numpy', 'transformers'} & sys.modules.keys())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert loaded.stdout == "\n", loaded.stderr


@pytest.mark.long
def test_a_gpu_that_torch_cannot_use_is_a_problem_and_exit_1(tmp_path):
    card = "0, GPU-a, NVIDIA GeForce RTX 4090, 24564, 23500, 8.9"
    smi = f"case $1 in *driver_version*) echo 550.54.14;; *) echo '{card}';; esac"
    done = doctor("--json", PATH=driver(tmp_path, smi), CUDA_VISIBLE_DEVICES="0")
    found = {one["name"]: one for one in json.loads(done.stdout)["findings"]}
    assert "RTX 4090, 22.9 of 24.0 GB free, driver 550.54.14" in found["gpu"]["detail"]
    can_train = found["can train"]["detail"]
    assert "calculated for 22.9 GiB on NVIDIA GeForce RTX 4090" in can_train
    assert "in 4 bit up to Qwen/Qwen2.5-14B-Instruct" in can_train
    assert "in 16 bit up to Qwen/Qwen3-8B" in can_train
    if checks.version("torch").endswith("+cpu"):
        assert done.returncode == 1
        assert found["torch"]["state"] == "problem"
        assert "torch==2.10.0" in found["torch"]["fix"]  # which this driver runs


def test_without_the_extra_is_a_warning_and_with_half_of_it_a_problem(installed):
    train = {name.replace("-", "_"): "" for name in checks.requirements("agentlite")}
    installed(**train)
    _, found = checks.packages(BARE)
    assert found.state == "warning"
    assert "agentlite[train]" in found.fix
    installed(trl="")
    _, found = checks.packages(BARE)
    assert (found.state, found.detail) == ("problem", "not installed: trl")


def test_a_check_that_fails_is_a_finding_and_the_others_go_on(monkeypatch):
    def breaks(facts: Facts):
        raise OSError("the disk is on fire")
        yield

    monkeypatch.setattr(checks, "CHECKS", [breaks, checks.packages])
    found = checks.findings(Path("runs/default"))
    assert [one.name for one in found] == ["breaks", "python", "packages"]
    assert "on fire" in found[0].detail


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        ({}, "ok"),
        ({"driver": ""}, "problem"),
        ({"driver": "550", "card": CARD}, "ok"),
    ],
)
def test_a_gpu_is_described_or_its_fault_is_named(monkeypatch, facts, state):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (found,) = checks.gpu(BARE._replace(**facts))
    assert found.state == state
