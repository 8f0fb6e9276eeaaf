"""Replies of the models that stand for tools and users: asked once, cached, the same for equals."""

import pytest
from support.scripted_server import ScriptedServer

from agentlite.core.openai_client import Endpoint
from agentlite.environments.simulators import SimulatorQuestion, Simulators


@pytest.fixture
def server():
    one = ScriptedServer(lambda body: f"{body['messages'][0]['content']} ({len(one.bodies)})")
    yield one
    one.close()


def simulators(folder, server, **options):
    to = {"tries": 1, "pause": 0.01, "timeout": 20.0, **options}
    endpoints = {role: [Endpoint(server.url, f"{role}-model", **to)] for role in ("tool", "user")}
    return Simulators(endpoints, folder / "replies.jsonl")


def question(text, role="tool"):
    return SimulatorQuestion(role, ({"role": "user", "content": text},))


def texts(asked):
    return [reply.text for _, reply in sorted(asked, key=lambda one: one[0])]


def test_equal_questions_are_asked_once_whoever_asks_and_whenever(tmp_path, server):
    asked = [question("a"), question("b"), question("a"), question("a", "user")]
    with simulators(tmp_path, server) as one:
        first = texts(one.ask(asked))
        assert first[0] == first[2] != first[3] and len(server.bodies) == 3
        assert texts(one.ask(asked)) == first
    with simulators(tmp_path, server) as one:  # another run
        assert texts(one.ask(asked[::-1])) == first[::-1] and len(server.bodies) == 3
    assert {body["model"] for body in server.bodies} == {"tool-model", "user-model"}
    assert all(body["temperature"] == 0 and body["max_tokens"] for body in server.bodies)


@pytest.mark.parametrize(
    ("message", "text", "calls", "cut"),
    [
        ({"content": "It \ud83d rains."}, "It \ufffd rains.", False, False),
        ({"content": "It rai", "finish_reason": "length"}, "It rai", False, True),
        ({"content": None, "tool_calls": [{"id": "a"}]}, "", True, False),
        ({"content": ""}, "", False, False),
    ],
)
def test_a_reply_is_kept_as_it_is_read_again(tmp_path, server, message, text, calls, cut):
    server.reply = lambda _: dict(message)
    for _ in range(2):
        with simulators(tmp_path, server) as one:
            [(_, found)] = one.ask([question("a")])
            assert (found.text, found.calls, found.cut) == (text, calls, cut)
