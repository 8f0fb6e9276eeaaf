"""What the world of MCP does between a rollout and a server, without a server."""

import pytest

from agentlite.environments import mcp_world
from agentlite.environments.mcp_world import McpWorld

BUY = {"name": "buy", "arguments": {"item": "fig"}}


def tool(name):
    return {"type": "function", "function": {"name": name, "parameters": {}}}


class ScriptedClient:
    """A server's client that keeps what it is asked, and answers with what it is given."""

    def __init__(self, server, answers=()):
        self.server, self.answers, self.asked = server, [*answers], []

    def tools(self):
        return [tool("buy"), tool("look"), tool("stock")]

    def call(self, name, arguments):
        self.asked.append((name, arguments))
        return self.answers.pop(0)

    def close(self):
        self.asked.append(("close", {}))


@pytest.fixture
def mcp(monkeypatch):
    """A function: the answers of a server -> a world after its reset, and its client."""

    def begin(*answers, user_turns=(), reset_calls=(), gold=None):
        client = ScriptedClient("s", answers)
        monkeypatch.setattr(mcp_world, "McpClient", lambda server: client)
        world = McpWorld()
        world.reset("s", user_turns, reset_calls, gold)
        return world, client

    return begin


@pytest.mark.parametrize("turns", [(), ("One more.",), ("One more.", "And a pear.")])
def test_the_user_says_what_the_task_has_in_its_order_and_then_nothing(turns, mcp):
    """Whatever the model has said."""
    world, _ = mcp(user_turns=turns)
    said = [world.next_user(words) for words in ("Yes.", "", "No.")]
    assert said == [*turns, None, None, None][:3]


def test_calls_of_a_reset_are_made_first_and_are_neither_offered_nor_counted(mcp):
    stock = {"name": "stock", "arguments": {"items": {"fig": 1}}}
    world, client = mcp("ok", "bought", reset_calls=[stock], gold=[BUY])
    assert client.asked == [("stock", stock["arguments"])]
    assert [one["function"]["name"] for one in world.tools()] == ["buy", "look"]
    assert world.get_scores() == {"gold_calls": 0.0}
    assert world.call("stock", {}) == "Error: no tool stock. The tools: buy, look."
    assert world.call("buy", BUY["arguments"]) == "bought"
    assert client.asked[1:] == [("buy", BUY["arguments"])]
    assert world.get_scores() == {"gold_calls": 1.0}
    world.close()
    assert client.asked[-1] == ("close", {})
