"""Why torch uses no GPU: every cause by its name, with what to run."""

import pytest

from agentlite.config import unusable_gpu
from agentlite.config.gpu_profiles import Gpu
from agentlite.config.unusable_gpu import unusable

TORCH = "2.13.0+cu130"
CARD = Gpu("NVIDIA GeForce RTX 3060", 12.0, 11.0, 8.6)


@pytest.mark.parametrize(
    ("version", "hidden", "torch", "cuda", "cause", "fix"),
    [
        (None, False, TORCH, "13.0", "no NVIDIA driver is found", "doctor"),
        ("550.54", True, TORCH, "13.0", "CUDA_VISIBLE_DEVICES hides", "unset CUDA_VISIBLE_DEVICES"),
        ("580.1", False, "2.13.0+cpu", None, "for the CPU (driver 580.1 is", "torch==2.13.0"),
        (
            "550.54.14",
            False,
            TORCH,
            "13.0",
            "torch 2.13.0+cu130 is built for CUDA 13.0, which needs driver 580 or newer; this is "
            "550.54.14",
            "Update the driver, or install the torch for it: uv pip install --reinstall "
            "torch==2.10.0",
        ),
        ("470.1", False, "2.6.0", "12.4", "needs driver 525", "470.1 is too old"),
        ("", False, TORCH, "13.0", "nvidia-smi is there, and fails", "Run nvidia-smi"),
        ("580.65", False, TORCH, "13.0", "finds no GPU under driver 580.65", "nvidia-smi"),
    ],
)
def test_the_refusal_names_the_true_cause(
    version, hidden, torch, cuda, cause, fix, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(unusable_gpu, "driver", lambda: version)
    monkeypatch.setattr(unusable_gpu, "has_driver", lambda: version is not None)
    monkeypatch.setattr(unusable_gpu, "is_hidden", lambda: hidden)
    monkeypatch.setattr(unusable_gpu, "card", lambda: CARD)
    found = unusable(torch, cuda)
    assert cause in found.cause and fix in found.fix
    assert not found.cause.endswith(".")


def test_a_driver_that_does_not_say_its_version_is_not_called_too_old(monkeypatch):
    monkeypatch.setattr(unusable_gpu, "driver", lambda: None)
    monkeypatch.setattr(unusable_gpu, "has_driver", lambda: True)  # as under WSL
    monkeypatch.setattr(unusable_gpu, "is_hidden", lambda: False)
    monkeypatch.setattr(unusable_gpu, "card", lambda: None)
    assert "torch 2.13.0+cu130, built for CUDA 13.0, finds no GPU" in unusable(TORCH, "13.0").cause
    assert "bash scripts/setup.sh" in unusable("2.13.0", None).fix
