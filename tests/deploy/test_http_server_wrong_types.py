"""Every field of a request with values of every wrong type: the server says what is wrong, and
where, in plain words.
"""

import copy
import http.client
import json
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from support.listening import listen

from agentlite.core.records import Parsed
from agentlite.data.openai_messages import Opened, Turn, opened
from agentlite.deploy.http_server import Server
from agentlite.deploy.openai_api import Request
from agentlite.deploy.text_completions import TextRequest
from agentlite.rendering import PROTOCOLS
from agentlite.rendering.template import Template

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
SAMPLED = {
    "model": "sft",
    "max_tokens": 5,
    "temperature": 0.5,
    "top_p": 0.5,
    "seed": 1,
    "stop": ["a"],
    "n": 1,
    "stream": True,
    "stream_options": {"include_usage": True, "include_obfuscation": False},
}
TOOL = {
    "name": "f",
    "description": "d",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer", "description": "e"}},
        "required": ["a"],
    },
}
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {
        **SAMPLED,
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": [{"type": "text", "text": "How much?"}]},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "a", "content": "4 mm"},
            {"role": "assistant", "content": "4 mm."},
            {"role": "user", "content": "Is that much?"},
        ],
        "tools": [{"type": "function", "function": TOOL}],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "max_completion_tokens": 5,
        "response_format": {"type": "text"},
    },
    TEXT: {**SAMPLED, "prompt": ["Once", "Twice"]},
}
WRONG: list[Any] = [None, True, 5, -1, 0.5, 1e300, 10**30, "text", "", [], [1], ["a"], [None]]
WRONG += [{}, {"a": 1}, [[]], [{}], [[[[{"a": {}}]]]]]
# of Python, msgspec and json
LIBRARY = re.compile(
    r"Expected|Object|Error|Traceback|`(str|int|float|bool|array|object|null)`|\$|None|True|False"
    r"|msgspec|malformed|Invalid|dict\b|'\w+': "
)
# an answer to another message, or its end, is what is wrong once this is changed
ELSEWHERE = re.compile(r"E20[345]|E216")


class Model:
    """Opens requests as a real model does, and says nothing."""

    name, max_length, max_new_tokens = "sft", 2048, 40

    def __init__(self, template: Template) -> None:
        self.template = template

    def opened(self, messages: Any, tools: Any) -> Opened:
        return opened(messages, tools, PROTOCOLS["hermes"], self.template)

    def opened_text(self, text: str) -> Any:
        return SimpleNamespace(ids=list(text))

    def least_tokens(self, messages: Any, tools: Any) -> int:
        return len(messages) + len(tools)

    def answer(self, *given: Any) -> Turn:
        return Turn("", "turn", Parsed(""), 5, 0)


@pytest.fixture(scope="module")
def server(smollm2: Template) -> Iterator[Server]:
    with Server(Model(smollm2), 0) as made:  # type: ignore[arg-type]
        thread = listen(made)
        yield made
        made.shutdown()
        thread.join()


def post(connection: http.client.HTTPConnection, path: str, body: bytes) -> tuple[int, Any]:
    connection.request("POST", path, body)
    answer = connection.getresponse()
    content = answer.read()
    return answer.status, json.loads(content)["error"] if answer.status != 200 else None


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*place, key))


def changed(body: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    body = copy.deepcopy(body)
    part = body
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    return body


def test_the_bodies_have_every_field():
    assert BODIES[CHAT].keys() == {*Request.__struct_fields__}
    assert BODIES[TEXT].keys() == {*TextRequest.__struct_fields__}


@pytest.mark.parametrize(
    ("path", "field"), [(path, field) for path, body in BODIES.items() for field in ("", *body)]
)
def test_a_wrong_value_is_refused_in_plain_words_that_name_its_place(server, path, field):
    body, refused = BODIES[path], 0
    connection = http.client.HTTPConnection(*server.server_address, timeout=60)
    for place in places(body):
        if "".join(map(str, place[:1])) != field:
            continue
        for value in WRONG:
            if place == ("stream",) and value is None:
                continue  # the fault is then that there are stream_options
            status, error = post(connection, path, json.dumps(changed(body, place, value)).encode())
            if status == 200:
                continue
            refused += 1
            about = f"{place} {value!r}: {status} {error}"
            assert status == 400 or (status == 404 and field == "model"), about
            assert not LIBRARY.search(error["message"]), about
            if place:
                assert field in (error["param"], re.split(r"[.\[]", error["param"])[0]), about
                assert is_named(place, error), about
    assert refused


def is_named(place: tuple[Any, ...], error: dict[str, Any]) -> bool:
    """Whether the error says where: a path of fields, the number of a message, a tool."""
    field, *inner = place
    if error["message"] == "The prompt is empty.":
        return field == "prompt"
    if error["code"] in (None, "unsupported_value", "model_not_found"):
        return f"`{error['param']}`" in error["message"] or error["code"] == "model_not_found"
    if ELSEWHERE.match(error["code"]):
        return bool(re.search(r"message \d+", error["message"]))
    if field == "messages":
        number = inner[0] + 1 if inner else 1
        return f"message {number})" in error["message"]
    return "tool" in error["message"] or "parameters of f" in error["message"]


NOT_JSON = {
    b"": "it is empty",
    b"{": "it ends too early",
    b'{"a": ': "it ends too early",
    b"\xff": "it is not UTF-8 at byte 1",
    b'{"a": "\xc3"}': "it is not UTF-8 at byte 8",
    b"nul": "it ends too early",
    b"{'a': 1}": "it is wrong at byte 2, in",
    b'{"a": 1,}': "it is wrong at byte 9, in",
    b'{"a": NaN}': "it is wrong at byte 7, in",
    b'{"a": 1} x': "it is wrong at byte 11, in",
    b'{"a": ' + b"[" * 100_000: "it is nested too deep",
    b'{"a": ' * 100_000: "it is nested too deep",
}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("body", NOT_JSON, ids=lambda body: repr(body[:12]))
def test_a_body_that_is_not_json_is_refused_with_the_place(server, path, body):
    connection = http.client.HTTPConnection(*server.server_address, timeout=60)
    status, error = post(connection, path, body)
    assert (status, error["type"]) == (400, "invalid_request_error")
    message = error["message"]
    assert message.startswith("The body of the request is not JSON: ") and NOT_JSON[body] in message
    assert not LIBRARY.search(message.partition(", in ")[0])
