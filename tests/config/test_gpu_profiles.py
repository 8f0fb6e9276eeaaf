"""agentlite.config.gpu_profiles: what nvidia-smi says of a card, and the profile for its memory."""

import os
import subprocess
from itertools import pairwise
from types import SimpleNamespace

import pytest

from agentlite.config import gpu_profiles
from agentlite.config.gpu_profiles import PRIVATE, PROFILES, Gpu, keep_private, profile_for
from agentlite.config.resolve import profile_section
from agentlite.config.settings import COMMANDS

T4 = "Tesla T4, 15360, 14848, 7.5\n"


@pytest.fixture
def driver(monkeypatch):
    """A function: the output of nvidia-smi, or its error -> the card that is found."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def card_of(answer):
        def run(*_, **__):
            if isinstance(answer, Exception):
                raise answer
            return SimpleNamespace(stdout=answer)

        monkeypatch.setattr(subprocess, "run", run)
        gpu_profiles.card.cache_clear()
        return gpu_profiles.card()

    yield card_of
    gpu_profiles.card.cache_clear()


@pytest.mark.parametrize(
    ("answer", "card"),
    [
        (T4, Gpu("Tesla T4", 15, 14.5, 7.5)),
        (T4 + "NVIDIA A100, 81920, 81920, 8.0\n", Gpu("Tesla T4", 15, 14.5, 7.5)),
        ("One, with a comma, 1024, 512, 8.6\n", Gpu("One, with a comma", 1, 0.5, 8.6)),
        ("Tesla T4, [N/A], [N/A], 7.5\n", None),
        ("No devices were found\n", None),
        ("", None),
        (FileNotFoundError("nvidia-smi"), None),
        (subprocess.CalledProcessError(9, "nvidia-smi"), None),
        (subprocess.TimeoutExpired("nvidia-smi", 10), None),
    ],
)
def test_the_card_is_the_first_that_the_driver_names_with_its_memory_in_gb(answer, card, driver):
    assert driver(answer) == card
    assert gpu_profiles.has_gpu() is (card is not None)
    assert gpu_profiles.gpu_has_bf16() is (None if card is None else card.capability >= 8)


@pytest.mark.parametrize(("devices", "hidden"), [("", True), ("-1", True), ("0", False)])
def test_a_card_that_is_hidden_is_not_there(devices, hidden, driver, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices)
    assert (driver(T4) is None) is hidden


@pytest.mark.parametrize(
    ("capability", "bf16"), [(7.0, False), (7.5, False), (8.0, True), (8.6, True), (12.0, True)]
)
def test_a_card_computes_in_bfloat16_from_ampere_on(capability, bf16):
    assert Gpu("x", 1, 1, capability).bf16 is bf16


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
