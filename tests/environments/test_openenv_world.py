"""A session for each rollout: it ends when the environment says so, and a fault costs it alone."""

import json
from functools import partial
from pathlib import Path

import pytest
from support.examples import in_turn
from support.openenv_servers import served

from agentlite.core.records import Call
from agentlite.environments.gold import gold_answers, gold_turns
from agentlite.environments.kinds import environment
from agentlite.environments.rollout import RolloutSetup, roll
from agentlite.environments.trajectories import Trajectory
from agentlite.environments.world import WorldError, WorldLimits
from agentlite.rendering import choose

pytestmark = pytest.mark.long  # a process for each world


def buy(item: str, count: int = 1):
    return {"name": "buy", "arguments": {"item": item, "count": count}}


def guess(number: int):
    return {"name": "step", "arguments": {"number": number}}


def acting(folder: Path, server: str, *rows):
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return environment(f"openenv:{server}", folder / "tasks.jsonl")


def rolled(made, template, batch_size: int, seconds: float = 60.0):
    """By task: what became of the rollouts in which the right calls are made."""
    protocol = choose("hermes", template).protocols["hermes"]
    setup = RolloutSetup(made, protocol, template, 9999, 5, WorldLimits(seconds))
    tasks = list(made.tasks())
    turns = {task.id: gold_turns(task) for task in tasks}
    answers = partial(gold_answers, turns, protocol=protocol, template=template)
    rows = roll(setup, [(task, 0) for task in tasks], {}, answers, batch_size)
    return {one.task: one for one in rows if isinstance(one, Trajectory)}


def test_rollouts_have_sessions_of_their_own_and_end_when_the_episode_is_done(tmp_path, smollm2):
    tasks = [
        {"id": "done", "reset": {"wanted": ["fig"] * 2}, "gold": [[buy("fig", 2), buy("fig")]]},
        {"id": "not", "reset": {"wanted": ["fig"] * 3}, "gold": [[buy("fig")], [buy("fig")]]},
    ]
    asked = {"prompt": "Buy figs.", "user_turns": ["One more."]}
    with served("shop") as url:
        made = acting(tmp_path, url, *({**task, **asked} for task in tasks))
        found = rolled(made, smollm2, batch_size=2)
    done, other = found["done"], found["not"]
    assert (done.ended, done.scores) == ("done", {"gold_calls": 0.5, "env": 1.0})
    assert [one["role"] for one in done.messages] == ["user", "assistant", "tool"]
    assert (other.ended, other.scores) == ("user", {"gold_calls": 1.0, "env": 0.0})
    results = [one["content"] for one in other.messages if one["role"] == "tool"]
    assert results == ["1 in the cart", "2 in the cart"]


def test_an_environment_says_what_the_user_asks_and_its_rewards_are_summed(tmp_path, smollm2):
    tasks = [
        {"id": "right", "reset": {"number": 4}, "gold": [[guess(2), guess(4)]]},
        {"id": "lost", "reset": {"number": 4}, "gold": [[guess(1), guess(2), guess(3)]]},
        {"id": "asked", "prompt": "Play.", "reset": {"number": 4}, "gold": [[guess(4)]]},
    ]
    # the server has room for one session
    with served("guess") as url:
        found = rolled(acting(tmp_path, url, *tasks), smollm2, batch_size=1)
    said = "Guess a number between 1 and 9."
    first = {name: one.messages[0]["content"] for name, one in found.items()}
    assert first == {"right": said, "lost": said, "asked": f"Play.\n\n{said}"}
    assert {one.ended for one in found.values()} == {"done"}
    scores = {name: one.scores["env"] for name, one in found.items()}
    assert scores == {"right": 0.75, "lost": -0.75, "asked": 1.0}


def test_a_call_behind_the_end_and_one_of_an_unknown_tool_are_errors(tmp_path):
    with served("guess") as url:
        made = acting(tmp_path, url, {"reset": {"number": 4}})
        task = next(made.tasks())
        with made.world(WorldLimits(60.0)) as world:
            assert world.reset(task.row) == "Guess a number between 1 and 9."
            unknown = world.call(Call("guess", {"number": 4}))
            assert unknown.text == "Error: no tool guess. The tools: step." and not unknown.done
            assert world.call(Call("step", {"number": 4}))[:] == ("right", False, True)
            late = world.call(Call("step", {"number": 4}))
            assert late.failed and late.text == "Error: the episode is done."
            assert world.scores() == {"env": 1.0}


@pytest.mark.parametrize(
    ("fault", "seconds", "reason"),
    in_turn(
        2,
        [
            ("dies", 60.0, "call failed: the server "),
            ("hangs", 10.0, "call took longer than 10 s"),
            ("session error", 60.0, "call failed: the server ended the session: out of apples"),
            ("no tools", 60.0, "reset failed: the environment has no tools"),
        ],
    ),
)
def test_a_fault_costs_its_rollout_and_no_other(tmp_path, smollm2, fault, seconds, reason):
    tasks = [
        {"id": name, "prompt": "A fig.", "reset": reset, "gold": [[buy("fig")]]}
        for name, reset in (("a", {}), ("b", {"fault": fault}), ("c", {}))
    ]
    with served("some") as url:
        found = rolled(acting(tmp_path, url, *tasks), smollm2, 3, seconds)
    lost = found.pop("b")
    assert (lost.ended, lost.scores) == ("world", {}) and lost.problem.startswith(reason)
    assert [one.scores for one in found.values()] == [{"gold_calls": 1.0, "env": 0.0}] * 2


def reset(made):
    with made.world(WorldLimits(60.0)) as world:
        world.reset(next(made.tasks()).row)


def test_a_world_that_cannot_begin_says_why(tmp_path):
    with pytest.raises(WorldError, match="reset failed: the server cannot be reached"):
        reset(acting(tmp_path, "http://127.0.0.1:1", {"prompt": "A fig."}))
    silent = "has no prompt, and the reset returned no text"
    with served("shop") as url, pytest.raises(WorldError, match=silent):
        reset(acting(tmp_path, url, {"id": "silent"}))
