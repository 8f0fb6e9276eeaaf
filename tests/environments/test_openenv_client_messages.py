"""What a client of OpenEnv makes of a server's answers, whatever brings them."""

import json
from typing import Any

import httpx
import pytest

from agentlite.environments import openenv_client
from agentlite.environments.inside import LostWorldError
from agentlite.environments.openenv_client import Observed, OpenEnvClient


class Socket:
    """Answers with the next of `answers`, and says that the session is closed behind the last."""

    def __init__(self, *answers: Any):
        self.sent: list[Any] = []
        self.answers = [*answers]
        self.is_closed = False

    def send(self, text):
        self.sent.append(json.loads(text))

    def receive(self):
        if not self.answers:
            raise LostWorldError("the server closed the session")
        return json.dumps(self.answers.pop(0))

    def close(self):
        self.is_closed = True


def client(*answers, schema=None) -> OpenEnvClient:
    one = OpenEnvClient.__new__(OpenEnvClient)
    one.url, one.calls_tools, one.socket = "http://host", False, Socket(*answers)
    one._action_schema = lambda: schema or {}
    return one


def seen(observation, **more):
    return {"type": "observation", "data": {"observation": observation, **more}}


@pytest.mark.parametrize(
    ("observation", "text"),
    [
        ({"said": "low"}, "low"),
        ({"left": 0}, '{"left": 0}'),
        ({"said": "low", "left": 0, "open": False}, '{"said": "low", "left": 0, "open": false}'),
        ({"said": "low", "note": "", "none": None, "list": [], "map": {}}, "low"),
        ({"said": "low", "metadata": {"seed": 1}, "tool_name": "guess"}, "low"),
        (
            {"error": {"message": "no melon"}, "result": {"left": 2}},
            'Error: no melon\n{"result": {"left": 2}}',
        ),
        ({"error": "no melon"}, "Error: no melon"),
        (
            {"result": {"content": [{"type": "text", "text": "out"}], "is_error": True}},
            "Error: out",
        ),
        (
            {"result": {"content": [{"type": "text", "text": "Error: out"}], "is_error": True}},
            "Error: out",
        ),
        ({"result": {"content": [{"type": "text", "text": "in"}], "is_error": False}}, "in"),
        ({}, ""),
        (None, ""),
    ],
)
def test_an_observation_is_text(observation, text):
    assert client(seen(observation)).step("guess", {}) == Observed(text)


@pytest.mark.parametrize(
    ("more", "reward", "done"),
    [
        ({}, None, False),
        ({"reward": 0}, 0.0, False),
        ({"reward": -0.5, "done": True}, -0.5, True),
        ({"reward": None, "done": None}, None, False),
    ],
)
def test_a_step_says_what_it_earned_and_whether_it_was_the_last(more, reward, done):
    assert client(seen({"said": "low"}, **more)).step("guess", {}) == Observed("low", reward, done)


@pytest.mark.parametrize("code", ["CAPACITY_REACHED", "FACTORY_ERROR", "SESSION_ERROR"])
def test_some_errors_end_a_session_and_one_says_what_to_do(code):
    error = {"type": "error", "data": {"code": code, "message": "out of rooms"}}
    with pytest.raises(LostWorldError, match="ended the session: out of rooms") as lost:
        client(error).step("guess", {})
    assert ("max_concurrent_envs" in str(lost.value)) == (code == "CAPACITY_REACHED")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ({"code": "INVALID", "message": "not below 10"}, "not below 10"),
        ({"code": "INVALID"}, "INVALID"),
        (
            {
                "errors": [
                    {"loc": ["number", 0], "msg": "too low"},
                    {"loc": ["x"], "msg": "unknown"},
                ]
            },
            "number.0: too low; x: unknown",
        ),
    ],
)
def test_another_error_is_the_result_of_a_step_and_the_end_of_a_reset(error, reason):
    answer = {"type": "error", "data": error}
    assert client(answer).step("guess", {}) == Observed(f"Error: {reason}")
    with pytest.raises(LostWorldError, match=f"refused to reset: {reason}"):
        client(answer).reset({})


FIELDS = {"metadata": {"type": "object"}, "number": {"type": "integer"}}


@pytest.mark.parametrize(
    ("about", "described"),
    [
        ({"title": "Guess"}, "Takes an action: Guess."),
        ({"title": "Guess", "description": ""}, "Takes an action: Guess."),
        ({"title": "Guess", "description": "Guesses."}, "Guesses."),
    ],
)
def test_an_action_with_fields_is_a_tool_that_takes_them(about, described):
    schema = {**about, "type": "object", "properties": FIELDS, "required": ["number"]}
    one = client(seen({"said": "low"}), schema=schema)
    (tool,) = one.tools()
    assert tool["function"] == {
        "name": "step",
        "description": described,
        "parameters": {
            "type": "object",
            "properties": {"number": {"type": "integer"}},
            "required": ["number"],
        },
    }
    one.step("step", {"number": 4})
    assert one.socket.sent == [{"type": "step", "data": {"number": 4}}]


CALL = {"properties": {"type": {"const": "call_tool"}, "tool_name": {"type": "string"}}}


@pytest.mark.parametrize("schema", [CALL, {"properties": {"metadata": {}}}, {}])
@pytest.mark.parametrize("by_mcp", [True, False])
def test_an_environment_with_tools_lists_them_and_takes_calls(schema, by_mcp):
    listed = {"tools": [{"name": "buy", "input_schema": {"type": "object"}}]}
    answers = [{"type": "mcp", "data": {"result": listed}}]
    if not by_mcp:  # it knows the step alone
        answers = [{"type": "mcp", "data": {"error": {"code": -32601}}}, seen(listed)]
    one = client(*answers, seen({"said": "bought"}), schema=schema)
    assert [tool["function"]["name"] for tool in one.tools()] == ["buy"]
    assert one.step("buy", {"item": "fig"}).text == "bought"
    assert one.socket.sent[-1]["data"] == {
        "type": "call_tool",
        "tool_name": "buy",
        "arguments": {"item": "fig"},
    }


def test_a_client_closes_behind_what_the_server_still_sends():
    one = client(seen({}), seen({}))
    one.close()
    assert one.socket.sent == [{"type": "close"}]
    assert one.socket.answers == [] and one.socket.is_closed


@pytest.mark.parametrize("url", ["http://host:8000", "http://host:8000/", "http://host:8000/a//"])
def test_a_server_is_asked_at_its_endpoints_however_its_address_ends(url, monkeypatch):
    asked = []

    def get(address, timeout):
        asked.append(address)
        return httpx.Response(200, json={"action": {"title": "Act", "properties": FIELDS}})

    monkeypatch.setattr(openenv_client, "WebSocket", lambda address: asked.append(address))
    monkeypatch.setattr(httpx, "get", get)
    (tool,) = OpenEnvClient(url).tools()
    assert asked == [f"{url.rstrip('/')}/ws", f"{url.rstrip('/')}/schema"]
    assert [*tool["function"]["parameters"]["properties"]] == ["number"]
