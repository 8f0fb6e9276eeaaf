"""Models that act: which tasks are in which split, how many worlds may be lost, which protocol."""

import pytest
from msgspec.structs import replace
from support.generated_run import stage

from agentlite.config.settings import RolloutSettings
from agentlite.core.user_code import UserFunction
from agentlite.environments.registry import Environment
from agentlite.environments.tasks import EnvironmentTask
from agentlite.stages.rollout import make_agent, split_of_task
from agentlite.workspace.lookup import Source

BASE = Source("smollm2-135m", "smollm2-135m", None, "digest")


def test_tasks_of_a_group_are_in_one_split_and_others_are_dealt_out():
    settings = RolloutSettings(env="shop.py:Shop", dev=0.2, test=0.4)
    alone = [EnvironmentTask(f"{n}", (), {}) for n in range(60)]
    splits = [split_of_task(settings, task) for task in alone]
    assert {*splits} == {"train", "dev", "test"} and splits.count("dev") < splits.count("test")
    together = [replace(task, group="of one dialog") for task in alone]
    assert len({split_of_task(settings, task) for task in together}) == 1


@pytest.mark.parametrize(
    ("trained", "protocol"),
    [("react", "react"), ("hermes=1,react=3", "react"), ("hermes=3,react", "hermes")],
)
def test_a_model_acts_in_the_protocol_that_it_has_seen_most_of(
    tmp_path, monkeypatch, trained, protocol
):
    settings = {"protocol": trained, "model": "smollm2-135m", "data": "prep"}
    stage(tmp_path / "sft", {"command": "sft", "settings": settings, "inputs": {}}, {}, {})
    tasks = [EnvironmentTask("a", (), {})]
    world = Environment(UserFunction("shop.py", "Shop"), lambda: iter(tasks), {})
    monkeypatch.setattr("agentlite.stages.rollout.environment", lambda *_, **__: world)
    given = RolloutSettings(env="shop.py:Shop", model="sft", max_length=900, max_new_tokens=90)
    setup = make_agent(given, BASE._replace(settings=settings), tmp_path).setup
    assert setup.protocol.name == protocol and setup.room == 810
    other = make_agent(RolloutSettings(env="x", model="smollm2-135m"), BASE, tmp_path)
    assert other.setup.protocol.name == "hermes"
