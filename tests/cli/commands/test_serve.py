"""serve: the token that other machines must send, and what reaches the server."""

import json
import signal
import sys
from types import SimpleNamespace

import pytest

from agentlite.cli.commands.serve import LEAST_TOKEN, read_token, serve
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


@pytest.mark.parametrize("as_json", [True, False])
def test_the_port_is_taken_first_and_the_options_reach_the_server(monkeypatch, capsys, as_json):
    steps = []

    class Model:
        protocol, max_length, max_new_tokens = SimpleNamespace(name="hermes"), 100, 50

        def __init__(self, *given, **options):
            steps.append(("model", *map(str, given), options))

        def load(self):
            steps.append("load")

    class Server:
        url = "http://127.0.0.1:1/v1"

        def __init__(self, model, port, **given):
            steps.append(("server", port, given))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            steps.append("closed")

        def run(self):
            steps.append(signal.getsignal(signal.SIGTERM) is signal.default_int_handler)
            raise KeyboardInterrupt

    monkeypatch.setattr("agentlite.deploy.chat_model.ChatModel", Model)
    monkeypatch.setattr("agentlite.deploy.server.Server", Server)
    monkeypatch.setenv("SERVE_TOKEN", GOOD)
    before = signal.getsignal(signal.SIGTERM)
    try:
        serve("sft", 8, "0.0.0.0", "SERVE_TOKEN", 3, "r", as_json, False, system="Be brief.")
    finally:
        signal.signal(signal.SIGTERM, before)
    given = {"host": "0.0.0.0", "token": GOOD, "longest_queue": 3}
    model = ("model", "sft", "r", {"system": "Be brief."})
    assert steps == [model, ("server", 8, given), "load", True, "closed"]
    out, err = capsys.readouterr()
    address = {"url": Server.url, "model": "sft", "protocol": "hermes", "max_length": 100}
    assert json.loads(out) == address if as_json else Server.url in out
    assert err == "serve: stopped\n"


def test_the_extra_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(UserError, match=r"llguidance.*\n.*pip install 'agentlite\[serve\]'"):
        serve("sft", 8, "127.0.0.1", "", 3, "r", False, False)
