"""agentlite.config.gpu_profiles: what nvidia-smi says of a card, and the profile for its memory."""

import os
from itertools import pairwise

import pytest

from agentlite.config.gpu_profiles import PRIVATE, PROFILES, keep_private, profile_for
from agentlite.config.resolve import profile_section
from agentlite.config.settings import COMMANDS


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
