"""`agentlite rollout` with models in place of tools and users: good ones, bad ones, dead ones."""

import contextlib
import json
from collections import Counter

import pytest
from support.scripted_server import ScriptedServer

import agentlite
from agentlite.core.records import canonical, digest
from agentlite.core.row_files import Appender, read_rows
from agentlite.environments.simulators import PARAMETERS

pytestmark = pytest.mark.long

ITEMS = ("apple", "pear", "plum")
FILES = ("trajectories.jsonl", "stats.json")
KEYS = {name: f"sk-Canary{name.lower()}" for name in ("AGENT_KEY", "TOOL_KEY", "USER_KEY")}


def tool(name, **more):
    parameters = {
        "type": "object",
        "properties": {"item": {"type": "string"}},
        "required": ["item"],
    }
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


LEFT = {"type": "object", "properties": {"left": {"type": "integer"}}, "required": ["left"]}
TOOLS = [tool("get_stock", returns=LEFT), tool("buy")]


def task(item, **columns):
    calls = [{"name": name, "arguments": {"item": item}} for name in ("get_stock", "buy")]
    facts = {"item": item, "address": f"{item} street"}
    user = {"goal": f"Own a {item}.", "facts": facts, "on_request": ["address"]}
    return {"id": item, "prompt": f"I want a {item}.", "gold": [calls], "user": user, **columns}


def item_in(body):
    return next((one for one in ITEMS if one in body["messages"][-1]["content"]), "")


def agent(body):
    """Looks, buys, asks for the address, says goodbye."""
    messages = body["messages"]
    item = next(one for one in ITEMS if f"I want a {one}." in str(messages))
    turn = sum(message["role"] == "assistant" for message in messages)
    if turn < 2:
        function = {"name": ("get_stock", "buy")[turn], "arguments": json.dumps({"item": item})}
        return {
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": function}],
        }
    return "Done. What is your address?" if turn == 2 else "It is on its way."


def tools(body):
    return '{"left": 3}' if "Tool: get" in tool_name(body) else f"You own a {item_in(body)}."


def tool_name(body):
    return "Tool: get" if '"name": "get_stock"' in body["messages"][0]["content"] else "Tool: buy"


def user(body):
    system, asked = (one["content"] for one in body["messages"][:2])
    stop = system[system.index("[[end-") :][:14]
    item = item_in(body)
    return stop if "street" in asked or "Fig Road" in asked else f"It is {item} street."


class Servers:
    """One for the agent, one for the tools, one for the users."""

    def __init__(self):
        self.agent, self.tools, self.user = map(ScriptedServer, (agent, tools, user))

    @property
    def all(self):
        return (self.agent, self.tools, self.user)


@pytest.fixture
def servers(monkeypatch):
    one = Servers()
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)
    yield one
    for server in one.all:
        server.close()


def write(folder, *rows):
    (folder / "tools.json").write_text(json.dumps(TOOLS), encoding="utf-8")
    lines = (json.dumps(row) + "\n" for row in rows or map(task, ITEMS))
    (folder / "tasks.jsonl").write_text("".join(lines), encoding="utf-8")


def options(folder, servers, name="run", **more):
    simulated = {
        "tool_endpoint": (servers.tools.url,),
        "tool_model": "world",
        "tool_key": "TOOL_KEY",
        "user_endpoint": (servers.user.url,),
        "user_model": "anna",
        "user_key": "USER_KEY",
    }
    acting = {
        "model": "keeper",
        "endpoint": (servers.agent.url,),
        "endpoint_key": "AGENT_KEY",
        "requests": {"tries": 1},
    }
    made = {"env": f"mock:{folder / 'tools.json'}", "tasks": str(folder / "tasks.jsonl")}
    return {"run": str(folder / name), **made, **simulated, **acting, **more}


def rollout(folder, servers, name="run", **more):
    return agentlite.rollout(**options(folder, servers, name, **more))


def rows(folder, name="run"):
    return {row["task"]: row for row in read_rows(folder / name / "rollout/trajectories.jsonl")}


def contents(folder, name="run"):
    return [(folder / name / "rollout" / file).read_bytes() for file in FILES]


def asked(servers):
    """How often each question came, at each server."""
    return [Counter(json.dumps(body["messages"]) for body in one.bodies) for one in servers.all]


def key_of(role, body):
    model = {"tool": "world", "user": "anna"}[role]
    return digest(canonical([role, model, PARAMETERS[role], body["messages"]]))


def place_of(body):
    """The task and the turn at which the agent is asked."""
    item = next(one for one in ITEMS if f"I want a {one}." in str(body["messages"]))
    return item, sum(message["role"] == "assistant" for message in body["messages"])


def test_models_stand_for_the_tools_and_the_user(tmp_path, servers):
    write(tmp_path)
    figures = rollout(tmp_path, servers).figures
    assert figures["ended"] == {"user": 3} and figures["scores"] == {"gold_calls": 1.0}
    assert figures["user_errors"] == 0 and "tool_faults" not in figures
    row = rows(tmp_path)["pear"]
    said = [(one["role"], one["content"]) for one in row["messages"] if one["role"] != "assistant"]
    assert said == [
        ("user", "I want a pear."),
        ("tool", '{"left": 3}'),
        ("tool", "You own a pear."),
        ("user", "It is pear street."),
    ]
    played = row["simulated_user"]
    assert "Own a pear." in played["prompt"] and played["faults"] == []
    assert played["replies"][0] == "It is pear street." and played["replies"][1] in played["prompt"]
    assert "[[end-" not in json.dumps(row["messages"])
    # each key goes to its own server, and nowhere else
    assert [server.keys for server in servers.all] == [{f"Bearer {key}"} for key in KEYS.values()]
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(b"sk-Canary" in content for content in written)
    assert rollout(tmp_path, servers).status == "up to date"
    learned = agentlite.prep(
        run=str(tmp_path / "run"),
        trajectories=("rollout",),
        keep="user_errors<=0,gold_calls>=1",
        model="smollm2-135m",
    )
    assert learned.figures["kept"] == 3
    records = [path for path in tmp_path.rglob("*") if path.stem in ("train", "dev", "test")]
    assert records and not any(b"Stay in this role" in path.read_bytes() for path in records)


@pytest.mark.parametrize("count", [1, 14, 33])
def test_stopped_at_any_row_it_asks_nothing_twice_and_ends_with_the_same_bytes(
    tmp_path, servers, monkeypatch, count
):
    """Rows are turns, replies and trajectories: each is written when it has come."""
    write(tmp_path)
    rollout(tmp_path, servers, "whole")
    for server in servers.all:
        server.bodies.clear()
    append, written = Appender.append, []

    def stops(self, row):
        if len(written) == count:
            self.file.write(b'{"task": "torn')
            raise KeyboardInterrupt
        append(self, row)
        written.append(row)

    with monkeypatch.context() as patched:
        patched.setattr(Appender, "append", stops)
        with contextlib.suppress(KeyboardInterrupt):
            rollout(tmp_path, servers)
    assert len(written) == count
    assert rollout(tmp_path, servers).status == "done"
    assert contents(tmp_path) == contents(tmp_path, "whole")
    replies = {row["key"] for row in written if "key" in row}
    turns = {(row["task"], row["turn"]) for row in written if "turn" in row}
    for role, server in (("tool", servers.tools), ("user", servers.user)):
        keys = Counter(key_of(role, body) for body in server.bodies)
        assert len(keys) == 6 and keys.total() <= 9  # those under way are asked again
        assert all(keys[key] == 1 for key in replies & keys.keys())
    at = Counter(place_of(body) for body in servers.agent.bodies)
    assert len(at) == 12 and at.total() <= 15 and all(at[turn] == 1 for turn in turns)
