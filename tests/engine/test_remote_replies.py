"""Answers of a server as they come: what is sent, when it is given up, what a refusal costs."""

from typing import Any

import pytest
from msgspec.structs import replace
from support.shipped_templates import shipped, with_marks

from agentlite.config.settings import EvalSettings
from agentlite.core import endpoint_pool
from agentlite.core.endpoint_pool import PROBE
from agentlite.core.openai_client import Endpoint, Reply
from agentlite.core.records import Record
from agentlite.engine import remote
from agentlite.engine.remote import RemoteReply, RemoteRequest, replies, written
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


def test_each_reply_has_the_number_of_its_request_its_text_and_its_tokens(answered: Any) -> None:
    finished = [Reply("b", finish=why) for why in ("length", "content_filter", "stop", "")]
    found = answered([Reply("a", completion_tokens=3), *finished])
    assert [one.ended == "cut" for one in found] == [False, True, True, False, False]
    found = found[:2]
    assert [(one.request, one.text, one.new_tokens) for one in found] == [(0, "a", 3), (1, "b", 0)]
    assert found[1].ended == "cut" and found[0].ended != "cut"


def test_a_prompt_without_an_answer_has_its_problem_in_place_of_a_text(answered: Any) -> None:
    found = answered([REFUSED, Reply("x"), SILENT])
    assert found[0] == RemoteReply(0, "", "cut", 0, "answered 400: long")
    assert (found[1].text, found[1].problem) == ("x", "")
    assert found[2] == RemoteReply(2, "", "cut", 0, "answered 503")


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


def test_a_request_holds_nothing_that_is_empty_as_servers_refuse_it(
    answered: Any, dialog: Record, templates: Any
) -> None:
    bare = replace(dialog, messages=dialog.messages[1:2] + dialog.messages[4:5], tools=())
    template = templates["smollm2"]
    one = next(iter(prompts([bare], lambda record: PROTOCOLS["hermes"], template, lambda _: [1])))
    answered([Reply("x")], prompted=one)
    messages, parameters = answered.sent[0]
    assert parameters == {"max_tokens": 9}
    assert messages == [{"role": "user", "content": "Is it wet in Oslo?"}]


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


@pytest.mark.long
def test_words_stand_behind_the_thought_that_a_prompt_opens_or_as_they_came(
    dialog: Record, templates: Any
) -> None:
    name = "trl/nemotron_3_nano"
    template = with_marks(name, dict(shipped())[name], templates["smollm2"].tokenizer)
    assert template.prompt_opens_thought
    one = next(iter(prompts([dialog], lambda record: PROTOCOLS["hermes"], template)))
    text, _ = written(Reply("It is wet."), RemoteRequest(one, PROTOCOLS[one.protocol]), template)
    assert "</think>" in text and text.endswith("It is wet.")
    mark = f"It is {template.turn_end} wet."  # no row can hold it, and no call is lost with it
    assert written(Reply(mark), RemoteRequest(one, PROTOCOLS[one.protocol]), template) == (
        mark,
        one.ended,
    )


@pytest.mark.parametrize(
    ("name", "url", "expected"),
    [("m", "http://h:8000/v1", "m@h:8000"), ("a/b", "https://x.org/v1", "a/b@x.org")],
)
def test_a_served_model_is_named_after_itself_and_its_server(
    name: str, url: str, expected: str
) -> None:
    settings = EvalSettings(endpoint=(url,), endpoint_key="KEY", endpoint_seconds=9.0)
    source = remote.served(name, settings, Source("base", "folder", None, "digest"))
    assert (source.name, source.base, source.digest) == (expected, "folder", url)
    [endpoint] = source.endpoints
    assert endpoint[:4] == (url, name, "KEY", 9.0)
    assert (endpoint.tries, endpoint.concurrency) == (5, 4)
    settings = EvalSettings(endpoint=(url,), endpoint_tries=3, concurrency=7)
    [endpoint] = remote.served(name, settings, source).endpoints
    assert (endpoint.tries, endpoint.concurrency) == (3, 7)


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
