"""agentlite.config.this_machine: what nvidia-smi says of a card, and the profile for its memory."""

import os
import subprocess
import sys
from itertools import pairwise

import pytest

from agentlite.config.resolve import profile_section
from agentlite.config.settings import COMMANDS
from agentlite.config.this_machine import PRIVATE, PROFILES, keep_private, profile_for


def test_the_profile_is_the_largest_that_the_free_memory_is_enough_for():
    assert [*PROFILES.values()] == sorted(PROFILES.values(), reverse=True)
    for name, least in PROFILES.items():
        assert profile_for(least) == name
    for (_, least), (smaller, _) in pairwise(PROFILES.items()):
        assert profile_for(least - 0.01) == smaller
    assert profile_for(1000) == "a100" and profile_for(-1) == "rtx3060"


@pytest.mark.parametrize("name", [*PROFILES, "gpu", "cpu"])
def test_a_profile_is_of_all_commands_that_load_a_model_and_in_one_precision(name):
    loading = {
        command
        for command, settings in COMMANDS.items()
        if {"batch_size", "load_in_4bit"} <= {*settings.__struct_fields__}
    }
    sections = {command: profile_section(name, command) for command in loading}
    assert {"sft", "pairs", "rollout", "eval"} <= loading
    assert all("batch_size" in section for section in sections.values()), sections
    assert len({section.get("load_in_4bit", False) for section in sections.values()}) == 1


def test_no_library_reports_unless_the_environment_says_so(monkeypatch):
    for name in PRIVATE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DO_NOT_TRACK", "0")
    keep_private()
    assert {name: os.environ[name] for name in PRIVATE} == {**PRIVATE, "DO_NOT_TRACK": "0"}
    assert {*PRIVATE.values()} == {"1"}


@pytest.mark.parametrize(
    ("visible", "name"),
    [
        (None, "NVIDIA GeForce RTX 4090"),
        ("1", "NVIDIA GeForce RTX 3060"),
        ("1,0", "NVIDIA GeForce RTX 3060"),
        ("GPU-bb", "NVIDIA GeForce RTX 3060"),
        ("MIG-dd44", "NVIDIA GeForce RTX 4090"),
        ("2", "NVIDIA GB10"),
        ("7", None),
        ("-1", None),
    ],
)
def test_of_several_cards_the_one_that_is_visible_is_planned_for(visible, name, tmp_path):
    """The last one shares the memory of the machine, and names none of its own."""
    (tmp_path / "nvidia-smi").write_text(
        "#!/bin/sh\n"
        "echo '0, GPU-aa11, NVIDIA GeForce RTX 4090, 24564, 24000, 8.9'\n"
        "echo '1, GPU-bb22, NVIDIA GeForce RTX 3060, 12288, 11900, 8.6'\n"
        "echo '2, GPU-cc33, NVIDIA GB10, [N/A], [N/A], 12.1'\n",
    )
    (tmp_path / "nvidia-smi").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    program = "from agentlite.engine.planning.gpus import machine_of; print(machine_of('auto'))"
    command = [sys.executable, "-c", program]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert f"gpu={name is not None}" in told.stdout and f"name={name or ''!r}" in told.stdout
    if name == "NVIDIA GB10":
        assert "capacity=0" not in told.stdout
