"""A request -> a job for the model: prompts that fit, how they are answered, and the answers."""

from typing import NamedTuple

from agentlite.data.openai_messages import Opened, Turn
from agentlite.deploy import openai_api
from agentlite.deploy.answer_form import AnswerForm
from agentlite.deploy.chat_model import ChatModel
from agentlite.deploy.openai_api import Refused, Request
from agentlite.engine.decoding import Decoding
from agentlite.engine.stream import Listener

TRIES = 3  # of an answer that must have a form
RETRY_TEMPERATURE = 0.8  # at least, from the second try on: the likeliest answer did not fit


class ServeJob(NamedTuple):
    """`is_wordwise`: a stream may pass on each word as it comes. With tools or a form an answer
    comes once it is whole: before that, words may be half a call, or not fit.
    """

    request: Request
    prompt: Opened
    decoding: Decoding
    form: AnswerForm | None = None
    is_wordwise: bool = True

    @property
    def answers(self) -> int:
        return self.request.n or 1

    def answer(self, chat_model: ChatModel, index: int, listener: Listener) -> Turn:
        """Answer number `index`. Raises Refused 422 if none fits the form."""
        decoding = self.decoding._replace(seed=(self.decoding.seed + index) % 2**31)
        new, problem = 0, ""
        for _ in range(TRIES):
            turn = chat_model.answer(self.prompt, decoding, listener, self.form)
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
    _check_length(chat_model, least, "at least ")
    dialog = chat_model.opened(request.messages, request.offered)
    form = _form(request, dialog, chat_model)
    _check_length(chat_model, len(dialog.ids))
    most = request.max_completion_tokens or request.max_tokens
    decoding = _decoding(request, most or chat_model.max_new_tokens)
    is_wordwise = not (request.offered or form)
    return ServeJob(request, dialog, decoding, form, is_wordwise)


def _decoding(request: Request, most: int) -> Decoding:
    return Decoding(
        max_new_tokens=most,
        temperature=request.temperature or 0.0,
        top_p=1.0 if request.top_p is None else request.top_p,
        seed=openai_api.seed_of(request),
        stops=request.stops,
    )


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
