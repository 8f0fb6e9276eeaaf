"""A server for each rollout: it is the world's, ends with it, and its faults cost that rollout."""

import json
import shlex
from pathlib import Path

import pytest
from support.mcp_servers import command, served
from support.processes import is_running, waits_until

from agentlite.core.records import Call
from agentlite.environments.registry import environment
from agentlite.environments.rollout import RolloutSetup, gold_answers, roll
from agentlite.environments.world import World, WorldError, WorldLimits
from agentlite.rendering import choose

pytestmark = pytest.mark.long  # a process for each world
BUY = {"name": "buy", "arguments": {"item": "apple"}}


def acting(folder: Path, server: str, *rows):
    lines = (json.dumps({"prompt": "Buy an apple.", **row}) + "\n" for row in rows or ({},))
    (folder / "tasks.jsonl").write_text("".join(lines))
    return environment(f"mcp:{server}", folder / "tasks.jsonl")


def world_of(made, **limits):
    """The world of the first task, before its reset."""
    task = next(made.tasks())
    return task, World(made.world_class, WorldLimits(**{"seconds": 60.0, **limits}))


@pytest.mark.parametrize("over", ["stdio", "http"])
def test_a_rollout_is_done_on_a_server_of_the_package(tmp_path, smollm2, over):
    pytest.importorskip("mcp")
    rows = [
        {"id": "one", "gold": [[BUY], [BUY]], "user_turns": ["One more."]},
        {"id": "two", "gold": [[BUY]]},
    ]
    with served("shop") as url:
        made = acting(tmp_path, command("shop") if over == "stdio" else url, *rows)
        setup = RolloutSetup(
            made, choose("hermes", smollm2).protocols["hermes"], smollm2, 9999, 5, WorldLimits(60.0)
        )
        tasks = list(made.tasks())
        answers = gold_answers(tasks, setup.protocol, smollm2)
        done = list(roll(setup, [(task, 0) for task in tasks], answers, 2))
    found = {one.task: one for one in done}
    assert [one.scores for one in found.values()] == [{"gold_calls": 1.0}] * 2
    assert {(one.ended, one.failed_calls, one.problem) for one in found.values()} == {
        ("user", 0, "")
    }
    told = [one["content"] for one in found["one"].messages if one["role"] in ("user", "tool")]
    asked, *told = told
    assert (asked, told[1]) == ("Buy an apple.", "One more.")
    # a server at a URL is one for all: its cart is too
    if over == "stdio":
        assert told == ["1 in the cart", "One more.", "2 in the cart"]


def test_calls_before_the_task_are_made_and_their_tools_are_not_on_offer(tmp_path):
    pytest.importorskip("mcp")
    fill = {"name": "stock", "arguments": {"items": {"apple": 1}}}
    task, world = world_of(acting(tmp_path, command("shop"), {"reset_calls": [fill]}))
    with world:
        assert world.reset(task.row) is None
        assert [tool.name for tool in world.tools] == ["buy", "process"]
        hidden = world.call(Call("stock", fill["arguments"]))
        assert hidden.failed and hidden.text == "Error: no tool stock. The tools: buy, process."
    empty = {"name": "stock", "arguments": {"items": {}}}
    task, world = world_of(acting(tmp_path, command("shop"), {"reset_calls": [empty]}))
    with pytest.raises(WorldError, match="reset failed: stock returned Error"), world:
        world.reset(task.row)


@pytest.mark.parametrize("kind", ["shop", "stays"])
def test_the_server_ends_with_its_world(tmp_path, kind):
    pytest.importorskip("mcp")
    (tmp_path / "server.sh").write_text(f"echo $$ > {tmp_path}/pid\nexec {command(kind)}\n")
    task, world = world_of(acting(tmp_path, f"sh {shlex.quote(str(tmp_path / 'server.sh'))}"))
    with world:
        world.reset(task.row)
        server = int((tmp_path / "pid").read_text())
        assert is_running(server)
        world.reset(task.row)  # another world of the same process has another server
        assert not is_running(server)
        server = int((tmp_path / "pid").read_text())
    assert waits_until(lambda: not is_running(server))
