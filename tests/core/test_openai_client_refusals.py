"""Each refusal of a server names the fix, and each missing reply its cause."""

import threading

import pytest

from agentlite.core import openai_client
from agentlite.core.errors import UserError
from agentlite.core.openai_client import Endpoint, Reply, ask

HERE = Endpoint("http://localhost:1/v1", "the-model", "MY_KEY", tries=1)


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
