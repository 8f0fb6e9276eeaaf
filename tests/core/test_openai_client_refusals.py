"""Each refusal of a server names the fix, and each missing reply its cause."""

import json
import threading
from typing import Any

import pytest

from agentlite.core import openai_client
from agentlite.core.errors import UserError
from agentlite.core.openai_client import Endpoint, Reply, ask

HERE = Endpoint("http://localhost:1/v1", "the-model", "MY_KEY", tries=1)
COMPLETION = json.dumps({"choices": [{"message": {"content": "Yes."}}]}).encode()


def asked(monkeypatch: pytest.MonkeyPatch, status: int, content: bytes) -> Reply:
    """What becomes of an answer."""
    response = openai_client._Response(status, "", bytearray(content))
    monkeypatch.setattr(openai_client, "_post", lambda endpoint, body: response)
    return ask(HERE, [], {}, threading.Event())


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, ["MY_KEY"]),
        (402, ["credit"]),
        (403, ["MY_KEY", "the-model"]),
        (404, ["/v1", "model"]),
        (405, ["/v1"]),
        (307, ["redirects"]),
    ],
)
def test_a_refusal_has_the_way_out_that_belongs_to_it(status, words, monkeypatch):
    with pytest.raises(UserError) as refused:
        asked(monkeypatch, status, b"")
    assert all(word in refused.value.fix for word in words)
    assert ("redirects" in refused.value.fix) is (status == 307)
    assert refused.value.location == HERE.address


def test_a_reply_may_begin_with_the_mark_of_utf8_and_a_page_in_its_place_is_shown(monkeypatch):
    assert asked(monkeypatch, 200, b"\xef\xbb\xbf" + COMPLETION).text == "Yes."
    reply = asked(monkeypatch, 200, b"<html>at lunch</html>")
    assert (reply.problem, reply.detail) == ("sent no chat completion", "<html>at lunch</html>")


@pytest.mark.parametrize(
    ("host", "is_here"),
    [("localhost", True), ("127.0.0.1", True), ("[::1]", True), ("127.0.0.2", False), ("h", False)],
)
def test_no_proxy_stands_before_this_machine(host, is_here, monkeypatch):
    given: dict[str, Any] = {}
    monkeypatch.setattr("httpx.AsyncClient", lambda **options: given.update(options))
    openai_client._client(f"http://{host}:8000/v1")
    assert given["trust_env"] is not is_here and given["follow_redirects"] is False


@pytest.mark.parametrize(
    ("url", "words"), [("https://h/v1", "instead of https://"), ("http://h/v1", "it was refused")]
)
def test_a_connection_that_fails_without_a_word_is_explained_by_the_address(url, words):
    import httpx

    endpoint = Endpoint(url, "m")
    assert words in openai_client._cause(endpoint, httpx.ConnectError(""))
    assert openai_client._cause(endpoint, httpx.ReadError("")) == "it broke off"
