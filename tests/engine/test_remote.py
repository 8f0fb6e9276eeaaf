"""eval and pairs by a server: what is asked and written down is what the model here is asked and
writes.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.serving import serving

import agentlite
from agentlite.core.openai_client import Reply
from agentlite.core.records import Record
from agentlite.core.row_files import read_rows
from agentlite.deploy.chat_model import ChatModel
from agentlite.engine.remote import RemoteRequest, write_reply
from agentlite.rendering import PROTOCOLS, Prompt, prompts_of
from agentlite.rendering.protocol_mix import adapt_protocol

CALL = {
    "id": "a",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'},
}


@pytest.fixture(scope="module")
def ours(caller: Path) -> Iterator[str]:
    """The address of our own server."""
    chat_model = ChatModel("sft", caller, max_length=512, max_new_tokens=40)
    chat_model.load()
    with serving(chat_model) as server:
        yield server.url


def asking(caller: Path, model: str, url: str) -> dict[str, Any]:
    return {
        "run": str(caller),
        "model": model,
        "endpoint": url,
        "split": "train",
        "max_new_tokens": 40,
    }


def test_eval_by_our_server_predicts_what_eval_predicts(caller, ours):
    given = {**asking(caller, "sft", ours), "max_length": 512}
    agentlite.evaluate(**{**given, "endpoint": ()})
    there = agentlite.evaluate(**given)
    [name] = there.figures
    assert (
        name.startswith("sft@127.0.0.1:")
        and there.figures[name]["metrics"]["exact_call"]["mean"] == 1
    )
    folder = caller / "eval" / "prep"
    here, other = (
        [
            (row["text"], row["calls"], row["metrics"])
            for row in read_rows(path / "predictions.jsonl")
        ]
        for path in (folder / "sft", next(folder.glob("sft-127*")))
    )
    assert here == other and len(here) == 2
    assert agentlite.evaluate(**given).status == "up to date"


def request_of(prompt: Prompt, template: Any) -> RemoteRequest:
    return RemoteRequest(prompt, adapt_protocol(PROTOCOLS[prompt.protocol], template))


@pytest.mark.parametrize("protocol", ["hermes", "react", "modelscope", "chat", "toolllama"])
def test_calls_of_a_server_read_back_in_every_protocol(dialog: Record, templates, protocol):
    template = templates["tools"]
    known = adapt_protocol(PROTOCOLS[protocol], template)
    prompt = next(iter(prompts_of([dialog], lambda record: known, template)))
    text, ended = write_reply(
        Reply("I look.", calls=[CALL], finish="tool_calls"), request_of(prompt, template), template
    )
    [call] = known.read(text, dialog.tools).calls
    assert (call.name, call.arguments, ended) == ("get_weather", {"city": "Oslo"}, prompt.ended)
    cut = Reply("half a wo", finish="length")
    assert write_reply(cut, request_of(prompt, template), template) == ("half a wo", "cut")
