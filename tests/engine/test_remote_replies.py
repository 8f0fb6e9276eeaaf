"""Answers of a server as they come: what is sent, when it is given up, what a refusal costs."""

from typing import Any

import pytest

from agentlite.config.settings import EvalSettings
from agentlite.core import endpoint_pool
from agentlite.core.endpoint_pool import PROBE
from agentlite.core.openai_client import Endpoint, Reply
from agentlite.core.records import Record
from agentlite.engine import remote
from agentlite.engine.remote import RemoteReply, RemoteRequest, replies
from agentlite.rendering import PROTOCOLS, Prompt, prompts
from agentlite.workspace.model_source import Source

ENDPOINT = Endpoint("http://h:1/v1", "m", concurrency=1)
SILENT, REFUSED = Reply("", "answered 503", silent=True), Reply("", "answered 400", detail="long")


@pytest.fixture
def prompt(dialog: Record, templates: Any) -> Prompt:
    template = templates["smollm2"]
    return next(iter(prompts([dialog], lambda record: PROTOCOLS["hermes"], template)))


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch, prompt: Prompt, templates: Any) -> Any:
    """What comes of a server that answers so, one request at a time; and what was sent."""
    sent: list[tuple[Any, ...]] = []

    def run(
        answers: list[Reply], seeds: list[str] | None = None, prompted: Prompt = prompt
    ) -> list[RemoteReply]:
        queue = iter(answers)

        def ask(endpoint: Endpoint, messages: Any, parameters: Any, stop: Any) -> Reply:
            if messages == PROBE.messages:
                return Reply("Yes.")
            sent.append((messages, parameters))
            return next(queue)

        monkeypatch.setattr(endpoint_pool, "ask", ask)
        requests = [
            RemoteRequest(prompted, PROTOCOLS[prompted.protocol], seed)
            for seed in seeds or [""] * len(answers)
        ]
        return list(replies([ENDPOINT], requests, templates["smollm2"], {"max_tokens": 9}))

    run.sent = sent  # type: ignore[attr-defined]
    return run


def test_a_request_has_the_dialog_before_its_turn_its_tools_and_its_own_seed(
    answered: Any, prompt: Prompt
) -> None:
    answered([Reply("x")] * 4, ["", "0 1", "0 1", "0 2"])
    messages, parameters = answered.sent[0]
    assert [one["role"] for one in messages] == ["system", "user"]
    assert [tool["function"]["name"] for tool in parameters["tools"]] == ["get_weather", "get_time"]
    assert parameters["max_tokens"] == 9 and "seed" not in parameters
    seeds = [sent[1].get("seed") for sent in answered.sent[1:]]
    assert seeds[0] == seeds[1] != seeds[2] and all(0 <= seed < 2**31 for seed in seeds)


@pytest.mark.parametrize("protocol", ["hermes", "kuaiagent"])
def test_the_call_of_a_later_turn_is_written_as_that_turns_and_not_as_the_first(
    protocol: str, answered: Any, dialog: Record, templates: Any
) -> None:
    template = templates["smollm2"]
    *_, last = prompts([dialog], lambda record: PROTOCOLS[protocol], template)
    arguments = {"name": "get_weather", "arguments": '{"city": "Rome"}'}
    call = {"id": "a", "type": "function", "function": arguments}
    (found,) = answered([Reply("Once more.", calls=[call])], prompted=last)
    parsed = PROTOCOLS[protocol].parse(found.text)
    assert (parsed.content, parsed.problem) == ("Once more.", "")
    assert [(one.name, one.arguments) for one in parsed.calls] == [
        ("get_weather", {"city": "Rome"})
    ]


BASE = Source("base", "folder", None, "digest")


@pytest.mark.parametrize(
    ("begun", "urls", "digest", "name"),
    [
        ("", "http://b/v1 http://a/v1", "http://a/v1 http://b/v1", "m@a"),
        ("http://a/v1", "http://a/v1", "http://a/v1", "m@a"),
        ("http://a/v1 http://b/v1", "http://b/v1", "http://a/v1 http://b/v1", "m@a"),
        ("http://b/v1", "http://a/v1 http://b/v1", "http://b/v1", "m@b"),
        ("http://a/v1", "http://b/v1", "http://b/v1", "m@b"),
    ],
)
def test_a_stage_goes_on_with_servers_of_which_it_was_begun_with_one(
    begun: str, urls: str, digest: str, name: str
) -> None:
    settings = EvalSettings(endpoint=tuple(urls.split()))
    source = remote.served("m", settings, BASE, begun)
    assert (source.digest, source.name) == (digest, name)
    assert sorted(one.url for one in source.endpoints) == sorted(urls.split())
