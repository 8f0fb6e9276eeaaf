"""The notice after a training that took far more of a GPU than was calculated."""

from pathlib import Path
from typing import Any

import pytest

from agentlite.config import resolve
from agentlite.engine.planning import overrun
from agentlite.engine.planning.estimate import load_of
from agentlite.engine.planning.gpus import with_memory
from agentlite.engine.planning.memory import GIB, memory
from agentlite.engine.planning.model_shape import find_shape

SMALL = "smollm2-135m"
ANSWERS = {"group_size": 8, "max_new_tokens": 64, "gradient_accumulation": 1}
# What an H200 reserved for rows of up to 680 tokens.
SEEN = [
    ("sft", {"batch_size": 8}, 0.59, False),
    ("dpo", {"batch_size": 8}, 0.75, False),
    ("grpo", {**ANSWERS, "batch_size": 64, "advantage": "value", "rollouts": 256}, 20.18, True),
    ("grpo", {**ANSWERS, "batch_size": 256}, 14.61, True),
    ("distill", {"batch_size": 16, "max_new_tokens": 64, "gradient_accumulation": 1}, 6.38, True),
]


def look(command: str, gib: float, base: str = SMALL, **changed: Any) -> None:
    lengths = {"max_length": 704, "engine": "unsloth", "load_in_4bit": False}
    settings = resolve.resolve(
        command, resolve.Given({**lengths, **changed}, profile="rtx4090")
    ).settings
    overrun.notice_overrun(command, settings, base, Path(), {"gpu_gib": gib})


@pytest.mark.parametrize(("command", "changed", "gib", "far_more"), SEEN)
def test_a_card_that_held_far_more_than_was_calculated_is_reported(
    command, changed, gib, far_more, monkeypatch, capsys
):
    monkeypatch.setattr(overrun, "machine_of", lambda _: with_memory(140))
    look(command, gib, **changed)
    shown = capsys.readouterr().err
    assert (f"{command}: the GPU held {gib} GiB, and at most" in shown) == far_more
    assert ("agentlite doctor" in shown) == far_more


def test_far_more_is_half_as_much_again_and_a_gibibyte_beyond_rows_of_max_length(
    monkeypatch, capsys
):
    monkeypatch.setattr(overrun, "machine_of", lambda _: with_memory(140))
    changes = {"max_length": 704, "engine": "unsloth", "load_in_4bit": False, "batch_size": 8}
    settings = resolve.resolve("sft", resolve.Given(changes, profile="rtx4090")).settings
    load = load_of("sft", settings, find_shape(SMALL), True)
    most = 1.5 * (memory(load).total - load.regime.overhead) / GIB + 1
    for gib, is_reported in ((most - 0.01, False), (most + 0.01, True)):
        look("sft", gib, **changes)
        assert bool(capsys.readouterr().err) is is_reported


def test_nothing_is_compared_with_a_plan_that_cannot_be_made(monkeypatch, capsys):
    monkeypatch.setattr(overrun, "machine_of", lambda _: with_memory(24))
    look("sft", 20.0, base="some/model")
    look("grpo", 20.0, vllm=True)
    assert capsys.readouterr().err == ""
