"""Several answers to one request, whole and streamed: each is whole, and all are counted."""

import http.client
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from support.listening import listen
from support.processes import waits_until

from agentlite.core.records import Parsed, Record
from agentlite.data.openai_messages import Opened, Turn
from agentlite.deploy.http_server import Server
from agentlite.deploy.openai_api import Refused

CHAT = "/v1/chat/completions"
CHATTED: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "n": 2}


class Model:
    """Says the same at each answer, in two pieces, of three tokens."""

    name, max_length, max_new_tokens = "sft", 100, 40
    refused: Refused | None = None

    def opened(self, messages: Any, tools: Any) -> Opened:
        return Opened(Record(messages=()), [1] * 50)

    def least_tokens(self, messages: Any, tools: Any) -> int:
        return 1

    def answer(self, dialog: Any, decoding: Any, listener: Any, form: Any) -> Turn:
        if self.refused:
            raise self.refused
        for piece in ("Hello", " you"):
            listener(piece)
        return Turn("Hello you", "turn", Parsed("Hello you"), len(dialog.ids), 3)


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def server(model: Model) -> Iterator[Server]:
    with Server(model, 0) as made:  # type: ignore[arg-type]
        thread = listen(made)
        yield made
        made.shutdown()
        thread.join()


def post(server: Server, path: str, body: Any) -> bytes:
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=20)
    connection.request("POST", path, json.dumps(body))
    content = connection.getresponse().read()
    connection.close()
    return content


def streamed(content: bytes) -> list[Any]:
    lines = [line[6:] for line in content.decode().split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [choice for line in lines for choice in json.loads(line)["choices"]]


def test_each_answer_of_a_stream_has_all_its_words_and_its_own_end(server: Server) -> None:
    texts, ends = {0: "", 1: ""}, []
    for choice in streamed(post(server, CHAT, CHATTED | {"stream": True})):
        delta = choice.get("delta", choice)
        texts[choice["index"]] += delta.get("content") or delta.get("text") or ""
        if choice["finish_reason"]:
            ends.append((choice["index"], choice["finish_reason"]))
    assert texts == {0: "Hello you", 1: "Hello you"} and ends == [(0, "stop"), (1, "stop")]


@pytest.mark.parametrize("stream", [False, True])
def test_the_log_counts_the_tokens_of_all_prompts_and_of_all_answers(
    server: Server, stream: bool, capsys: Any
) -> None:
    post(server, CHAT, CHATTED | {"stream": stream})
    said: list[str] = []

    def is_logged() -> str:
        said.append(capsys.readouterr().err)
        return "".join(said)

    assert waits_until(lambda: "new=" in is_logged())
    assert re.search(r" prompt=50 waited=\d\.\d\d new=6$", "".join(said).strip())


def test_an_answer_that_fits_no_form_ends_its_stream_with_the_reason(
    server: Server, model: Model
) -> None:
    model.refused = Refused(422, "None of 3 answers fits.", code="no_fitting_answer")
    events = post(server, CHAT, CHATTED | {"stream": True}).decode().split("\n\n")
    error = json.loads(events[-2].removeprefix("data: "))["error"]
    assert (error["code"], error["message"]) == ("no_fitting_answer", "None of 3 answers fits.")
    model.refused = None
    assert len(json.loads(post(server, CHAT, CHATTED))["choices"]) == 2  # the model is free
