"""The simulated card of the tests: seen by every process that loads torch, paid for by no other."""

import subprocess
import sys
from pathlib import Path

import pytest
from support import simulated_card
from support.processes import TIMEOUT, environment
from support.simulated_card import CARDS, environment_with
from support.simulated_cuda import needs_simulation, simulated

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


def rotated() -> list[float]:
    """By how much torch's rotation differs from the kernel's: with and without positions, forward
    and backward, of queries and keys.
    """
    import torch
    from unsloth.kernels import rope_embedding

    torch.manual_seed(0)
    q, k = torch.randn(2, 4, 5, 16).bfloat16(), torch.randn(2, 2, 5, 16).bfloat16()
    angles = torch.randn(20, 8).repeat(1, 2)
    cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
    differences = []
    for places in (None, torch.randint(0, 20, (10,), dtype=torch.int32)):
        for backward in (False, True):
            ways = []
            for most in (10, 0):  # tokens that the kernel takes
                simulated_card.KERNEL_TOKENS = most
                out = torch.empty_like(q), torch.empty_like(k)
                rope_embedding._rope_launch(
                    *(q, out[0], k, out[1], cos, sin, places, places is not None, backward),
                    *(False, rope_embedding._eager_kernel),
                )
                ways.append(torch.cat([one.flatten() for one in out]).float())
            differences.append((ways[0] - ways[1]).abs().max().item())
    return differences


@pytest.mark.torch
def test_a_long_row_is_rotated_as_the_kernel_would() -> None:
    """To a bit of bfloat16; the numbers reach 4."""
    assert max(simulated(rotated)) < 0.02


def normed() -> list[float]:
    """By how much torch's norms and gradients differ from the kernel's, with a weight that is
    trained and with a frozen one.
    """
    import torch
    from unsloth.kernels.rms_layernorm import Fast_RMS_Layernorm

    torch.manual_seed(0)
    x, weight = torch.randn(2, 3, 24).bfloat16(), torch.randn(24).bfloat16()
    differences = []
    for trained in (False, True):
        ways = []
        for most in (6, 0):  # tokens that the kernel takes
            simulated_card.KERNEL_TOKENS = most
            given = x.clone().requires_grad_(), weight.clone().requires_grad_(trained)
            output = Fast_RMS_Layernorm.apply(*given, 1e-5)
            output.square().sum().backward()
            gradients = [one.grad for one in given if one.grad is not None]
            assert len(gradients) == 1 + trained
            ways.append(torch.cat([one.float().flatten() for one in (output, *gradients)]))
        differences.append(((ways[0] - ways[1]).abs() / ways[0].abs().clamp(1)).max().item())
    return differences


@pytest.mark.torch
def test_many_rows_are_normed_as_the_kernel_would() -> None:
    """To a bit or two of bfloat16."""
    assert max(simulated(normed)) < 0.02


def summed() -> list[float]:
    """By how much torch's log-probabilities, statistics and gradients differ from the kernel's:
    with and without a cap on the logits, over two chunks of the vocabulary.
    """
    import torch
    from trl.kernels.chunked_logprob import ChunkedLogProbFunction

    torch.manual_seed(0)
    hidden, weight = torch.randn(6, 8), torch.randn(2000, 8)
    targets = torch.tensor([0, 5, 1499, 1500, 1999, 700])
    differences = []
    for cap in (None, 3.0):
        ways = []
        for most in (6, 0):  # tokens that the kernel takes
            simulated_card.KERNEL_TOKENS = most
            given = [one.clone().requires_grad_() for one in (hidden, weight)]
            outputs = ChunkedLogProbFunction.apply(*given, None, targets, 0.7, 1500, cap, 1.3)
            (outputs[0].sum() + 2 * outputs[1].sum()).backward()
            gradients = [one.grad for one in given]
            ways.append(torch.cat([one.float().flatten() for one in (*outputs, *gradients)]))
        differences.append((ways[0] - ways[1]).abs().max().item())
    return differences


@pytest.mark.torch
def test_many_logits_are_summed_as_the_kernel_would() -> None:
    assert max(simulated(summed)) < 1e-4
