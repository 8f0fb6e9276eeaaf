"""serve: the token that other machines must send, and what reaches the server."""

import sys

import pytest

from agentlite.cli.commands.serve import LEAST_TOKEN, ServeOptions, read_token, serve
from agentlite.core.errors import UserError

GOOD = "k" * LEAST_TOKEN


@pytest.mark.parametrize(
    "value", [None, "", " ", GOOD[1:], f"{GOOD}é", f"{GOOD}\n{GOOD}", "\0" * 20]
)
def test_a_token_that_protects_nothing_or_cannot_be_sent_is_refused(monkeypatch, value):
    if value is None or "\0" in value:
        monkeypatch.delenv("SERVE_TOKEN", raising=False)
    else:
        monkeypatch.setenv("SERVE_TOKEN", value)
    with pytest.raises(UserError, match=r"SERVE_TOKEN holds no token") as caught:
        read_token("SERVE_TOKEN")
    assert caught.value.location == "--token-env" and "export SERVE_TOKEN=" in caught.value.fix


def test_the_extra_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "starlette", None)
    with pytest.raises(UserError, match=r"starlette.*\n.*pip install 'agentlite\[serve\]'"):
        serve(ServeOptions())
