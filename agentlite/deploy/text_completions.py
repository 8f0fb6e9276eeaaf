"""OpenAI's older completions, of plain texts: requests read, responses and chunks written."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from msgspec import Meta

from agentlite.data.openai_messages import Turn
from agentlite.deploy.openai_api import (
    OFF,
    CompletionBody,
    Sampled,
    event,
    finish,
    read_as,
    until_stops,
    usage,
)

MOST_PROMPTS = 16
OFF_IN_TEXT = {**OFF, "echo": (False,), "suffix": ("",), "best_of": (1,)}


class TextRequest(Sampled, frozen=True, kw_only=True):
    """Texts to go on with, each as it stands: no template is put around it."""

    prompt: str | Annotated[list[str], Meta(min_length=1, max_length=MOST_PROMPTS)]

    @property
    def prompts(self) -> list[str]:
        return [self.prompt] if isinstance(self.prompt, str) else self.prompt


def read_request(body: bytes, model: str) -> TextRequest:
    """Raises Refused, 400 or 404."""
    return read_as(TextRequest, body, model, OFF_IN_TEXT)


def response(about: CompletionBody, request: TextRequest, turns: Sequence[Turn]) -> dict[str, Any]:
    """All answers in one body."""
    choices = [
        _choice(index, until_stops(turn.text, request.stops), finish(turn))
        for index, turn in enumerate(turns)
    ]
    return {**_body(about, choices), "usage": usage(turns, request)}


def words_chunk(about: CompletionBody, index: int, text: str) -> bytes:
    return event(_body(about, [_choice(index, text)]))


def last_chunks(
    about: CompletionBody, index: int, request: TextRequest, turn: Turn, sent: str
) -> Iterator[bytes]:
    """The parts that are left to send once an answer is whole. `sent`: the text that was streamed
    already."""
    rest = until_stops(turn.text, request.stops).removeprefix(sent)
    yield event(_body(about, [_choice(index, rest, finish(turn))]))


def end_chunks(
    about: CompletionBody, request: TextRequest, turns: Sequence[Turn]
) -> Iterator[bytes]:
    """The end of a stream, behind all answers."""
    if request.counts_usage:
        yield event({**_body(about, []), "usage": usage(turns, request)})
    yield b"data: [DONE]\n\n"


def _choice(index: int, text: str, reason: str | None = None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": reason}


def _body(about: CompletionBody, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": about.id,
        "object": "text_completion",
        "created": about.created,
        "model": about.model,
        "choices": choices,
    }
