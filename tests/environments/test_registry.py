"""An environment's name is a kind that is known, or an error that says how to write one."""

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.samples import ROOT

from agentlite.core.errors import UserError
from agentlite.data.formats.tool_calls import read_tools
from agentlite.environments.registry import environment

EXAMPLE = ROOT / "scripts/examples/openenv_world.py"
SHOP = '''
class Shop:
    def reset(self, prompt, apples):
        self.apples = apples
        return f"There are {apples}."

    def count(self) -> int:
        """Counts the apples."""
        return self.apples
'''


@pytest.fixture
def shop(tmp_path, monkeypatch):
    (tmp_path / "shop.py").write_text(SHOP)
    rows = [{"prompt": f"How many? ({n})", "apples": n} for n in (3, 5)]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("name", "tasks", "location", "problem", "fix"),
    [
        ("shop", None, "--env", "names no environment", "bfcl:multi_turn_base"),
        ("store.py:Shop", "tasks.jsonl", "store.py", "no such file", "--env"),
        ("shop.py:Shp", "tasks.jsonl", "shop.py", "no function or class Shp", ""),
        ("shop.py:Shop", None, "--env", "needs tasks", "--tasks tasks.jsonl"),
        ("bfcl:multi_turn_bass", None, "--env bfcl:", "no dialogs", "'bfcl:multi_turn_base'"),
        ("mcp:", "tasks.jsonl", "--env", "names no environment", "mcp:COMMAND"),
        ("mcp:cat", None, "--env", "needs tasks", "--tasks tasks.jsonl"),
        ("mcp:http://me:pw@host/mcp", "tasks.jsonl", "--env", "password", "mcp:http"),
        ("mock:tools.json", "tasks.jsonl", "--env", "names no environment", "mcp:COMMAND"),
        ("bfcl:multi_turn_base", "tasks.jsonl", "--tasks", "its own tasks", "Leave --tasks out"),
    ],
)
def test_a_name_that_is_none_is_refused_with_the_way_to_write_one(
    shop, name, tasks, location, problem, fix
):
    with pytest.raises(UserError) as found:
        environment(name, shop / tasks if tasks else None)
    assert found.value.location.startswith(location) and found.value.exit_code == 2
    assert problem in found.value.problem and fix in found.value.fix


def test_a_run_depends_on_the_files_of_its_environment(shop):
    tasks = shop / "tasks.jsonl"
    assert environment("shop.py:Shop", tasks).files == {"env": Path("shop.py"), "tasks": tasks}
    assert environment("mcp:cat", tasks).files == {"tasks": tasks}


def test_the_example_for_openenv_is_a_class_over_the_client_of_its_package(monkeypatch):
    """The package is not needed before a reset."""
    spec = importlib.util.spec_from_file_location("example", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tool = {"name": "buy", "description": "Buys.", "input_schema": {"type": "object"}}
    seen = [{"text": "Hello."}, {"tools": [tool]}, {"result": 3}, {"error": {"message": "no"}}]
    steps = [SimpleNamespace(observation=one, reward=0.5, done=False) for one in seen]
    client = SimpleNamespace(reset=lambda **_: steps.pop(0), step=lambda _: steps.pop(0))
    package = SimpleNamespace(
        GenericEnvClient=lambda base_url: SimpleNamespace(sync=lambda: client)
    )
    monkeypatch.setitem(sys.modules, "openenv", SimpleNamespace(core=package))
    monkeypatch.setitem(sys.modules, "openenv.core", package)
    world = module.OpenEnvWorld()
    assert "Hello." in world.reset("http://localhost:8000", {"seed": 3}, id="a")
    assert [one.name for one in read_tools(world.tools())] == ["buy"]
    assert [world.call("buy", {}) for _ in range(2)] == ["3", "Error: no"]
    assert (world.get_reward(), world.is_done()) == (1.5, False)


def the_task(folder, name, **columns):
    (folder / "tasks.jsonl").write_text(json.dumps(columns) + "\n")
    (task,) = environment(name, folder / "tasks.jsonl").tasks()
    return task


def test_a_world_on_a_server_gets_the_server_the_user_and_the_right_calls(tmp_path):
    buy = {"name": "buy", "arguments": '{"item": "fig"}'}
    read = {"name": "buy", "arguments": {"item": "fig"}}
    columns = {"prompt": "A fig.", "user_turns": ["Two."], "gold": [[buy], [], [buy]]}
    server = "mcp:python server.py"
    task = the_task(tmp_path, server, **columns, reset_calls=[{"name": "open"}], level=3)
    assert task.row == {
        "env_keep": [],
        "server": "python server.py",
        "user_turns": ["Two."],
        "reset_calls": [{"name": "open", "arguments": {}}],
        "gold": [read, read],
    }
    assert task.messages[0].content == "A fig." and len(task.gold) == 3
    nothing = {"server": "python server.py", "user_turns": [], "reset_calls": [], "gold": None}
    nothing["env_keep"] = []
    assert the_task(tmp_path, server, prompt="A fig.").row == nothing
    (bare,) = environment(server, needs_tasks=False).tasks()
    assert (bare.id, bare.messages, bare.row) == ("", (), nothing)
