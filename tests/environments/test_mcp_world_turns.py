"""What the worlds of MCP and OpenEnv do between a rollout and a server, without a server."""

import pytest

from agentlite.environments import mcp_world, openenv_world
from agentlite.environments.inside import LostWorldError
from agentlite.environments.mcp_world import McpWorld
from agentlite.environments.openenv_client import Observed
from agentlite.environments.openenv_world import OpenEnvWorld

BUY, LOOK = ({"name": name, "arguments": {"item": "fig"}} for name in ("buy", "look"))


def tool(name):
    return {"type": "function", "function": {"name": name, "parameters": {}}}


class ScriptedClient:
    """A server's client that keeps what it is asked, and answers with what it is given."""

    def __init__(self, server, answers=()):
        self.server, self.answers, self.asked = server, [*answers], []

    def tools(self):
        return [tool("buy"), tool("look"), tool("stock")]

    def reset(self, parameters):
        self.asked.append(("reset", parameters))
        return self.answers.pop(0)

    def call(self, name, arguments):
        self.asked.append((name, arguments))
        return self.answers.pop(0)

    step = call

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


@pytest.fixture
def openenv(monkeypatch):
    def begin(*answers, prompted=True, user_turns=(), gold=None, reset=None):
        client = ScriptedClient("s", answers)
        monkeypatch.setattr(openenv_world, "OpenEnvClient", lambda server: client)
        world = OpenEnvWorld()
        first = world.reset("s", reset or {}, prompted, user_turns, gold)
        return world, client, first

    return begin


@pytest.mark.parametrize("turns", [(), ("One more.",), ("One more.", "And a pear.")])
def test_the_user_says_what_the_task_has_in_its_order_and_then_nothing(turns, mcp, openenv):
    """Whatever the model has said."""
    for world in (mcp(user_turns=turns)[0], openenv(Observed(""), user_turns=turns)[0]):
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


@pytest.mark.parametrize(("answer", "lost"), [("Error: no", True), ("No Error", False)])
def test_a_reset_whose_call_fails_loses_the_world(answer, lost, mcp):
    if not lost:
        mcp(answer, reset_calls=[BUY])
        return
    with pytest.raises(LostWorldError, match="buy returned Error: no"):
        mcp(answer, reset_calls=[BUY])


@pytest.mark.parametrize(
    ("text", "prompted", "shown"),
    [
        ("Guess.", True, "\n\nGuess."),
        ("Guess.", False, "Guess."),
        ("", True, ""),
        ("", False, None),
    ],
)
def test_what_a_reset_returns_stands_behind_the_task_s_own_words(text, prompted, shown, openenv):
    reset = {"seed": 3}
    if shown is None:
        with pytest.raises(LostWorldError, match="has no prompt, and the reset returned no text"):
            openenv(Observed(text), prompted=prompted, reset=reset)
        return
    _, client, first = openenv(Observed(text), prompted=prompted, reset=reset)
    assert (first, client.asked) == (shown, [("reset", reset)])


@pytest.mark.parametrize(
    ("rewards", "scores"),
    [((), {}), ((None, None), {}), ((0.0,), {"env": 0.0}), ((0.5, None, 2.0), {"env": 2.5})],
)
def test_the_score_is_the_sum_of_the_rewards_that_were_given(rewards, scores, openenv):
    answers = [Observed(str(n), reward) for n, reward in enumerate(rewards)]
    world, client, _ = openenv(Observed(""), *answers, gold=[BUY])
    made = [world.call("buy", BUY["arguments"]) for _ in rewards]
    assert made == [str(n) for n in range(len(rewards))]
    assert world.get_scores() == {"gold_calls": float(bool(rewards)), **scores}
    world.close()
    assert client.asked[-1] == ("close", {})


@pytest.mark.parametrize("end", [0, 1, 2])
def test_an_episode_that_is_done_takes_no_more_calls(end, openenv):
    """`end`: the answer that says so, the first being the reset's."""
    answers = [Observed(str(n), 1.0, done=n == end) for n in range(3)]
    world, client, _ = openenv(*answers)
    for number in (1, 2):
        assert world.is_done() is (number > end)
        shown = world.call("look", LOOK["arguments"])
        assert shown == ("Error: the episode is done." if number > end else str(number))
    assert world.is_done() and len(client.asked) == end + 1
    assert world.call("none", {}) == "Error: no tool none. The tools: buy, look, stock."
    assert world.tools() == client.tools()


def test_an_environment_without_tools_is_lost(monkeypatch, openenv):
    monkeypatch.setattr(ScriptedClient, "tools", lambda self: [])
    with pytest.raises(LostWorldError, match="the environment has no tools"):
        openenv(Observed("Guess."))
