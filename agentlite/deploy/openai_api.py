"""OpenAI chat completions: request bodies read and checked, responses and chunks written."""

import json
import random
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from agentlite.core.json_schema import schema_problem
from agentlite.core.plain_words import located
from agentlite.core.records import Call
from agentlite.data.openai_messages import Turn, new_call_id, wire_calls

Kind = Literal["invalid_request_error", "not_found_error", "server_error"]
MOST_ANSWERS, MOST_STOPS = 16, 16
# about the client, not the answer
PASSED_OVER = ("user", "metadata", "safety_identifier", "prompt_cache_key")
# the values of unsupported parameters that ask for nothing; null is one of each
OFF: Mapping[str, tuple[object, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "service_tier": ("auto", "default"),
    "store": (False,),
    # of other servers
    "top_k": (0, -1),
    "min_p": (0,),
    "repetition_penalty": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "modalities": (["text"],),
}


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


class StreamOptions(Struct, forbid_unknown_fields=True):
    include_usage: bool = False
    include_obfuscation: bool = False  # asks for padding, which no client may rely on


class Request(Struct, frozen=True, kw_only=True):
    """A chat completion."""

    messages: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    response_format: dict[str, Any] | None = None
    model: str = ""
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    seed: int | None = None
    stop: str | Annotated[list[str], Meta(max_length=MOST_STOPS)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Meta(ge=1, le=MOST_ANSWERS)] | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(filter(None, given))

    @property
    def counts_usage(self) -> bool:
        """Whether a stream ends with the numbers of tokens."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def offered(self) -> list[dict[str, object]]:
        """The tools, unless none may be called."""
        return [] if self.tool_choice == "none" else self.tools or []

    @property
    def forced(self) -> str | None:
        """The tool that must be called; "" for any of them, None if no call is forced."""
        if isinstance(self.tool_choice, dict):
            return str(self.tool_choice["function"]["name"])
        return "" if self.tool_choice == "required" else None

    @property
    def schema(self) -> dict[str, Any] | None:
        """What the answer must fit; None where it may be any text."""
        wanted = self.response_format or {}
        if wanted.get("type") == "json_object":
            return {"type": "object"}
        return wanted["json_schema"]["schema"] if wanted.get("type") == "json_schema" else None


class CompletionBody(NamedTuple):
    """What the bodies of one answer share."""

    id: str
    created: int
    model: str


def read_request(body: bytes, model: str) -> Request:
    """Raises Refused, 400 or 404, for a body that is not a request, or asks for something that this
    server cannot do.
    """
    request = _read(body, model)
    _check_choice(request)
    _check_format(request)
    return request


def _read(body: bytes, model: str) -> Request:
    try:
        given = msgspec.json.decode(body, type=dict[str, Any])
        known = {name for name in given if name in Request.__struct_fields__}
        for name in sorted(given.keys() - known - {*PASSED_OVER}):
            if given[name] is not None and given[name] not in OFF.get(name, ()):
                raise _unsupported(name, "this server does not know it, or cannot do it")
        request = msgspec.convert({name: given[name] for name in known}, Request)
    except msgspec.ValidationError as error:
        path, problem = located(error)
        named = f"`{path}`" if path else "The body of the request"
        raise Refused(400, f"{named}: {problem}.", param=path or None) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, "The body of the request is not JSON.") from error
    if request.model not in ("", model):
        raise Refused(
            404,
            f"The model `{request.model}` does not exist: this server only has `{model}`.",
            param="model",
            code="model_not_found",
            kind="not_found_error",
        )
    if request.stream_options and not request.stream:
        raise _unsupported("stream_options", "it needs `stream`")
    return request


def _unsupported(param: str, why: str) -> Refused:
    message = f"`{param}` is not supported as given: {why}."
    return Refused(400, message, param=param, code="unsupported_value")


def _check_choice(request: Request) -> None:
    choice = request.tool_choice
    named = choice.get("function") if isinstance(choice, dict) else None
    if isinstance(choice, dict):
        is_known = isinstance(named, dict) and isinstance(named.get("name"), str) and named["name"]
    else:
        is_known = choice in (None, "auto", "none", "required")
    if not is_known:
        known = '"auto", "none", "required", {"type": "function", "function": {"name": ...}}'
        raise _unsupported("tool_choice", f"it is one of {known}")
    if request.forced is not None and not request.tools:
        raise _unsupported("tool_choice", "no tools are offered")


def _check_format(request: Request) -> None:
    wanted = request.response_format or {}
    kind = wanted.get("type", "text")
    if kind not in ("text", "json_object", "json_schema"):
        raise _unsupported("response_format", "its type is text, json_object or json_schema")
    if kind == "json_schema":
        inner = wanted.get("json_schema")
        schema = inner.get("schema") if isinstance(inner, dict) else None
        if not isinstance(schema, dict):
            raise _unsupported("response_format", "json_schema.schema must be an object")
        if problem := schema_problem(schema):
            raise _unsupported("response_format", f"the schema is invalid: {problem}")
    if kind != "text" and request.offered:
        raise _unsupported("response_format", 'with tools an answer is text: tool_choice "none"')


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
    """The text of an answer without its calls. Text that cannot be read is given as the model wrote
    it."""
    raw = not request.offered or turn.parsed.problem or turn.ended == "cut"
    return until_stops(turn.text if raw else turn.parsed.content, request.stops)


def until_stops(text: str, stops: Sequence[str]) -> str:
    """The text before the first stop string."""
    return text[: min((text.index(stop) for stop in stops if stop in text), default=len(text))]


def finish(turn: Turn, calls: Sequence[Call] = ()) -> str:
    return "length" if turn.ended == "cut" else "tool_calls" if calls else "stop"


def usage(turns: Sequence[Turn], request: Request) -> dict[str, int]:
    """Of all answers; the tokens of a prompt count once, however many answers it gets."""
    prompts = sum(turn.prompt_tokens for turn in turns[:: request.n or 1])
    new = sum(turn.new_tokens for turn in turns)
    return {"prompt_tokens": prompts, "completion_tokens": new, "total_tokens": prompts + new}


def response(about: CompletionBody, request: Request, turns: Sequence[Turn]) -> dict[str, Any]:
    """All answers in one body."""
    return {
        "id": about.id,
        "object": "chat.completion",
        "created": about.created,
        "model": about.model,
        "choices": [_choice(index, request, turn) for index, turn in enumerate(turns)],
        "usage": usage(turns, request),
    }


def _choice(index: int, request: Request, turn: Turn) -> dict[str, Any]:
    calls, content = finished_calls(turn, request), content_of(turn, request)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": content or (None if calls else ""),
        "refusal": None,
    }
    if calls:
        message["tool_calls"] = wire_calls(calls)
    reason = finish(turn, calls)
    return {"index": index, "message": message, "logprobs": None, "finish_reason": reason}


def first_chunk(about: CompletionBody, index: int) -> bytes:
    return _delta(about, index, {"role": "assistant", "content": ""})


def words_chunk(about: CompletionBody, index: int, text: str) -> bytes:
    return _delta(about, index, {"content": text})


def last_chunks(
    about: CompletionBody, index: int, request: Request, turn: Turn, sent: str
) -> Iterator[bytes]:
    """The parts that are left to send once an answer is whole. `sent`: the text that was streamed
    already. Of a call the name comes first, then its arguments.
    """
    calls, content = finished_calls(turn, request), content_of(turn, request)
    if rest := content.removeprefix(sent):
        yield words_chunk(about, index, rest)
    for number, call in enumerate(wire_calls(calls)):
        function: Any = call["function"]
        begun = {**call, "function": {**function, "arguments": ""}}
        yield _delta(about, index, {"tool_calls": [{"index": number, **begun}]})
        arguments = {"index": number, "function": {"arguments": function["arguments"]}}
        yield _delta(about, index, {"tool_calls": [arguments]})
    yield _delta(about, index, {}, finish(turn, calls))


def end_chunks(about: CompletionBody, request: Request, turns: Sequence[Turn]) -> Iterator[bytes]:
    """The end of a stream, behind all answers."""
    if request.counts_usage:
        yield _chunk(about, [], usage=usage(turns, request))
    yield b"data: [DONE]\n\n"


def _delta(
    about: CompletionBody, index: int, delta: dict[str, object], reason: str | None = None
) -> bytes:
    return _chunk(
        about, [{"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}]
    )


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
