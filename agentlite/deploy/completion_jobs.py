"""A request -> a job for the model: prompts that fit, how they are answered, and the answers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from agentlite.data.openai_messages import Opened, Turn
from agentlite.deploy import openai_api, text_completions
from agentlite.deploy.answer_form import AnswerForm
from agentlite.deploy.chat_model import ChatModel
from agentlite.deploy.openai_api import CompletionBody, Refused, Request, Sampled
from agentlite.engine.decoding import Decoding
from agentlite.engine.stream import Listener

TRIES = 3  # of an answer that must have a form
RETRY_TEMPERATURE = 0.8  # at least, from the second try on: the likeliest answer did not fit


class Writer(NamedTuple):
    """How the answers to a kind of request are sent."""

    kind: str
    response: Callable[[CompletionBody, Any, Sequence[Turn]], dict[str, Any]]
    first: Callable[[CompletionBody, int], bytes]
    words: Callable[[CompletionBody, int, str], bytes]
    last: Callable[[CompletionBody, int, Any, Turn, str], Iterable[bytes]]
    end: Callable[[CompletionBody, Any, Sequence[Turn]], Iterable[bytes]]


CHAT = Writer(
    "chatcmpl",
    openai_api.response,
    openai_api.first_chunk,
    openai_api.words_chunk,
    openai_api.last_chunks,
    openai_api.end_chunks,
)
TEXT = Writer(
    "cmpl",
    text_completions.response,
    lambda about, index: b"",
    text_completions.words_chunk,
    text_completions.last_chunks,
    text_completions.end_chunks,
)


class ServeJob(NamedTuple):
    """`messages`: how many the request has. `is_wordwise`: a stream may pass on each word as it
    comes. With tools or a form an answer comes once it is whole: before that, words may be half a
    call, or not fit.
    """

    request: Sampled
    writer: Writer
    prompts: Sequence[Opened]
    messages: int
    decoding: Decoding
    form: AnswerForm | None = None
    is_wordwise: bool = True

    @property
    def answers(self) -> int:
        return len(self.prompts) * (self.request.n or 1)

    def answer(self, chat_model: ChatModel, index: int, listener: Listener) -> Turn:
        """Answer number `index`. Raises Refused 422 if none fits the form."""
        prompt = self.prompts[index // (self.request.n or 1)]
        decoding = self.decoding._replace(seed=(self.decoding.seed + index) % 2**31)
        new, problem = 0, ""
        for _ in range(TRIES):
            turn = chat_model.answer(prompt, decoding, listener, self.form)
            new += turn.new_tokens
            problem = self.form.problem(turn) if self.form and turn.ended != "cut" else ""
            if not problem:
                return turn._replace(new_tokens=new)
            decoding = decoding._replace(
                seed=(decoding.seed + self.answers) % 2**31,
                temperature=max(decoding.temperature, RETRY_TEMPERATURE),
            )
        raise Refused(
            422,
            f"None of {TRIES} answers is what the request asks for. The last one: {problem}.",
            code="no_fitting_answer",
        )


def chat_job(body: bytes, chat_model: ChatModel) -> ServeJob:
    """Raises Refused 400 or 404, or RowError for messages that are not a dialog."""
    request = openai_api.read_request(body, chat_model.name)
    least = chat_model.least_tokens(request.messages, request.offered)
    _check_length(chat_model, least, "messages", "at least ")
    dialog = chat_model.opened(request.messages, request.offered)
    form = _form(request, dialog, chat_model)
    _check_length(chat_model, len(dialog.ids), "messages")
    most = request.max_completion_tokens or request.max_tokens
    decoding = _decoding(request, most or chat_model.max_new_tokens)
    is_wordwise = not (request.offered or form)
    return ServeJob(request, CHAT, [dialog], len(request.messages), decoding, form, is_wordwise)


def text_job(body: bytes, chat_model: ChatModel) -> ServeJob:
    """Raises Refused 400 or 404."""
    request = text_completions.read_request(body, chat_model.name)
    prompts = []
    for prompt in request.prompts:
        least = chat_model.least_tokens([{"content": prompt}], [])
        _check_length(chat_model, least, "prompt", "at least ")
        prompts.append(chat_model.opened_text(prompt))
        _check_length(chat_model, len(prompts[-1].ids), "prompt")
    if not all(prompt.ids for prompt in prompts):
        raise Refused(400, "The prompt is empty.", param="prompt")
    decoding = _decoding(request, request.max_tokens or chat_model.max_new_tokens)
    return ServeJob(request, TEXT, prompts, len(prompts), decoding)


JOBS: Mapping[str, Callable[[bytes, ChatModel], ServeJob]] = {
    "/v1/chat/completions": chat_job,
    "/v1/completions": text_job,
}


def _decoding(request: Sampled, most: int) -> Decoding:
    return Decoding(
        max_new_tokens=most,
        temperature=request.temperature or 0.0,
        top_p=1.0 if request.top_p is None else request.top_p,
        seed=openai_api.seed_of(request),
        stops=request.stops,
    )


def _check_length(chat_model: ChatModel, tokens: int, param: str, about: str = "") -> None:
    if tokens >= chat_model.max_length:
        raise Refused(
            400,
            f"This model's maximum context length is {chat_model.max_length} tokens. However, your "
            f"{param} resulted in {about}{tokens} tokens. Please reduce the length of the {param}.",
            param=param,
            code="context_length_exceeded",
        )


def _form(request: Request, dialog: Opened, chat_model: ChatModel) -> AnswerForm | None:
    if request.schema is not None:
        return chat_model.json_form(request.schema)
    if request.forced is None:
        return None
    tools = [tool.name for tool in dialog.record.tools]
    if request.forced and request.forced not in tools:
        raise Refused(
            400,
            f"`tool_choice` names {request.forced}, which is not among the tools.",
            param="tool_choice",
        )
    form = chat_model.call_form(dialog, [request.forced] if request.forced else tools)
    if form is None:
        raise Refused(
            400,
            "`tool_choice` is not supported as given: this model's protocol "
            f"({chat_model.protocol.name}) cannot be made to write a call.",
            param="tool_choice",
            code="unsupported_value",
        )
    return form
