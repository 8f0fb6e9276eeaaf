"""Models that act: which tasks are in which split, how many worlds may be lost, which protocol."""

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from support.generated_rollouts import rollout, says
from support.generated_run import stage

from agentlite.config.settings import RolloutSettings
from agentlite.core.errors import USAGE, UserError
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.trajectories import RolloutKey, SimulatedUserTurns, UserFault
from agentlite.stages.acting import (
    _refuse_too_long,
    _setup,
    figures_of,
    split_of_task,
)
from agentlite.workspace.model_source import Source

BASE = Source("smollm2-135m", "smollm2-135m", None, "digest")


def test_tasks_of_a_group_are_in_one_split_and_others_are_dealt_out():
    settings = RolloutSettings(env="shop.py:Shop", dev=0.2, test=0.4)
    alone = [EnvironmentTask(f"{n}", (), {}) for n in range(60)]
    splits = [split_of_task(settings, task) for task in alone]
    assert {*splits} == {"train", "dev", "test"} and splits.count("dev") < splits.count("test")
    together = [task._replace(group="of one dialog") for task in alone]
    assert len({split_of_task(settings, task) for task in together}) == 1


def acting(**changes: Any) -> Any:
    settings = RolloutSettings(env="shop.py:Shop", **changes)
    return SimpleNamespace(settings=settings, name_of=lambda task: f"{task} (line 3)")


@pytest.mark.parametrize("others", [[], ["user"], ["length", "world"]])
def test_rollouts_that_cannot_begin_are_refused_where_none_can(others):
    """One that ends for want of room later on has begun."""
    ended = [("length", []), *((one, [says("Yes.")]) for one in others)]
    done = {
        RolloutKey("fig", n): rollout("fig", turns, {}, sample=n, ended=one)
        for n, (one, turns) in enumerate(ended)
    }
    settings = RolloutSettings(env="shop.py:Shop", max_length=600, max_new_tokens=88)
    if others:
        _refuse_too_long(settings, done)
        return
    with pytest.raises(UserError) as found:
        _refuse_too_long(settings, done)
    assert found.value.exit_code == USAGE and found.value.location == "shop.py:Shop"


def test_the_figures_of_rollouts_are_those_of_their_turns_their_calls_and_their_users():
    buys = [says(call={"item": "fig"}, result="ok"), says(call={"item": "fig"}, failed=True)]
    whole = rollout("fig", [*buys, says("Done.")], {"env": 1.0, "more": 0.5})
    part = rollout("fig", [says("No.")], {"env": 0.0}, sample=1, ended="turns")
    lost = rollout("plum", buys, {}, ended="world")
    figures = figures_of([whole, part, lost])
    assert figures == {
        "tasks": 2,
        "rollouts": 3,
        "ended": {"user": 1, "turns": 1, "world": 1},
        "turns": 6,
        "calls": 4,
        "failed_calls": 2,
        "scores": {"env": 0.5, "more": 0.5},
    }
    faults = [UserFault(1, "nothing", ""), UserFault(2, "call", ""), UserFault(3, "call", "")]
    user = SimulatedUserTurns("Play.", ["a", "b", "c"], faults)
    figures = figures_of([replace(one, simulated_user=user) for one in (whole, part)])
    assert figures["user_errors"] == 6
    assert figures["user_errors_by_kind"] == {"call": 4, "nothing": 2}


@pytest.mark.parametrize(
    ("trained", "protocol"),
    [("react", "react"), ("hermes=1,react=3", "react"), ("hermes=3,react", "hermes")],
)
def test_a_model_acts_in_the_protocol_that_it_has_seen_most_of(tmp_path, trained, protocol):
    settings = {"protocol": trained, "model": "smollm2-135m", "data": "prep"}
    stage(tmp_path / "sft", {"command": "sft", "settings": settings, "inputs": {}}, {}, {})
    world: Any = SimpleNamespace()
    given = RolloutSettings(env="shop.py:Shop", model="sft", max_length=900, max_new_tokens=90)
    setup = _setup(given, world, BASE, tmp_path)
    assert setup.protocol.name == protocol and setup.room == 810
    other = _setup(RolloutSettings(env="x", model="smollm2-135m"), world, BASE, tmp_path)
    assert other.protocol.name == "hermes"
