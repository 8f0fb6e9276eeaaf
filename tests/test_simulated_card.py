"""The simulated card of the tests: seen by every process that loads torch, paid for by no other."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import TIMEOUT, environment
from support.simulated_card import CARDS, environment_with
from support.simulated_cuda import needs_simulation

SEEN = "import torch; print(torch.cuda.get_device_name(), torch.ones(1, device='cuda').item())"
LOADED = "import sys; print({'torch', 'support.simulated_card'} & {*sys.modules})"


def printed(program: str, scratch: Path, **changes: str) -> str:
    """What a Python prints that was started by a Python under the simulation."""
    words = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}])"
    done = subprocess.run(
        [sys.executable, "-c", words],
        env=environment_with("t4", scratch, environment()) | changes,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    return done.stdout.strip() or done.stderr


@pytest.fixture(autouse=True)
def simulation() -> None:
    needs_simulation("t4")


@pytest.mark.torch
def test_a_process_of_a_process_sees_the_card(tmp_path: Path) -> None:
    assert printed(SEEN, tmp_path) == f"{CARDS['t4'].name} 1.0"


@pytest.mark.long
def test_a_process_that_loads_no_torch_loads_nothing_more(tmp_path: Path) -> None:
    assert printed(LOADED, tmp_path) == "set()"


@pytest.mark.torch
def test_a_hidden_card_is_not_seen(tmp_path: Path) -> None:
    program = "import torch; print(torch.cuda.is_available())"
    assert printed(program, tmp_path, CUDA_VISIBLE_DEVICES="") == "False"
