"""OpenAI chat completions: a request body -> a job for the model, and responses and chunks."""

import json
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from agentlite.core.json_schema import schema_problem
from agentlite.core.plain_words import located
from agentlite.core.records import Call, wire_calls
from agentlite.data.openai_messages import Opened, Turn, least_tokens, new_call_id
from agentlite.deploy.answer_form import AnswerForm, call_form, json_form
from agentlite.deploy.chat_model import ChatModel
from agentlite.engine.decoding import Decoding
from agentlite.engine.stream import Listener
from agentlite.rendering.protocol import thought_and_words
from agentlite.rendering.template import opens_thought

Kind = Literal["invalid_request_error", "not_found_error", "server_error"]
MOST_ANSWERS, MOST_STOPS = 16, 16
# characters at the end of a thought that may be half of the mark that ends it
LONGEST_MARK = 64
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


def unsupported(param: str, why: str) -> Refused:
    message = f"`{param}` is not supported as given: {why}."
    return Refused(400, message, param=param, code="unsupported_value")


class NamedFunction(Struct):
    name: Annotated[str, Meta(min_length=1)]


class NamedTool(Struct):
    function: NamedFunction


class JsonSchema(Struct):
    schema: dict[str, Any]


class ResponseFormat(Struct):
    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: JsonSchema | None = None


class StreamOptions(Struct, forbid_unknown_fields=True):
    include_usage: bool = False
    include_obfuscation: bool = False  # asks for padding, which no client may rely on


class Request(Struct, frozen=True, kw_only=True):
    """A chat completion."""

    messages: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["auto", "none", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    response_format: ResponseFormat | None = None
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
    def offered(self) -> list[dict[str, Any]]:
        """The tools, unless none may be called."""
        return [] if self.tool_choice == "none" else self.tools or []

    @property
    def forced(self) -> str | None:
        """The tool that must be called; "" for any of them, None if no call is forced."""
        if isinstance(self.tool_choice, NamedTool):
            return self.tool_choice.function.name
        return "" if self.tool_choice == "required" else None

    @property
    def schema(self) -> dict[str, Any] | None:
        """What the answer must fit; None where it may be any text."""
        wanted = self.response_format
        if wanted is None or wanted.type == "text":
            return None
        return wanted.json_schema.schema if wanted.json_schema else {"type": "object"}


def read_request(body: bytes, model: str) -> Request:
    """Raises Refused 400 or 404 for what is no request, or asks for what cannot be done."""
    try:
        given = msgspec.json.decode(body, type=dict[str, Any])
        known = {name for name in given if name in Request.__struct_fields__}
        for name in sorted(given.keys() - known - {*PASSED_OVER}):
            if given[name] is not None and given[name] not in OFF.get(name, ()):
                raise unsupported(name, "this server does not know it, or cannot do it")
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
        raise unsupported("stream_options", "it needs `stream`")
    if request.forced is not None and not request.tools:
        raise unsupported("tool_choice", "no tools are offered")
    wanted = request.response_format
    if wanted and wanted.type == "json_schema":
        if not wanted.json_schema:
            raise unsupported("response_format", "json_schema.schema must be an object")
        if problem := schema_problem(wanted.json_schema.schema):
            raise unsupported("response_format", f"the schema is invalid: {problem}")
    if request.schema is not None and request.offered:
        raise unsupported("response_format", 'with tools an answer is text: tool_choice "none"')
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


class Completion:
    """The answers to one request, as OpenAI writes them: in one body, or as events of a stream."""

    def __init__(self, request: Request, model: str):
        self.request, self.model = request, model
        self.id, self.created = f"chatcmpl-{uuid.uuid4().hex[:24]}", int(time.time())
        self.seed = random.getrandbits(31) if request.seed is None else request.seed % 2**31

    def body(self, turns: Sequence[Turn]) -> dict[str, Any]:
        choices = []
        for index, turn in enumerate(turns):
            calls, content = self.calls(turn), self.content(turn)
            message: dict[str, Any] = {
                "role": "assistant",
                "content": content or (None if calls else ""),
                "refusal": None,
                **({"reasoning_content": turn.thought} if turn.thought else {}),
                **({"tool_calls": wire_calls(calls)} if calls else {}),
            }
            reason = _finish(turn, calls)
            choices.append(
                {"index": index, "message": message, "logprobs": None, "finish_reason": reason}
            )
        return self._object("chat.completion", choices) | {"usage": self.usage(turns)}

    def last_events(self, index: int, turn: Turn, sent: Mapping[str, str]) -> Iterator[bytes]:
        """What is left to send once an answer is whole. `sent`: the texts that were streamed
        already, by their keys.
        """
        calls = self.calls(turn)
        texts = {"reasoning_content": turn.thought, "content": self.content(turn)}
        for key, text in texts.items():
            if rest := text.removeprefix(sent.get(key, "")):
                yield self.chunk(index, {key: rest})
        for number, call in enumerate(wire_calls(calls)):
            yield self.chunk(index, {"tool_calls": [{"index": number, **call}]})
        yield self.chunk(index, {}, _finish(turn, calls))

    def end_events(self, turns: Sequence[Turn]) -> Iterator[bytes]:
        options = self.request.stream_options
        if options and options.include_usage:
            yield event(self._object("chat.completion.chunk", []) | {"usage": self.usage(turns)})
        yield b"data: [DONE]\n\n"

    def calls(self, turn: Turn) -> tuple[Call, ...]:
        """The calls of a finished answer, each with an id; one if only one is wanted."""
        if turn.parsed.problem or turn.ended == "cut":
            return ()
        most = 1 if self.request.parallel_tool_calls is False else None
        return tuple(replace(call, id=new_call_id()) for call in turn.parsed.calls[:most])

    def content(self, turn: Turn) -> str:
        """The text without its calls; what cannot be read stays as the model wrote it."""
        raw = not self.request.offered or turn.parsed.problem or turn.ended == "cut"
        return until_stops(turn.text if raw else turn.parsed.content, self.request.stops)

    def usage(self, turns: Sequence[Turn]) -> dict[str, int]:
        """The tokens of the prompt count once, however many answers it gets."""
        prompt = turns[0].prompt_tokens if turns else 0
        new = sum(turn.new_tokens for turn in turns)
        return {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}

    def chunk(self, index: int, delta: Mapping[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
        return event(self._object("chat.completion.chunk", [choice]))

    def _object(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        about = {"id": self.id, "object": kind, "created": self.created, "model": self.model}
        return {**about, "choices": choices}


def _finish(turn: Turn, calls: Sequence[Call]) -> str:
    return "length" if turn.ended == "cut" else "tool_calls" if calls else "stop"


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


class ServeJob(NamedTuple):
    """A request for answers, and the prompt that they continue."""

    chat_model: ChatModel
    completion: Completion
    prompt: Opened
    decoding: Decoding
    form: AnswerForm | None = None

    @property
    def is_wordwise(self) -> bool:
        """Whether a stream may pass on each word as it comes. With tools or a form an answer comes
        once it is whole: before that, words may be half a call, or not fit.
        """
        return not (self.completion.request.offered or self.form)

    def apart(self, text: str) -> tuple[str, str]:
        """The thought and the words of an answer, as far as it has come."""
        opened = not self.form and opens_thought(self.prompt.text)
        return self.chat_model.protocol.apart(text, opened)

    def run(self, send: Callable[[bytes], object], is_gone: Callable[[], bool]) -> list[Turn]:
        """All answers; `send` gets the events of a stream as they come. Raises ClientGone, and
        Refused 422 if an answer does not fit the form.
        """
        completion, turns = self.completion, list[Turn]()
        for index in range(completion.request.n or 1):
            if is_gone():  # while it waited
                raise ClientGone
            text, sent = "", dict[str, str]()

            def listener(piece: str, index: int = index, sent: dict[str, str] = sent) -> bool:
                nonlocal text
                text += piece
                thought, words = self.apart(text)
                known = thought if words else thought[:-LONGEST_MARK]
                whole = until_stops(words, completion.request.stops)
                for key, all_of_it in (("reasoning_content", known), ("content", whole)):
                    before = sent.get(key, "")
                    if self.is_wordwise and len(all_of_it) > len(before):
                        send(completion.chunk(index, {key: all_of_it[len(before) :]}))
                        sent[key] = all_of_it
                return not is_gone()

            send(completion.chunk(index, {"role": "assistant", "content": ""}))
            turns.append(self.answer(index, listener))
            if is_gone():  # in the middle of the answer
                raise ClientGone
            for chunk in completion.last_events(index, turns[-1], sent):
                send(chunk)
        for chunk in completion.end_events(turns):
            send(chunk)
        return turns

    def answer(self, index: int, listener: Listener) -> Turn:
        """Answer number `index`. Raises Refused 422 if it does not fit the form."""
        decoding = self.decoding._replace(seed=(self.decoding.seed + index) % 2**31)
        turn = self.chat_model.answer(self.prompt, decoding, listener, self.form)
        problem = self.form.problem(turn) if self.form and turn.ended != "cut" else ""
        if problem:
            message = f"The answer is not what the request asks for: {problem}."
            raise Refused(422, message, code="no_fitting_answer")
        thought, words = self.apart(turn.text)
        parsed = replace(turn.parsed, content=thought_and_words(turn.parsed.content)[1])
        text = words if thought or words else turn.text
        return turn._replace(text=text, parsed=parsed, thought=thought)


def chat_job(body: bytes, chat_model: ChatModel) -> ServeJob:
    """Raises Refused 400 or 404, or RowError for messages that are not a dialog."""
    request = read_request(body, chat_model.name)
    # known at once, however long they are
    least = least_tokens(request.messages, request.offered, chat_model.template)
    _check_length(chat_model, least, "at least ")
    dialog = chat_model.opened(request.messages, request.offered)
    _check_length(chat_model, len(dialog.ids))
    completion = Completion(request, chat_model.name)
    most = chat_model.max_new_tokens
    decoding = Decoding(
        min(most, request.max_completion_tokens or request.max_tokens or most),
        temperature=request.temperature or 0.0,
        top_p=request.top_p or 1.0,
        seed=completion.seed,
        stops=request.stops,
    )
    return ServeJob(chat_model, completion, dialog, decoding, _form(request, dialog, chat_model))


def _check_length(chat_model: ChatModel, tokens: int, about: str = "") -> None:
    if tokens >= chat_model.max_length:
        raise Refused(
            400,
            f"This model's maximum context length is {chat_model.max_length} tokens. However, your "
            f"messages resulted in {about}{tokens} tokens. Please reduce the length of the "
            "messages.",
            param="messages",
            code="context_length_exceeded",
        )


def _form(request: Request, dialog: Opened, chat_model: ChatModel) -> AnswerForm | None:
    protocol = chat_model.protocol
    if request.schema is not None:
        if form := json_form(request.schema, protocol, chat_model.template):
            return form
        raise unsupported("response_format", "no value fits the schema")
    if request.forced is None:
        return None
    names = [tool.name for tool in dialog.record.tools]
    if request.forced and request.forced not in names:
        raise unsupported("tool_choice", f"{request.forced} is not among the tools")
    names = [request.forced] if request.forced else names
    if form := call_form(dialog, names, protocol, chat_model.template):
        return form
    why = f"this model's protocol ({protocol.name}) cannot be made to write a call"
    raise unsupported("tool_choice", why)
