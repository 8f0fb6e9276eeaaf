"""OpenAI chat completions: a request body -> a job for the model, and responses and chunks."""

import json
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from agentlite.core.records import wire_calls
from agentlite.data.openai_messages import OpenDialog, Turn, new_call_id
from agentlite.deploy.chat_model import ChatModel
from agentlite.engine.decoding import Decoding
from agentlite.rendering.protocol import thought_and_words
from agentlite.rendering.template import opens_thought

MOST_STOPS = 16
# characters at the end of a thought that may be half of the mark that ends it
LONGEST_MARK = 64
# about the client, not the answer
IGNORED = ("user", "metadata", "safety_identifier", "prompt_cache_key")
# values of unsupported parameters that ask for nothing, as do null, 0, false and an empty object
OFF_VALUES: Mapping[str, tuple[object, ...]] = {
    "n": (1,),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "modalities": (["text"],),
    # of other servers
    "top_k": (-1,),
    "repetition_penalty": (1,),
}


class ApiError(Exception):
    """A request that is answered with an error, in OpenAI's words."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        kind: str = "invalid_request_error",
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(message)
        self.status, self.headers = status, headers
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


def unsupported_error(param: str, reason: str) -> ApiError:
    message = f"`{param}` is not supported as given: {reason}."
    return ApiError(400, message, param=param, code="unsupported_value")


class StreamOptions(Struct, forbid_unknown_fields=True):
    include_usage: bool = False
    include_obfuscation: bool = False  # asks for padding, which no client may rely on


class Request(Struct, frozen=True, kw_only=True):
    """A chat completion."""

    messages: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["auto", "none"] | None = None
    parallel_tool_calls: bool | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    model: str = ""
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    seed: int | None = None
    stop: str | Annotated[list[str], Meta(max_length=MOST_STOPS)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(filter(None, stops))

    @property
    def offered_tools(self) -> list[dict[str, Any]]:
        """The tools, unless none may be called."""
        return [] if self.tool_choice == "none" else self.tools or []


def read_request(body: bytes, model: str) -> Request:
    """Raises ApiError 400 or 404 for what is no request, or asks for what cannot be done."""
    try:
        parameters = msgspec.json.decode(body, type=dict[str, Any])
        known_names = {name for name in parameters if name in Request.__struct_fields__}
        for name in sorted(parameters.keys() - known_names - {*IGNORED}):
            if parameters[name] and parameters[name] not in OFF_VALUES.get(name, ()):
                raise unsupported_error(name, "this server does not know it, or cannot do it")
        request = msgspec.convert({name: parameters[name] for name in known_names}, Request)
    except msgspec.ValidationError as error:
        # "Expected `int`, got `str` - at `$.max_tokens`", or without a path
        problem, _, path = str(error).partition(" - at `$")
        path = path.strip(".`")
        subject = f"`{path}`" if path else "The body of the request"
        raise ApiError(400, f"{subject}: {problem}.", param=path or None) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, "The body of the request is not JSON.") from error
    if request.model not in ("", model):
        raise ApiError(
            404,
            f"The model `{request.model}` does not exist: this server only has `{model}`.",
            param="model",
            code="model_not_found",
            kind="not_found_error",
        )
    if request.stream_options and not request.stream:
        raise unsupported_error("stream_options", "it needs `stream`")
    return request


def until_stops(text: str, stops: Sequence[str]) -> str:
    """The text before the first stop string."""
    return text[: min((text.index(stop) for stop in stops if stop in text), default=len(text))]


def as_json(body: Mapping[str, Any]) -> bytes:
    """Half a character, which only JSON's escapes can hold, becomes `?`."""
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def event(body: Mapping[str, Any]) -> bytes:
    """Of a stream."""
    return b"data: " + as_json(body) + b"\n\n"


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


@dataclass(frozen=True)
class Completion:
    """The answer to one request, as OpenAI writes it: in one body, or as events of a stream; and
    the dialog that it continues.
    """

    chat_model: ChatModel
    request: Request
    dialog: OpenDialog
    decoding: Decoding
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex[:24]}")
    created: int = field(default_factory=lambda: int(time.time()))

    def run(self, send: Callable[[bytes], object], is_gone: Callable[[], bool]) -> dict[str, Any]:
        """The body of the answer; `send` gets the events of a stream as they come: with tools once
        it is whole, since words may be half a call before that. Raises ClientGone.
        """
        if is_gone():  # while it waited
            raise ClientGone
        text, sent_text = "", dict[str, str]()

        def listener(piece: str) -> bool:
            nonlocal text
            text += piece
            thought, content = self.split_thought(text)
            # "It rains. </thi": is this the thought, or the beginning of its end? Content tells
            thought = thought if content else thought[:-LONGEST_MARK]
            content = until_stops(content, self.request.stops)
            for key, text_so_far in (("reasoning_content", thought), ("content", content)):
                delta = text_so_far[len(sent_text.get(key, "")) :]
                if delta and not self.request.offered_tools:
                    send(self.chunk({key: delta}))
                    sent_text[key] = text_so_far
            return not is_gone()

        send(self.chunk({"role": "assistant", "content": ""}))
        turn = self.chat_model.answer(self.dialog, self.decoding, listener)
        if is_gone():  # in the middle of the answer
            raise ClientGone
        body = self.body(turn)
        for chunk in self.last_events(body, sent_text):
            send(chunk)
        return body

    def split_thought(self, text: str) -> tuple[str, str]:
        """The thought and the words of an answer, as far as it has come."""
        return self.chat_model.protocol.split_thought(text, opens_thought(self.dialog.text))

    def body(self, turn: Turn) -> dict[str, Any]:
        """A thought stands apart, each call has an id, and what cannot be read as a call stays as
        the model wrote it.
        """
        is_readable = turn.ended != "cut" and not turn.parsed.problem
        thought, content = self.split_thought(turn.text)
        if is_readable and self.request.offered_tools:
            content = thought_and_words(turn.parsed.content)[1]
        elif not thought:
            content = content or turn.text
        content = until_stops(content, self.request.stops)
        limit = 1 if self.request.parallel_tool_calls is False else None
        parsed_calls = turn.parsed.calls[:limit] if is_readable else ()
        calls = wire_calls([replace(call, id=new_call_id()) for call in parsed_calls])
        message: dict[str, Any] = {
            "role": "assistant",
            "content": content or (None if calls else ""),
            "refusal": None,
            **({"reasoning_content": thought} if thought else {}),
            **({"tool_calls": calls} if calls else {}),
        }
        reason = "tool_calls" if calls else "stop"
        reason = "length" if turn.ended == "cut" else reason
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
        return self._object("chat.completion", [choice]) | {
            "usage": {
                "prompt_tokens": turn.prompt_tokens,
                "completion_tokens": turn.new_tokens,
                "total_tokens": turn.prompt_tokens + turn.new_tokens,
            }
        }

    def last_events(self, body: Mapping[str, Any], sent_text: Mapping[str, str]) -> Iterator[bytes]:
        """What is left to send of an answer once it is whole. `sent_text`: what was streamed
        already, by its key.
        """
        [choice] = body["choices"]
        message = choice["message"]
        for key in ("reasoning_content", "content"):
            if delta := (message.get(key) or "").removeprefix(sent_text.get(key, "")):
                yield self.chunk({key: delta})
        for number, call in enumerate(message.get("tool_calls", ())):
            yield self.chunk({"tool_calls": [{"index": number, **call}]})
        yield self.chunk({}, choice["finish_reason"])
        options = self.request.stream_options
        if options and options.include_usage:
            yield event(self._object("chat.completion.chunk", []) | {"usage": body["usage"]})
        yield b"data: [DONE]\n\n"

    def chunk(self, delta: Mapping[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return event(self._object("chat.completion.chunk", [choice]))

    def _object(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.chat_model.name,
            "choices": choices,
        }


def chat_job(body: bytes, chat_model: ChatModel) -> Completion:
    """Raises ApiError 400 or 404, or RowError for messages that are not a dialog."""
    request = read_request(body, chat_model.name)
    dialog = chat_model.open_dialog(request.messages, request.offered_tools)
    if len(dialog.ids) >= chat_model.max_length:
        raise ApiError(
            400,
            f"This model's maximum context length is {chat_model.max_length} tokens. However, your "
            f"messages resulted in {len(dialog.ids)} tokens. Please reduce the length of the "
            "messages.",
            param="messages",
            code="context_length_exceeded",
        )
    longest = chat_model.max_new_tokens
    decoding = Decoding(
        min(longest, request.max_completion_tokens or request.max_tokens or longest),
        temperature=request.temperature or 0.0,
        top_p=request.top_p or 1.0,
        seed=random.getrandbits(31) if request.seed is None else request.seed % 2**31,
        stops=request.stops,
    )
    return Completion(chat_model, request, dialog, decoding)
