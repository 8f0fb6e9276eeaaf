"""`--profile auto` of a stage: what is planned, and what stays as a stage was begun."""

from pathlib import Path
from typing import Any

import pytest

from agentlite.config import this_machine
from agentlite.config.resolve import UserSettings, plan_settings, resolve
from agentlite.core.row_files import write_json
from agentlite.engine.planning.estimate import RowLengths, plan
from agentlite.engine.planning.gpus import machine_of
from agentlite.engine.planning.model_shape import find_shape
from agentlite.stages import api
from agentlite.workspace.lookup import PLAN, Plan, RunTarget
from agentlite.workspace.stage_folder import status_for

MODEL = "Qwen/Qwen2.5-7B-Instruct"
CHOSEN = ("load_in_4bit", "batch_size", "gradient_accumulation")


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch):
    """Sets the GB that are free on a card of 24."""

    def set_free(gib: float) -> None:
        card = this_machine.Gpu("NVIDIA GeForce RTX 4090", 24.0, gib)
        monkeypatch.setattr(this_machine, "find_gpu", lambda: card)

    set_free(23.5)
    return set_free


def settled(command: str, run: Path, force: bool = False, **flags: Any):
    flags.setdefault("model", (MODEL,) if command == "eval" else MODEL)
    return api.settle(command, UserSettings(flags), RunTarget(run, command, force))


def values(resolved) -> list[Any]:
    return [getattr(resolved.settings, key, None) for key in CHOSEN]


def begin(folder: Path, command: str, resolved, name: str = PLAN) -> None:
    """Writes the plan of a stage, as the stage does first of all."""
    folder.mkdir(parents=True)
    begun = Plan(command, plan_settings(command, resolved.settings), {})
    write_json(folder / name, begun)


@pytest.mark.parametrize("command", ["sft", "dpo", "grpo", "distill"])
def test_a_stage_that_was_begun_keeps_what_was_chosen_whatever_memory_is_free_now(
    command, free, tmp_path
):
    before = settled(command, tmp_path)
    begin(tmp_path / command, command, before)
    for gib in (5, 12, 23.9):
        free(gib)
        now = settled(command, tmp_path)
        assert now.settings == before.settings
        assert "was begun" in now.origin["batch_size"]
        # the stage compares plans, and carries on
        again = Plan(command, plan_settings(command, now.settings), {})
        assert status_for(tmp_path / command, again) == "half"
    free(5)
    assert values(settled(command, tmp_path, force=True)) != values(before)
    assert settled(command, tmp_path, batch_size=3).settings.batch_size == 3


CARDS = [
    ("NVIDIA GeForce RTX 2070", 8, 7.5),
    ("NVIDIA GeForce RTX 3060", 12, 8.6),
    ("Tesla T4", 15, 7.5),
    ("NVIDIA GeForce RTX 4090", 24, 8.9),
    ("NVIDIA A100-SXM4-40GB", 39.6, 8.0),
    ("NVIDIA H100 80GB HBM3", 79.6, 9.0),
    ("NVIDIA H200", 139.8, 9.0),
]


@pytest.mark.parametrize(("name", "gib", "capability"), CARDS)
@pytest.mark.parametrize("command", ["sft", "dpo", "grpo", "distill", "pairs", "eval"])
def test_any_card_of_the_driver_gets_settings_that_fit_and_keep_a_step(
    command, name, gib, capability, tmp_path, monkeypatch
):
    card = this_machine.Gpu(name, gib, 0.97 * gib, capability)
    monkeypatch.setattr(this_machine, "find_gpu", lambda: card)
    small = "Qwen/Qwen2.5-1.5B-Instruct"
    found = settled(command, tmp_path, model=(small,) if command == "eval" else small)
    settings, origin = found.settings, found.origin["load_in_4bit"]
    machine = machine_of("auto")
    assert plan(settings, find_shape(small), machine, RowLengths()).gib.fits
    assert not settings.load_in_4bit or command == "distill"  # from 8 GB on, without a teacher
    if command in ("sft", "dpo", "grpo", "distill"):
        assert settings.batch_size * settings.gradient_accumulation == 16
    assert name in origin and ("float16" in origin) == (capability < 8)


def test_with_vllm_a_named_profile_takes_16_bit_where_it_fits(free, tmp_path):
    """For 4 bit vLLM needs a package more."""
    small, target = "Qwen/Qwen2.5-1.5B-Instruct", RunTarget(tmp_path, "grpo", False)
    for vllm in (False, True):
        given = UserSettings({"model": small, "vllm": vllm}, profile="rtx4090")
        assert api.settle("grpo", given, target).settings.load_in_4bit != vllm


def test_on_standby_the_cache_of_vllm_is_not_there_while_it_trains(tmp_path):
    shape, machine = find_shape("Qwen/Qwen2.5-1.5B-Instruct"), machine_of("rtx3060")
    needed = {}
    for levers in ((), ("standby",)):
        flags = {"vllm": True, "vllm_levers": levers, "load_in_4bit": False}
        settings = resolve("grpo", UserSettings(flags, profile="rtx3060")).settings
        needed[levers] = plan(settings, shape, machine, RowLengths()).gib
    (always, standby) = needed.values()
    assert standby.total < always.total - always.terms["kv_cache"] / 2
    assert standby.moments["sampling"] < always.total
