"""OpenAI chat completions: request bodies read and checked, responses and chunks written."""

import json
import random
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from agentlite.core.records import Call
from agentlite.data.openai_messages import Turn, new_call_id, wire_calls

Kind = Literal["invalid_request_error", "not_found_error", "server_error"]


class Refused(Exception):
    """A request that is answered with an error, in OpenAI's words."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        kind: Kind = "invalid_request_error",
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(message)
        self.status, self.headers = status, headers
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


class StreamOptions(Struct):
    include_usage: bool = False


class Request(Struct, frozen=True):
    """The fields that mean something here; what else a client sends is passed over."""

    messages: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    model: str = ""
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    logprobs: bool | None = None
    response_format: dict[str, Any] | None = None

    @property
    def offered(self) -> list[dict[str, object]]:
        """The tools, unless none may be called."""
        return [] if self.tool_choice == "none" else self.tools or []

    @property
    def stops(self) -> tuple[str, ...]:
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(filter(None, given))


class CompletionBody(NamedTuple):
    """What the bodies of one answer share."""

    id: str
    created: int
    model: str


def read_request(body: bytes, model: str) -> Request:
    """Raises Refused, 400 or 404, for what is no request, or asks for something that is not done
    here.
    """
    try:
        request = msgspec.json.decode(body, type=Request)
    except msgspec.ValidationError as error:
        where = str(error).partition(" - at `$.")[2].rstrip("`") or None
        raise Refused(400, f"The request is not as it should be: {error}", param=where) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, f"The body of the request is no JSON: {error}") from error
    if request.model not in ("", model):
        raise Refused(
            404,
            f"The model `{request.model}` does not exist: this server has `{model}` alone.",
            param="model",
            code="model_not_found",
            kind="not_found_error",
        )
    for param, wrong, fix in (
        ("n", (request.n or 1) != 1, "one answer a request; ask again, with another seed"),
        ("logprobs", bool(request.logprobs), "no log-probabilities are given"),
        (
            "tool_choice",
            request.tool_choice not in (None, "auto", "none"),
            "'auto' and 'none': no call can be forced",
        ),
        (
            "response_format",
            (request.response_format or {}).get("type", "text") != "text",
            "text only",
        ),
    ):
        if wrong:
            raise Refused(
                400,
                f"`{param}` is not supported as given: {fix}.",
                param=param,
                code="unsupported_value",
            )
    return request


def new_completion(model: str) -> CompletionBody:
    return CompletionBody(f"chatcmpl-{uuid.uuid4().hex[:24]}", int(time.time()), model)


def seed_of(request: Request) -> int:
    return random.getrandbits(31) if request.seed is None else request.seed % 2**31


def finished_calls(turn: Turn, request: Request) -> tuple[Call, ...]:
    """The calls of an answer that was finished, each with an id; at most one where more are not
    wanted.
    """
    if turn.parsed.problem or turn.ended == "cut":
        return ()
    calls = turn.parsed.calls[:1] if request.parallel_tool_calls is False else turn.parsed.calls
    return tuple(replace(call, id=new_call_id()) for call in calls)


def content_of(turn: Turn, request: Request) -> str:
    """The words beside the calls. What cannot be read is given as the model wrote it."""
    raw = not request.offered or turn.parsed.problem or turn.ended == "cut"
    text = turn.text if raw else turn.parsed.content
    return next((text[: text.index(stop)] for stop in request.stops if stop in text), text)


def finish(turn: Turn, calls: tuple[Call, ...]) -> str:
    return "length" if turn.ended == "cut" else "tool_calls" if calls else "stop"


def usage(turn: Turn) -> dict[str, int]:
    return {
        "prompt_tokens": turn.prompt_tokens,
        "completion_tokens": turn.new_tokens,
        "total_tokens": turn.prompt_tokens + turn.new_tokens,
    }


def response(about: CompletionBody, request: Request, turn: Turn) -> dict[str, Any]:
    """The whole answer in one body."""
    calls, content = finished_calls(turn, request), content_of(turn, request)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": content or (None if calls else ""),
        "refusal": None,
    }
    if calls:
        message["tool_calls"] = wire_calls(calls)
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": finish(turn, calls),
    }
    return {
        "id": about.id,
        "object": "chat.completion",
        "created": about.created,
        "model": about.model,
        "choices": [choice],
        "usage": usage(turn),
    }


def chunk(about: CompletionBody, delta: dict[str, object], reason: str | None = None) -> bytes:
    """One event of a stream."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    return _chunk(about, [choice])


def last_chunks(about: CompletionBody, request: Request, turn: Turn, sent: str) -> Iterator[bytes]:
    """What is left to say once the answer is whole. `told`: the text that was streamed already."""
    calls, content = finished_calls(turn, request), content_of(turn, request)
    if rest := content.removeprefix(sent):
        yield chunk(about, {"content": rest})
    for number, call in enumerate(wire_calls(calls)):
        yield chunk(about, {"tool_calls": [{"index": number, **call}]})
    yield chunk(about, {}, finish(turn, calls))
    if request.stream_options and request.stream_options.include_usage:
        yield _chunk(about, [], usage=usage(turn))
    yield b"data: [DONE]\n\n"


def _chunk(about: CompletionBody, choices: list[dict[str, object]], **more: object) -> bytes:
    body = {
        "id": about.id,
        "object": "chat.completion.chunk",
        "created": about.created,
        "model": about.model,
        "choices": choices,
        **more,
    }
    return event(body)


def event(body: dict[str, Any]) -> bytes:
    """Of a stream."""
    return b"data: " + json.dumps(body, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"
