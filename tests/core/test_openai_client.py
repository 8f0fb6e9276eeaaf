"""The client on a transport of its own: tries, waits, deadlines, limits and hostile replies."""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from agentlite.core import openai_client
from agentlite.core.errors import UserError
from agentlite.core.openai_client import Endpoint, Reply, ask

COMPLETION = json.dumps({"choices": [{"message": {"content": "Yes."}}]}).encode()


class Stop(threading.Event):
    """Notes the waits, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        return False


class Answers(list[Any]):
    """What the endpoint answers to each try, in turn: (status, Retry-After, bytes or a stream of
    them) or an exception. Those that were used are gone. `requests`: what it was asked.
    """

    def __init__(self) -> None:
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.pop(0)
        if isinstance(answer, Exception):
            raise answer
        status, retry_after, content = answer
        stream = httpx.ByteStream(content) if isinstance(content, bytes) else content
        return httpx.Response(status, headers={"Retry-After": retry_after}, stream=stream)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    made = Answers()
    transport = httpx.MockTransport(made)
    monkeypatch.setattr(
        openai_client, "_client", lambda endpoint: httpx.Client(transport=transport)
    )
    monkeypatch.setattr("random.uniform", lambda low, high: 1.0)
    return made


HERE = Endpoint("http://localhost:1/v1", "m", "NO_SUCH_KEY", tries=3, pause=1.0)
LATER = (408, 409, 425, 429, 500, 502, 503, 504, 529)
NEVER = (401, 402, 403, 404, 405, 300, 301, 307, 308)
THIS_ONE = (400, 406, 410, 413, 415, 422, 451, 501, 505)


@pytest.mark.parametrize("status", [*LATER, *NEVER, *THIS_ONE])
def test_a_status_is_tried_again_or_costs_the_prompt_or_ends_all(status, answers):
    answers += [(status, "", b"because"), (status, "", b""), (200, "", COMPLETION)]
    stop = Stop()
    if status in NEVER:
        with pytest.raises(UserError, match=f"answered {status}: because") as refused:
            ask(HERE, [], {}, stop)
        assert refused.value.exit_code == 8 and refused.value.fix
        assert len(answers) == 2
    elif status in THIS_ONE:
        reply = ask(HERE, [], {}, stop)
        assert reply == Reply("", f"answered {status}", detail="because")
        assert len(answers) == 2 and not reply.silent
    else:
        assert ask(HERE, [], {}, stop).text == "Yes."
        assert answers == [] and stop.waits == [1.0, 2.0]


@pytest.mark.parametrize(
    ("header", "wait"),
    [("2.5", 2.5), ("-3", 0.0), ("120", openai_client.LONGEST_WAIT), ("", 1.0), ("soon", 1.0)],
)
def test_the_endpoint_says_how_long_to_wait(header, wait, answers):
    answers += [(429, header, b""), (200, "", COMPLETION)]
    stop = Stop()
    assert ask(HERE, [], {}, stop).text == "Yes." and stop.waits == [wait]


def test_a_stop_ends_the_tries(answers):
    stop = Stop()
    stop.set()
    assert ask(HERE, [], {}, stop) == Reply("", "stopped")
    assert stop.waits == []

    class Later(Stop):
        def wait(self, timeout: float | None = None) -> bool:
            self.set()
            return True

    answers += [(503, "", b""), (200, "", COMPLETION)]
    assert ask(HERE, [], {}, Later()) == Reply("", "answered 503", silent=True)
    assert len(answers) == 1


def completion(message: object = None, **more: object) -> dict[str, object]:
    return {"choices": [{"message": message, **more}]}


@pytest.mark.parametrize(
    ("content", "reply"),
    [
        (
            {
                **completion({"content": "Hi"}, finish_reason="stop"),
                "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
            },
            Reply("Hi", "", 5, 2, finish="stop"),
        ),
        (completion({"content": ""}), Reply("")),
        (completion({"content": None}), Reply("", "sent no text")),
        (completion({"content": 3}), Reply("", "sent no chat completion", silent=True)),
        (completion({}), Reply("", "sent no text")),
        (completion({"content": None}, finish_reason="length"), Reply("", finish="length")),
        (
            completion({"content": "a"}, finish_reason="error"),
            Reply("", "sent an answer that ended with an error", silent=True),
        ),
        (
            {"choices": [{"index": 1}, {"index": 0, "message": {"content": "first"}}]},
            Reply("first"),
        ),
        (completion({"content": None, "tool_calls": [1]}), Reply("", calls=[1])),
        (completion({"content": "a", "tool_calls": []}), Reply("a")),
        (
            {
                **completion({"content": "a"}),
                "usage": {"prompt_tokens": -1, "completion_tokens": "2"},
            },
            Reply("a"),
        ),
        ({**completion({"content": "a"}), "usage": [1]}, Reply("a")),
        ({**completion({"content": "a"}), "usage": {"prompt_tokens": 0}}, Reply("a")),
        (completion("text"), Reply("", "sent no chat completion", silent=True)),
        ({"choices": []}, Reply("", "sent no chat completion", silent=True)),
        ({"choices": {"0": 1}}, Reply("", "sent no chat completion", silent=True)),
        ([], Reply("", "sent no chat completion", silent=True)),
        ("text", Reply("", "sent no chat completion", silent=True)),
    ],
    ids=str,
)
def test_a_reply_holds_text_calls_and_counts_or_says_why_not(content, reply, answers):
    answers += [(200, "", json.dumps(content).encode())]
    found = ask(HERE._replace(tries=1), [], {}, Stop())._replace(detail="")
    assert found._replace(calls=list(found.calls)) == reply._replace(calls=list(reply.calls))


def test_a_request_says_who_asks_and_holds_the_key_trimmed(monkeypatch, answers):
    monkeypatch.setenv("MY_KEY", " k-123\n")
    answers += [(200, "", COMPLETION)] * 2
    messages = [{"role": "user", "content": "Rain?"}]
    ask(HERE._replace(key="MY_KEY"), messages, {"top_p": 0.5}, Stop())
    monkeypatch.delenv("MY_KEY")
    ask(HERE._replace(key="MY_KEY"), [], {}, Stop())
    first, second = answers.requests
    assert (first.method, str(first.url)) == ("POST", "http://localhost:1/v1/chat/completions")
    assert first.headers["authorization"] == "Bearer k-123"
    assert first.headers["user-agent"] == "agentlite"
    assert json.loads(first.content) == {"model": "m", "messages": messages, "top_p": 0.5}
    assert "authorization" not in second.headers


class Chunks(httpx.SyncByteStream):
    def __init__(self, *chunks: bytes, pause: float = 0.0):
        self.chunks, self.pause = chunks, pause

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self.chunks:
            time.sleep(self.pause)
            yield chunk


@pytest.mark.parametrize("status", [200, 400])
def test_a_try_ends_in_time_however_slowly_a_server_drips(status, answers):
    answers += [(status, "", Chunks(*[b" "] * 100, pause=0.05))] * 3
    begun = time.monotonic()
    reply = ask(HERE._replace(timeout=0.2), [], {}, Stop())
    assert (reply.problem, reply.silent, len(answers)) == ("timed out", True, 1)
    assert time.monotonic() - begun < 2


def test_a_connection_that_fails_is_tried_again_and_a_reply_has_a_limit(answers):
    answers += [httpx.ConnectError("refused"), httpx.ReadTimeout("slow"), (200, "", COMPLETION)]
    assert ask(HERE, [], {}, Stop()).text == "Yes."
    answers += [httpx.ConnectError("refused")] * 3
    reply = ask(HERE, [], {}, Stop())
    assert (reply.problem, reply.detail, reply.silent) == ("no connection", "refused", True)
    answers += [(200, "", Chunks(b" " * (openai_client.LONGEST_REPLY + 1), COMPLETION))]
    assert ask(HERE._replace(tries=1), [], {}, Stop()).problem == "sent no chat completion"


def test_an_explanation_is_shown_in_part_and_without_the_key(monkeypatch, answers):
    monkeypatch.setenv("MY_KEY", "k-123")
    answers += [(400, "", b"bad k-123 " + b"x" * 500)]
    reply = ask(HERE._replace(key="MY_KEY"), [], {}, Stop())
    assert reply.detail == "bad (the key) " + "x" * 186 and len(reply.detail) == 200
