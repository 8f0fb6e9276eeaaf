"""scripts/gpu.sh runs stages on a toy, without a card, and run again does what is missing."""

import subprocess
import sys
from pathlib import Path

import pytest
from support import processes
from support.samples import ROOT


@pytest.mark.torch
def test_the_stages_run_on_a_toy_and_once(tmp_path: Path) -> None:
    environment = {"USE_PYTHON": sys.executable, "TOY": "1", "OUT": str(tmp_path / "out")}
    command = ["bash", str(ROOT / "scripts/gpu.sh"), "model", "prep", "sft", "grpo_step"]
    for said in ("grpo_step: passed", ""):
        done = subprocess.run(
            command,
            env={**processes.environment(), **environment},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout
        assert said in done.stdout and bool(said) == bool(done.stdout)
