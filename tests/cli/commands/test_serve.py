"""serve: the token that other machines must send, and what reaches the server."""

import signal
import sys
from contextlib import contextmanager
from types import SimpleNamespace

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


def test_the_port_is_taken_first_and_the_options_reach_the_server(monkeypatch, capsys):
    steps = []

    class Model:
        protocol, max_length = SimpleNamespace(name="hermes"), 100

        def __init__(self, *given, **options):
            steps.append((*map(str, given), options["system"]))

        def load(self):
            steps.append("load")

    @contextmanager
    def server(model, port, **given):
        steps.append((port, given))
        yield SimpleNamespace(url="http://127.0.0.1:1/v1", run=lambda: steps.append("run"))

    monkeypatch.setattr("agentlite.deploy.chat_model.ChatModel", Model)
    monkeypatch.setattr("agentlite.deploy.server.Server", server)
    monkeypatch.setattr(signal, "signal", lambda *given: steps.append(given))
    monkeypatch.setenv("SERVE_TOKEN", GOOD)
    given = {"port": 8, "host": "0.0.0.0", "token_env": "SERVE_TOKEN", "queue": 3, "run": "r"}
    serve(ServeOptions(model="sft", system="Be brief.", **given))
    given = {"host": "0.0.0.0", "token": GOOD, "longest_queue": 3}
    stopped = (signal.SIGTERM, signal.default_int_handler)
    assert steps == [("sft", "r", "Be brief."), (8, given), "load", stopped, "run"]
    assert capsys.readouterr().out.startswith("serve: sft at http://127.0.0.1:1/v1")


def test_the_extra_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(UserError, match=r"llguidance.*\n.*pip install 'agentlite\[serve\]'"):
        serve(ServeOptions())
