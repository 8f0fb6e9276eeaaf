"""The older completions: a text goes on, as it stands."""

import json
from typing import Any

import pytest

from agentlite.core.records import Parsed
from agentlite.data.openai_messages import Turn
from agentlite.deploy.openai_api import CompletionBody, Refused
from agentlite.deploy.text_completions import (
    TextRequest,
    end_chunks,
    last_chunks,
    read_request,
    response,
    words_chunk,
)

ABOUT = CompletionBody("cmpl-1", 12, "sft")
COMMON = {"id": "cmpl-1", "object": "text_completion", "created": 12, "model": "sft"}


def request(**fields: Any) -> TextRequest:
    return read_request(json.dumps({"prompt": "Once"} | fields).encode(), "sft")


def turn(text: str, ended: Any = "turn") -> Turn:
    return Turn(text, ended, Parsed(text), 5, 3)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": [1, 2]}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a"] * 17}, "prompt"),
        ({"logprobs": 0}, "logprobs"),
        ({"echo": True}, "echo"),
        ({"suffix": "end"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"messages": []}, "messages"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
    ],
)
def test_what_cannot_be_done_is_refused_by_its_name(fields, param):
    with pytest.raises(Refused) as refused:
        request(**fields)
    assert refused.value.status == 400
    assert str(refused.value.body["error"]["param"]).startswith(param)
    request(echo=False, suffix=None, best_of=1, logprobs=None)


def test_prompts_are_one_or_several():
    assert request().prompts == ["Once"] and request(prompt=["a", "b"]).prompts == ["a", "b"]


def test_an_answer_is_the_text_before_a_stop():
    asked = request(prompt=["a", "b"], stop="!")
    body = response(ABOUT, asked, [turn("upon!", "stop"), turn("a time", "cut")])
    choices = body.pop("choices")
    assert [(one["text"], one["finish_reason"]) for one in choices] == [
        ("upon", "stop"),
        ("a time", "length"),
    ]
    tokens = {"prompt_tokens": 10, "completion_tokens": 6, "total_tokens": 16}
    assert body == {**COMMON, "usage": tokens}


def test_a_stream_gives_the_rest_the_reason_and_the_tokens():
    asked = request(stream=True, stream_options={"include_usage": True})
    chunks = [
        words_chunk(ABOUT, 0, "upon"),
        *last_chunks(ABOUT, 0, asked, turn("upon a time"), "upon"),
        *end_chunks(ABOUT, asked, [turn("upon a time")]),
    ]
    assert chunks.pop() == b"data: [DONE]\n\n"
    first, last, counted = (json.loads(chunk[6:]) for chunk in chunks)
    assert first == {
        **COMMON,
        "choices": [{"index": 0, "text": "upon", "logprobs": None, "finish_reason": None}],
    }
    assert (last["choices"][0]["text"], last["choices"][0]["finish_reason"]) == (" a time", "stop")
    assert counted["choices"] == [] and counted["usage"]["total_tokens"] == 8
