"""Models that act: which tasks are in which split, how many worlds may be lost, which protocol."""

from types import SimpleNamespace
from typing import Any

import pytest
from support.generated_rollouts import rollout, says
from support.generated_run import stage

from agentlite.config.settings import RolloutSettings
from agentlite.core.errors import USAGE, UserError
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.trajectories import RolloutKey
from agentlite.stages.agent import (
    _refuse_too_long,
    _setup,
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
