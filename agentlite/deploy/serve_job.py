"""A request -> a job for the model: a prompt that fits, how it is answered, and the answers."""

from collections.abc import Callable
from typing import NamedTuple

from agentlite.data.openai_messages import Opened, Turn, least_tokens
from agentlite.deploy.answer_form import AnswerForm, call_form, json_form
from agentlite.deploy.chat_model import ChatModel
from agentlite.deploy.openai_api import (
    Completion,
    Refused,
    Request,
    read_request,
    unsupported,
    until_stops,
)
from agentlite.engine.decoding import Decoding
from agentlite.engine.stream import Listener

TRIES = 3  # of an answer that must have a form
RETRY_TEMPERATURE = 0.8  # at least, from the second try on: the likeliest answer did not fit


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

    def run(self, send: Callable[[bytes], object], is_gone: Callable[[], bool]) -> list[Turn]:
        """All answers; `send` gets the events of a stream as they come. Raises ClientGone, and
        Refused 422 if no try of an answer fits the form.
        """
        completion, turns = self.completion, list[Turn]()
        for index in range(completion.request.n or 1):
            if is_gone():  # while it waited
                raise ClientGone
            sent = ""

            def listener(text: str, index: int = index) -> bool:
                nonlocal sent
                whole = until_stops(sent + text, completion.request.stops)
                if self.is_wordwise and len(whole) > len(sent):
                    send(completion.words_event(index, whole[len(sent) :]))
                    sent = whole
                return not is_gone()

            send(completion.first_event(index))
            turns.append(self.answer(index, listener))
            if is_gone():  # in the middle of the answer
                raise ClientGone
            for event in completion.last_events(index, turns[-1], sent):
                send(event)
        for event in completion.end_events(turns):
            send(event)
        return turns

    def answer(self, index: int, listener: Listener) -> Turn:
        """Answer number `index`. Raises Refused 422 if none fits the form."""
        decoding = self.decoding._replace(seed=(self.decoding.seed + index) % 2**31)
        new, problem = 0, ""
        for _ in range(TRIES):
            turn = self.chat_model.answer(self.prompt, decoding, listener, self.form)
            new += turn.new_tokens
            problem = self.form.problem(turn) if self.form and turn.ended != "cut" else ""
            if not problem:
                return turn._replace(new_tokens=new)
            decoding = decoding._replace(
                seed=(decoding.seed + (self.completion.request.n or 1)) % 2**31,
                temperature=max(decoding.temperature, RETRY_TEMPERATURE),
            )
        raise Refused(
            422,
            f"None of {TRIES} answers is what the request asks for. The last one: {problem}.",
            code="no_fitting_answer",
        )


def chat_job(body: bytes, chat_model: ChatModel) -> ServeJob:
    """Raises Refused 400 or 404, or RowError for messages that are not a dialog."""
    request = read_request(body, chat_model.name)
    # known at once, however long they are
    least = least_tokens(request.messages, request.offered, chat_model.template)
    _check_length(chat_model, least, "at least ")
    dialog = chat_model.opened(request.messages, request.offered)
    _check_length(chat_model, len(dialog.ids))
    form = _form(request, dialog, chat_model)
    completion = Completion(request, chat_model.name)
    decoding = Decoding(
        request.max_completion_tokens or request.max_tokens or chat_model.max_new_tokens,
        temperature=request.temperature or 0.0,
        top_p=request.top_p or 1.0,
        seed=completion.seed,
        stops=request.stops,
    )
    return ServeJob(chat_model, completion, dialog, decoding, form)


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
