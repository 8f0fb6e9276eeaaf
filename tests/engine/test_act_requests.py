"""What a sampler or a server is asked for rollouts, and to which of them each answer belongs."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.core.records import Message, Record, Tool
from agentlite.data.openai_messages import Opened
from agentlite.engine import act
from agentlite.engine.decoding import Decoding
from agentlite.engine.local_sampler import Sample, SampleRequest
from agentlite.engine.remote import RemoteReply, RemoteRequest
from agentlite.environments.rollout import RolloutAnswer, RolloutPrompt
from agentlite.environments.trajectories import RolloutKey
from agentlite.rendering import PROTOCOLS
from agentlite.workspace.model_source import Source

REACT = PROTOCOLS["react"]
SERVED = Source("m", "m", None, "", ("a server",))  # type: ignore[arg-type]


def prompt(sample: int, ids: list[int], turn: int = 0, *, tools: bool = True) -> RolloutPrompt:
    messages = (Message("user", "Buy a fig."), Message("assistant", ""))
    record = Record(messages=messages, tools=(Tool("buy"),) if tools else ())
    return RolloutPrompt(RolloutKey("task", sample), turn, Opened(record, ids), ids)


def test_rollouts_with_the_same_prompt_share_it_and_each_gets_its_own_answer() -> None:
    asked: list[SampleRequest] = []

    def sample(requests: list[SampleRequest], decoding: Decoding) -> list[Sample]:
        asked.extend(requests)
        return [
            Sample(index, number, [index, number, 9], f"{index} {number}", "turn", (-1.0,) * 3)
            for index in (1, 0)
            for number in range(len(requests[index].seeds))
        ]

    prompts = [prompt(0, [1, 2]), prompt(1, [3]), prompt(2, [1, 2])]
    found = {one.prompt: one for one in act.answers(sample, prompts, REACT, Decoding(9, seed=5))}  # type: ignore[arg-type]
    assert [request.prompt for request in asked] == [(1, 2), (3,)]
    assert [request.seeds for request in asked] == [("5 task 0 0", "5 task 2 0"), ("5 task 1 0",)]
    assert {number: one.text for number, one in found.items()} == {0: "0 0", 1: "1 0", 2: "0 1"}
    assert found[2] == RolloutAnswer(2, "0 1", "turn", 3, (0, 1, 9), (-1.0,) * 3)


@pytest.mark.parametrize("tools", [True, False])
def test_an_answer_ends_at_the_stops_of_calls_only_where_there_are_tools(tools: bool) -> None:
    asked: list[SampleRequest] = []

    def sample(requests: list[SampleRequest], decoding: Decoding) -> list[Sample]:
        asked.extend(requests)
        return []

    assert not list(act.answers(sample, [prompt(0, [1], tools=tools)], REACT, Decoding(9)))  # type: ignore[arg-type]
    assert REACT.stops and asked[0].stops == (REACT.stops if tools else ())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Notes what is asked, and gives `replies`."""
    made = SimpleNamespace(requests=[], parameters={}, replies=[])

    def replies(
        endpoints: Any, requests: list[RemoteRequest], template: Any, parameters: Any
    ) -> Iterator[RemoteReply]:
        assert endpoints == ("a server",)
        made.requests, made.parameters = requests, parameters
        yield from made.replies

    monkeypatch.setattr(act, "load_template", lambda base: "a template")
    monkeypatch.setattr(act, "replies", replies)
    return made


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_server_is_asked_as_a_sampler_is_and_without_a_seed_for_the_likeliest(
    server: Any, temperature: float
) -> None:
    decoding = Decoding(77, temperature, 0.9, seed=5)
    assert not list(act.remote_answers([prompt(3, [1], 2)], SERVED, REACT, decoding))
    assert server.parameters == {"max_tokens": 77, "temperature": temperature, "top_p": 0.9}
    [request] = server.requests
    assert request.seed == ("5 task 3 2" if temperature else "")
    assert (request.prompt.turn, request.prompt.ids, request.protocol) == (1, [1], REACT)


def test_an_answer_of_a_server_ends_at_a_stop_where_the_protocol_has_it_end(server: Any) -> None:
    stop = REACT.stops[0]
    server.replies = [
        RemoteReply(1, f"Action: buy\n{stop}", "turn", 4),
        RemoteReply(0, "Here.", "turn", 3),
        RemoteReply(2, f"half {stop}", "cut", 2),
        RemoteReply(3, "", "cut", 0, "HTTP 400: too long"),
    ]
    prompts = [prompt(number, [number]) for number in range(4)]
    found = list(act.remote_answers(prompts, SERVED, REACT, Decoding(9)))
    assert [(one.prompt, one.ended, one.new_tokens, one.problem) for one in found] == [
        (1, "stop", 4, ""),
        (0, "turn", 3, ""),
        (2, "cut", 2, ""),
        (3, "cut", 0, "HTTP 400: too long"),
    ]
