"""The driver's version against the CUDA that a torch is built for; no driver is asked."""

import subprocess
from types import SimpleNamespace

import pytest

from agentlite.config import gpu_driver
from agentlite.config.gpu_driver import has_driver, is_hidden, is_too_old


@pytest.mark.parametrize(
    ("device", "there"), [("/dev/dxg", True), ("/dev/nvidiactl", True), ("", False)]
)
def test_a_driver_without_nvidia_smi_is_one(device, there, monkeypatch: pytest.MonkeyPatch):
    """As under WSL, or in a container with the devices alone."""
    monkeypatch.setattr(gpu_driver, "driver", lambda: None)
    monkeypatch.setattr(gpu_driver.os.path, "exists", lambda path: path == device)
    assert gpu_driver.has_driver() is there


@pytest.mark.parametrize(
    ("version", "cuda", "too_old"),
    [("535.1", 12, False), ("535.1", 13, True), ("580", 13, False), ("470.2", 0, False)],
)
def test_the_oldest_driver_for_each_cuda(version, cuda, too_old):
    assert is_too_old(version, cuda) is too_old


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ("550.54.14\n550.54.14\n", "550.54.14"),
        ("", ""),
        ("Failed to initialize NVML\n", ""),
        (subprocess.CalledProcessError(9, "nvidia-smi"), ""),
        (subprocess.TimeoutExpired("nvidia-smi", 10), ""),
        (PermissionError("nvidia-smi"), ""),
        (FileNotFoundError("nvidia-smi"), None),
    ],
)
def test_a_driver_that_fails_is_another_thing_than_none(
    answer, version, monkeypatch: pytest.MonkeyPatch
):
    def run(*_: object, **__: object) -> SimpleNamespace:
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(stdout=answer)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(gpu_driver.os.path, "exists", lambda path: False)
    assert gpu_driver.driver() == version and has_driver() is (version is not None)


@pytest.mark.parametrize(
    ("devices", "hidden"), [(None, False), ("", True), ("-1", True), ("0", False)]
)
def test_a_card_is_hidden_by_a_variable_that_names_none(devices, hidden, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if devices is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices)
    assert is_hidden() is hidden
