"""Prompts + an OpenAI-compatible server -> its answers, written in each prompt's own protocol."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from msgspec.structs import replace

from agentlite.config.settings import (
    EvalSettings,
    GrpoSettings,
    PairsSettings,
    Requests,
    SamplerSettings,
)
from agentlite.core.errors import RowError, UserError
from agentlite.core.openai_client import Endpoint, Question, Reply, ask_all, check_endpoint
from agentlite.core.records import Ending, Message, digest, wire_message
from agentlite.data.formats.tool_calls import read_call
from agentlite.engine.decoding import Decoding
from agentlite.rendering import Prompt, Protocol, render
from agentlite.rendering.protocol import with_thought
from agentlite.rendering.renderer import span_text
from agentlite.rendering.template import Template
from agentlite.scoring.judge.llm_judge import GroupJudge
from agentlite.scoring.rewards import JUDGE
from agentlite.workspace.input_files import load_template
from agentlite.workspace.lookup import Source

# why an answer in OpenAI's format stops before its end
CUT_REASONS = ("length", "content_filter")


class RemoteRequest(NamedTuple):
    """A prompt with its protocol, and the seed of its answer: "" for the likeliest one."""

    prompt: Prompt
    protocol: Protocol
    seed: str = ""


class RemoteReply(NamedTuple):
    """The answer to request number `request`, as a model trained in the prompt's protocol writes
    it; or the `problem` for which there is none.
    """

    request: int
    text: str
    ended: Ending
    new_tokens: int
    problem: str = ""


def make_endpoints(
    urls: Sequence[str], model: str, key: str, option: str, requests: Requests
) -> tuple[Endpoint, ...]:
    """A model behind the servers that an option names; in a plan the address of the first stands
    for it: others can be added later. Raises UserError 2 for an address that is none, and for a
    model without a name.
    """
    if not model:
        name = option.replace("endpoint", "model") if "endpoint" in option else f"{option}-model"
        raise UserError(
            "which of its models?", f"Add {name} NAME, as the server calls it.", location=option
        )
    endpoints = tuple(
        Endpoint(
            url, model, key, requests.seconds, requests.tries, concurrency=requests.concurrency
        )
        for url in dict.fromkeys(urls)
    )
    for endpoint in endpoints:
        check_endpoint(endpoint, option)
    return endpoints


def judge_endpoint(settings: EvalSettings | PairsSettings | GrpoSettings) -> Endpoint | None:
    """The server of `--judge`, if it is given; see `make_endpoints`."""
    if not settings.judge:
        return None
    model, key = settings.judge_model, settings.judge_key
    return make_endpoints((settings.judge,), model, key, "--judge", settings.requests)[0]


def judge_component(settings: PairsSettings | GrpoSettings, folder: Path) -> dict[str, GroupJudge]:
    """What the judge adds to the components, by its name. `folder`: see GroupJudge."""
    endpoint = judge_endpoint(settings)
    return {JUDGE: GroupJudge(endpoint, folder, settings.judge_limit)} if endpoint else {}


def remote_source(name: str, settings: SamplerSettings, base: Source) -> Source:
    """A model behind the servers of `--endpoint`, under the template of `base`."""
    urls, key = settings.endpoint, settings.endpoint_key
    endpoints = make_endpoints(urls, name, key, "--endpoint", settings.requests)
    return Source(f"{name}@{urlsplit(urls[0]).netloc}", base.base, None, urls[0], endpoints)


def replies(
    source: Source, requests: Sequence[RemoteRequest], decoding: Decoding
) -> Iterator[RemoteReply]:
    """One for each request, as they come. Raises UserError 8 when no server answers any more; what
    came before has been given.
    """
    template = load_template(source.base)
    shared_parameters: dict[str, Any] = {
        "max_tokens": decoding.max_new_tokens,
        "temperature": decoding.temperature,
    }
    if decoding.temperature:
        shared_parameters["top_p"] = decoding.top_p
    questions = []
    for request in requests:
        record, turn = request.prompt.record, request.prompt.turn
        tools = [tool.schema for tool in record.tools]
        seed = {"seed": int(digest(request.seed), 16) % 2**31} if request.seed else {}
        parameters = {**shared_parameters, **seed, **({"tools": tools} if tools else {})}
        messages = [wire_message(message) for message in record.messages[:turn]]
        questions.append(Question(messages, parameters))
    for number, reply in ask_all(source.endpoints, questions):
        if reply.problem:
            yield RemoteReply(number, "", "cut", 0, reply.reason)
        else:
            text, ended = write_reply(reply, requests[number], template)
            yield RemoteReply(number, text, ended, reply.completion_tokens)


def write_reply(reply: Reply, request: RemoteRequest, template: Template) -> tuple[str, Ending]:
    """A reply's thought and calls in the request's protocol, so that they read back as they are;
    words as they came, behind the end of a thought that the prompt opens. What the protocol cannot
    hold stays JSON, which reads as no call."""
    prompt = request.prompt
    ended: Ending = "cut" if reply.finish in CUT_REASONS else prompt.ended
    if not (reply.calls or reply.thought or template.prompt_opens_thought):
        return reply.text, ended
    try:
        calls = tuple(read_call(call) for call in reply.calls)
        answer = Message("assistant", with_thought(reply.thought, reply.text), calls)
        messages = (*prompt.record.messages[: prompt.turn], answer)
        record = replace(prompt.record, messages=messages, gold={})
        rows = render(record, request.protocol, template)
    except RowError:
        if not reply.calls:
            return reply.text, ended
        return json.dumps(reply.calls, ensure_ascii=False), ended
    # a protocol may write a dialog in several rows: the one in which this turn follows its prompt
    spans = ((row, span) for row in rows for span in row.spans if span.prompted)
    row, span = next((row, span) for row, span in spans if span.turn == prompt.turn)
    text = span_text(row, span, template)
    has_stop = ended != "cut" and text.endswith(request.protocol.stops)
    return text, "stop" if has_stop else ended
