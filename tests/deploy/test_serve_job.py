"""The answers of a request stand in the order of its prompts, and no two tries share a seed."""

import json
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from agentlite.core.records import Parsed, Record, Tool
from agentlite.data.openai_messages import Opened, Turn
from agentlite.deploy import openai_api
from agentlite.deploy.answer_form import AnswerForm
from agentlite.deploy.openai_api import (
    RETRY_TEMPERATURE,
    TRIES,
    Completion,
    Refused,
    Request,
    ServeJob,
    chat_job,
)
from agentlite.engine.decoding import Decoding
from agentlite.rendering import PROTOCOLS


class Echo:
    """A model that answers with its prompt."""

    seeds: ClassVar[list[int]] = []

    def answer(self, prompt: Any, decoding: Decoding, listener: Any, form: Any) -> Turn:
        self.seeds.append(decoding.seed)
        return Turn(prompt, "turn", Parsed(prompt))


def job_of(model: Any, decoding: Decoding, form: AnswerForm, n: int = 1) -> ServeJob:
    request = Request(messages=[{"role": "user", "content": "Hi"}], n=n)
    return ServeJob(model, Completion(request, "sft"), "a", decoding, form)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [1, 3])
def test_no_try_of_an_answer_has_the_seed_of_another_try_or_answer(n):
    form = AnswerForm("", lambda turn: "no call")
    job = job_of(Echo(), Decoding(8, 1.0, seed=2**31 - 2), form, n)
    Echo.seeds.clear()
    for index in range(n):
        with pytest.raises(Refused, match="no call"):
            job.answer(index, lambda *_: True)
    assert len({*Echo.seeds}) == len(Echo.seeds) == TRIES * n
    assert all(0 <= seed < 2**31 for seed in Echo.seeds)  # as torch takes them


class Tries:
    """Says these answers one after the other, each of five tokens."""

    def __init__(self, *answers: tuple[str, Any]):
        self.answers, self.decodings = list(answers), list[Decoding]()

    def answer(self, prompt: Any, decoding: Decoding, listener: Any, form: Any) -> Turn:
        self.decodings.append(decoding)
        text, ended = self.answers.pop(0)
        return Turn(text, ended, Parsed(text), 7, 5)


FITTING = AnswerForm("", lambda turn: "" if turn.text == "fits" else "odd")


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.5])
def test_the_tokens_of_every_try_are_counted_and_a_later_try_is_no_colder(temperature):
    tries = Tries(("no", "turn"), ("no", "stop"), ("fits", "turn"))
    job = job_of(tries, Decoding(8, temperature), FITTING)
    assert job.answer(0, lambda *_: True).new_tokens == 15
    later = max(temperature, RETRY_TEMPERATURE)
    assert [one.temperature for one in tries.decodings] == [temperature, later, later]


class Named:
    """A model of a hundred tokens, whose forms say what they are of."""

    name, max_length, max_new_tokens = "sft", 100, 40
    protocol, template = PROTOCOLS["hermes"], SimpleNamespace(longest_token=10)

    def opened(self, messages: Any, tools: Any) -> Opened:
        names = [tool["function"]["name"] for tool in tools]
        return Opened(Record(messages=(), tools=tuple(map(Tool, names))), [1, 2])


def chat(**fields: Any) -> ServeJob:
    body = {"messages": [{"role": "user", "content": "Hi"}], **fields}
    return chat_job(json.dumps(body).encode(), Named())  # type: ignore[arg-type]


def offered(*names: str) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": name}} for name in names]


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


@pytest.mark.parametrize(
    ("fields", "form", "is_wordwise"),
    [
        ({}, None, True),
        ({"response_format": {"type": "json_object"}}, {"type": "object"}, False),
        ({"tools": offered("f")}, None, False),
        ({"tools": offered("f"), "tool_choice": "none"}, None, True),
        ({"tools": offered("f"), "tool_choice": "required"}, ["f"], False),
        ({"tools": offered("f"), "tool_choice": named("f")}, ["f"], False),
    ],
)
def test_words_are_passed_on_unless_they_may_be_half_a_call_or_not_fit(
    fields, form, is_wordwise, monkeypatch
):
    monkeypatch.setattr(openai_api, "json_form", lambda schema, *_: schema)
    monkeypatch.setattr(openai_api, "call_form", lambda dialog, names, *_: names)
    job = chat(**fields)
    assert (job.form, job.is_wordwise) == (form, is_wordwise)
