"""serve: what a client of OpenAI's gets is what eval gets; bad requests are told as OpenAI tells
them.
"""

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.examples import ALL
from support.processes import start
from support.samples import OSLO, WEATHER_TOOL
from support.serving import serving

from agentlite.cli.main import group
from agentlite.deploy.chat_model import ChatModel
from agentlite.deploy.export.targets import SERVER, program
from agentlite.deploy.server import Server
from agentlite.engine.llama_server import run_server

LLAMA_SERVER = program(os.environ["LLAMA_CPP"], SERVER) if ALL and "LLAMA_CPP" in os.environ else ""
ASKED: dict[str, Any] = {"model": "sft", "messages": [OSLO], "tools": [WEATHER_TOOL]}


@pytest.fixture(scope="module")
def chat_model(caller: Path) -> ChatModel:
    made = ChatModel("sft", caller, max_length=512, max_new_tokens=400)
    made.load()
    return made


@pytest.fixture(scope="module")
def server(chat_model: ChatModel) -> Iterator[Server]:
    with serving(chat_model) as made:
        yield made


@pytest.fixture
def client(server: Server) -> Any:
    openai = pytest.importorskip("openai")
    return openai.OpenAI(base_url=server.url, api_key="none", max_retries=0)


def test_a_call_goes_out_and_its_result_comes_back(client):
    first = client.chat.completions.create(**ASKED)
    message = first.choices[0].message
    [call] = message.tool_calls
    assert (first.choices[0].finish_reason, call.function.name) == ("tool_calls", "get_weather")
    assert json.loads(call.function.arguments) == {"city": "Oslo"} and message.content is None
    result = {"role": "tool", "tool_call_id": call.id, "content": "4 mm"}
    second = client.chat.completions.create(**ASKED | {"messages": [OSLO, message, result]})
    assert (second.choices[0].finish_reason, second.choices[0].message.content) == (
        "stop",
        "Yes, 4 mm.",
    )
    assert second.usage.prompt_tokens > first.usage.prompt_tokens > 0


@pytest.mark.skipif(not LLAMA_SERVER, reason="needs --all, and LLAMA_CPP with a llama-server")
def test_llama_cpp_makes_the_same_call(caller, client, tmp_path):
    words = ["export", "sft", "--run", caller, "--check", "0", "--gguf", tmp_path / "m.gguf"]
    group.main([*map(str, words)], standalone_mode=False)
    with run_server(LLAMA_SERVER, tmp_path / "m.gguf", 512) as address:
        theirs = client.with_options(base_url=f"{address}/v1").chat.completions
        [call] = theirs.create(**ASKED, temperature=0).choices[0].message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "get_weather",
        {"city": "Oslo"},
    )


@pytest.mark.parametrize(
    "more", [{"tools": [WEATHER_TOOL]}, {}, {"stop": ["e"]}, {"temperature": 1.5, "seed": 3}]
)
def test_a_stream_says_what_the_whole_answer_says(client, more):
    asked = {"model": "sft", "messages": [OSLO], "max_tokens": 40, **more}
    whole = client.chat.completions.create(**asked)
    parts = list(
        client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    assert "".join(p.choices[0].delta.content or "" for p in parts[:-1]) == (
        whole.choices[0].message.content or ""
    )
    deltas = [call for part in parts[:-1] for call in part.choices[0].delta.tool_calls or ()]
    calls = {call.index: call.function for call in deltas}
    told = [call.function for call in whole.choices[0].message.tool_calls or ()]
    assert [(call.name, call.arguments) for call in calls.values()] == [
        (call.name, call.arguments) for call in told
    ]
    assert len(told) == ("tools" in more)
    assert parts[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert parts[-1].usage == whole.usage
    if more == {}:
        assert len(parts) > 5  # it came bit by bit


BAD = {
    "no JSON": (b"{", 400, "not JSON"),
    "no object": (b"[]", 400, "Expected `object`"),
    "no turn left": (
        ASKED | {"messages": [OSLO, {"role": "assistant", "content": "x"}]},
        400,
        "nothing to answer",
    ),
    "a tool that is none": (ASKED | {"tools": [{"type": "function", "function": {}}]}, 400, "tool"),
    "a mark of the model": (
        ASKED | {"messages": [{"role": "user", "content": "<|im_end|>"}]},
        400,
        "<|im_end|>",
    ),
    "too long": (
        ASKED | {"messages": [{"role": "user", "content": "wet " * 900}]},
        400,
        "maximum context length",
    ),
    "a temperature of text": (ASKED | {"temperature": "hot"}, 400, "temperature"),
    "a forced call": (ASKED | {"tool_choice": "required"}, 400, "tool_choice"),
    "JSON": (ASKED | {"response_format": {"type": "json_object"}}, 400, "response_format"),
    "another model": (ASKED | {"model": "gpt-9"}, 404, "`gpt-9` does not exist"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_is_told_why_and_the_next_one_is_answered(server, name):
    body, status, reason = BAD[name]
    connection = http.client.HTTPConnection(*server.address, timeout=20)
    connection.request(
        "POST", "/v1/chat/completions", body if isinstance(body, bytes) else json.dumps(body)
    )
    answer = connection.getresponse()
    told = json.loads(answer.read())["error"]
    assert (answer.status, told["type"]) == (
        status,
        "not_found_error" if status == 404 else "invalid_request_error",
    )
    assert reason in told["message"]
    connection.request("GET", "/v1/models")  # on the same connection
    assert json.loads(connection.getresponse().read())["data"][0]["id"] == "sft"


def test_the_command_says_where_it_is_and_ends_when_told_to(caller):
    command = [sys.executable, "-m", "agentlite", "serve", "sft", "--run", str(caller)]
    with start(
        [*command, "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    ) as process:
        told = json.loads(process.stdout.readline())
        client = pytest.importorskip("openai").OpenAI(base_url=told["url"], api_key="none")
        assert client.models.list().data[0].id == told["model"] == "sft"
        process.send_signal(signal.SIGTERM)
        rest, noise = process.communicate(timeout=30)
    assert (process.returncode, rest) == (0, "")
    assert "serve: stopped" in noise and "Traceback" not in noise
