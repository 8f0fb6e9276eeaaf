"""What a request asks for and what an answer says, in OpenAI's words; no model is needed."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.core.records import Call, Parsed, Record
from agentlite.data.openai_messages import OpenDialog, Turn
from agentlite.deploy.openai_api import ApiError, Completion, Request, read_request
from agentlite.engine.decoding import Decoding
from agentlite.rendering import PROTOCOLS

TOOL = {"type": "function", "function": {"name": "f"}}
ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}


def request(**fields: Any) -> Request:
    return read_request(json.dumps(ASKED | fields).encode(), "sft")


def completion(prompt: str = "", model: Any = None, **fields: Any) -> Completion:
    opened = OpenDialog(Record(messages=()), [1], prompt)
    model = model or SimpleNamespace(name="sft", protocol=PROTOCOLS["hermes"])
    return Completion(model, request(**fields), opened, Decoding(8))


def turn(text: str = "raw", ended: Any = "turn", **parsed: Any) -> Turn:
    return Turn(text, ended, Parsed(**{"content": "words", **parsed}), 5, 3)


def events(chunks: Any) -> list[Any]:
    texts = [piece.decode() for piece in chunks]
    assert all(text.startswith("data: ") and text.endswith("\n\n") for text in texts)
    return [json.loads(text[6:]) if "[DONE]" not in text else "[DONE]" for text in texts]


TAKEN = {
    "model": ["", "sft"],
    "n": [None, 1],
    "logprobs": [None, False],
    "top_logprobs": [None, 0],
    "logit_bias": [None, {}],
    "presence_penalty": [None, 0, 0.0],
    "frequency_penalty": [0],
    "user": ["someone"],
    "metadata": [{"a": "b"}],
    "tool_choice": [None, "auto", "none"],
    "response_format": [None, {"type": "text"}],
    "max_tokens": [None, 1],
    "max_completion_tokens": [None, 1],
    "temperature": [None, 0, 2],
    "top_p": [None, 0.01, 1],
    "stop": [None, "a", ["a"], []],
    "audio": [None, {}],
    "top_k": [None, 0, -1],
}
REFUSED = {
    "n": [2],
    "logprobs": [True],
    "top_logprobs": [1],
    "logit_bias": [{"5": 1}],
    "presence_penalty": [1],
    "frequency_penalty": [-0.5],
    "audio": [{"voice": "alloy"}],
    "top_k": [5],
    "functions": [[{"name": "f"}]],
    "tool_choice": ["required", {"type": "function", "function": {"name": "f"}}],
    "response_format": [{"type": "json_object"}, {"type": "json_schema"}],
    "stream_options": [{"include_usage": True}, {"x": 1}],
    "max_tokens": [0, -1],
    "max_completion_tokens": [0, -1],
    "temperature": [-0.1, 2.1],
    "top_p": [0, 1.1],
    "stop": [1, ["a"] * 17],
    "messages": [[], "text"],
}


def test_a_field_takes_what_openai_says_and_this_server_can_do():
    for name, values in TAKEN.items():
        for value in values:
            request(**{name: value})


@pytest.mark.parametrize("name", REFUSED)
def test_a_field_that_cannot_be_done_is_named(name):
    for value in REFUSED[name]:
        with pytest.raises(ApiError) as refused:
            request(**{name: value})
        error = refused.value.body["error"]
        assert (refused.value.status, error["type"]) == (400, "invalid_request_error")
        assert re.split(r"[.\[]", error["param"])[0] == name
        assert error["code"] in (None, "unsupported_value")


CALLS = (Call("f", {"a": 1}, "x"), Call("g", {}, "x"))


@pytest.mark.parametrize(
    ("said", "fields", "content", "names", "reason"),
    [
        (turn(), {}, "words", "", "stop"),
        (turn(), {"tools": []}, "raw", "", "stop"),
        (turn(), {"tool_choice": "none"}, "raw", "", "stop"),
        (turn("", content=""), {}, "", "", "stop"),
        (turn(calls=CALLS), {}, "words", "fg", "tool_calls"),
        (turn(calls=CALLS, content=""), {"parallel_tool_calls": True}, None, "fg", "tool_calls"),
        (turn(calls=CALLS), {"parallel_tool_calls": False}, "words", "f", "tool_calls"),
        (turn(calls=CALLS, ended="stop"), {}, "words", "fg", "tool_calls"),
        (turn(calls=CALLS, ended="cut"), {}, "raw", "", "length"),
        (turn(calls=CALLS, problem="odd"), {}, "raw", "", "stop"),
        (turn("a STOP b END c"), {"tools": [], "stop": "STOP"}, "a ", "", "stop"),
        (turn("a STOP b END c"), {"tools": [], "stop": ["no", "END"]}, "a STOP b ", "", "stop"),
        (turn(content="a STOP b"), {"stop": "STOP"}, "a ", "", "stop"),
    ],
)
def test_an_answer_is_one_body_as_openai_writes_it(said, fields, content, names, reason):
    answered = completion(**{"tools": [TOOL], **fields})
    body = answered.body(said)
    [choice] = body.pop("choices")
    message = choice.pop("message")
    assert choice == {"index": 0, "logprobs": None, "finish_reason": reason}
    made = message.pop("tool_calls", [])
    assert message == {"role": "assistant", "content": content, "refusal": None}
    expected = {"f": '{"a": 1}', "g": "{}"}
    assert [call["function"] for call in made] == [
        {"name": name, "arguments": expected[name]} for name in names
    ]
    ids = {call["id"] for call in made}
    assert len(ids) == len(made) and "x" not in ids and all(len(id) == 9 for id in ids)
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    about = {"id": answered.id, "object": "chat.completion", "created": answered.created}
    assert body == {**about, "model": "sft", "usage": usage}


@pytest.mark.parametrize("counted", [False, True])
def test_the_end_of_a_stream_holds_what_was_not_sent_yet(counted):
    streamed = completion(tools=[TOOL], stream=True, stream_options={"include_usage": counted})
    said = turn(calls=CALLS)
    found = events(streamed.last_events(streamed.body(said), {"content": "wo"}))
    about = {"id": streamed.id, "object": "chat.completion.chunk"}
    about |= {"created": streamed.created, "model": "sft"}
    deltas = []
    for body in found[:4]:
        [choice] = body.pop("choices")
        assert body == about and choice["index"] == 0
        deltas.append((choice["delta"], choice["finish_reason"]))
    assert deltas[0] == ({"content": "rds"}, None)
    for number, arguments in enumerate(['{"a": 1}', "{}"]):
        delta, reason = deltas[number + 1]
        [call] = delta["tool_calls"]
        assert (call["index"], call["type"], len(call["id"])) == (number, "function", 9)
        assert call["function"] == {"name": "fg"[number], "arguments": arguments}
        assert reason is None
    assert deltas[3] == ({}, "tool_calls")
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    rest = [{**about, "choices": [], "usage": usage}] if counted else []
    assert found[4:] == [*rest, "[DONE]"]


GEMMA = replace(PROTOCOLS["hermes"], thought_marks=("<|channel>thought", "<channel|>"))
# the end of a prompt, an answer, and its thought and words
SAID = [
    ("", "Yes.", "", "Yes."),
    ("", "<think>\nWet?\n</think>\n\nYes.", "Wet?", "Yes."),
    ("<think>\n", "Wet?\n</think>\n\nYes.", "Wet?", "Yes."),
    ("<think>\n", "\n</think>\n\nYes.", "", "Yes."),
    ("<think>\n", "Wet? It may be", "Wet? It may be", ""),
    ("", "<think>Wet? It may be", "Wet? It may be", ""),
    ("", "a < b, <think> c", "", "a < b, <think> c"),
    ("", "<|channel>thought\nWet?\n<channel|>Yes.", "Wet?", "Yes."),
    ("", "<|channel>thought\nWet? It may be", "Wet? It may be", ""),
]


@pytest.mark.parametrize("tools", [[], [TOOL]])
@pytest.mark.parametrize(("prompt", "text", "thought", "words"), SAID)
def test_a_thought_is_told_apart_from_the_words_also_while_it_comes(
    prompt, text, thought, words, tools
):
    class Thinks:
        name, protocol = "sft", GEMMA

        def answer(self, dialog: Any, decoding: Decoding, listener: Any) -> Turn:
            for letter in text:
                listener(letter)
            return Turn(text, "turn" if words else "cut", self.protocol.read(text, ()), 5, 3)

    answered = completion(prompt, Thinks(), tools=tools, stream=True)
    sent: list[bytes] = []
    message = answered.run(sent.append, lambda: False)["choices"][0]["message"]
    assert (message.get("reasoning_content", ""), message["content"]) == (thought, words)
    deltas = [event["choices"][0]["delta"] for event in events(sent) if event != "[DONE]"]
    for key, whole in (("reasoning_content", thought), ("content", words)):
        assert "".join(delta.get(key, "") for delta in deltas) == whole
    keys = [key for delta in deltas[1:] for key in delta]
    assert keys == sorted(keys, reverse=True)  # all of the thought comes first
