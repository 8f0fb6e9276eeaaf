"""The tools and steps of an OpenEnv server: an observation is text, a fault the world's end."""

import contextlib
import json

import pytest
from support.openenv_servers import BUY, served

from agentlite.environments.inside import LostWorldError
from agentlite.environments.openenv_client import Observed, OpenEnvClient

pytestmark = pytest.mark.long  # a process for each server


@contextlib.contextmanager
def session(url: str):
    client = OpenEnvClient(url)
    try:
        yield client
    finally:
        client.close()


def test_an_environment_with_tools_offers_them_and_carries_out_calls():
    with served("shop") as url, session(f"{url}/") as client:
        assert client.reset({"wanted": ["apple", "fig"]}) == Observed("", 0.0)
        tools = [tool["function"] for tool in client.tools()]
        assert [tool["name"] for tool in tools] == ["buy", "total"]
        assert tools[0]["description"] == "Puts items into the cart."
        assert tools[0]["parameters"] == BUY
        assert client.step("total", {}) == Observed('{"items":0}', 0.0)
        assert client.step("buy", {"item": "apple"}) == Observed("1 in the cart", 0.0)
        for name, arguments, problem in (
            ("buy", {"item": "melon"}, "Error: Error calling tool 'buy': no melon"),
            (
                "buy",
                {},
                "Error: 1 validation error for call[buy]\nitem\n  Missing required argument",
            ),
            ("sell", {}, "Error: Unknown tool: 'sell'"),
        ):
            failed = client.step(name, arguments)
            assert failed.text.startswith(problem) and not failed.done
        assert client.step("buy", {"item": "fig"}) == Observed("2 in the cart", 1.0, True)
        assert client.reset({}).done is False
        assert client.step("total", {}) == Observed('{"items":0}', 0.0)


def test_an_environment_with_one_action_has_a_tool_that_takes_it():
    with served("guess") as url:
        with session(url) as client:
            with pytest.raises(LostWorldError, match="refused to reset: which number"):
                client.reset({})
            assert client.reset({"number": 4}) == Observed("Guess a number between 1 and 9.")
            [tool] = client.tools()
            assert tool["function"]["name"] == "step"
            assert tool["function"]["description"] == "Guesses the number."
            parameters = tool["function"]["parameters"]
            assert [*parameters["properties"]] == parameters["required"] == ["number"]
            low = Observed(json.dumps({"said": "too low", "left": 2}), -0.25)
            assert client.step("step", {"number": 2}) == low
            assert client.step("step", {}) == Observed("Error: number: Field required")
            assert client.step("step", {"number": 12}) == Observed("Error: not below 10")
            assert client.step("step", {"number": 4}) == Observed("right", 1.0, True)
            # it has room for one session, and this one is open
            full = "at capacity: 1/1 .* larger max_concurrent_envs, or .* --batch-size 1"
            with session(url) as other, pytest.raises(LostWorldError, match=full):
                other.reset({"number": 4})
        # the server has ended the first before it is closed here
        for _ in range(3):
            with session(url) as client:
                assert client.reset({"number": 4}).text


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("dies", "the server ended the connection|the server is gone"),
        ("closes", "the server closed the session: out of apples"),
        ("session error", "the server ended the session: out of apples"),
        ("endless", "the server answered with more than 16 MiB"),
        ("not json", "the server answered with something else than JSON"),
        ("odd", "the server answered step without data"),
    ],
)
def test_a_fault_in_a_step_is_the_end_of_the_session(fault, reason):
    with served(fault) as url, session(url) as client:
        client.reset({})
        client.tools()
        with pytest.raises(LostWorldError, match=reason):
            client.step("buy", {"item": "apple"})


def test_no_session_begins_with_a_server_of_another_kind():
    with pytest.raises(LostWorldError, match="the server cannot be reached"):
        OpenEnvClient("http://127.0.0.1:1")
    with served("shop") as url, pytest.raises(LostWorldError, match=r"answered 403 to .*/api/ws"):
        OpenEnvClient(f"{url}/api")
    with served("no handshake") as url, pytest.raises(LostWorldError, match="not speak WebSocket"):
        OpenEnvClient(url)
    with served("no schema") as url, session(url) as client:
        client.reset({})
        with pytest.raises(LostWorldError, match=r"no schema of an action at .*/schema"):
            client.tools()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("steps alone", "1 in the cart"),
        ("pieces", "1 in the cart"),
        ("rich", 'Error: no melon\n{"tool_result": {"left": 2}}'),
        ("much", "x" * 1_000_000),
    ],
)
def test_what_a_server_answers_is_text(kind, text):
    with served(kind) as url, session(url) as client:
        client.reset({})
        assert [tool["function"]["name"] for tool in client.tools()] == ["buy", "total"]
        assert client.step("buy", {"item": "apple"}).text == text
        long = "fig" * 30_000  # a frame with eight bytes of length
        if kind == "pieces":
            assert client.step("buy", {"item": long}).text == "2 in the cart"
