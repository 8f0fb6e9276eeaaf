"""board: the token that its address holds, and the folders that it looks at."""

import json
import signal

import pytest

from agentlite.cli.commands import board as command
from agentlite.cli.commands.board import LEAST_TOKEN, read_token
from agentlite.cli.main import group
from agentlite.core.errors import UserError

GOOD = "aB3-_xyz" * 2


@pytest.mark.parametrize(
    "value", [None, "", GOOD[1:], f" {GOOD}", f"{GOOD}\n", f"{GOOD}é", f"{GOOD}/", "-" * 20]
)
def test_a_token_that_is_guessed_or_that_no_address_holds_is_refused(monkeypatch, value):
    monkeypatch.delenv("BOARD_TOKEN", raising=False)
    if value is not None:
        monkeypatch.setenv("BOARD_TOKEN", value)
    with pytest.raises(UserError, match="BOARD_TOKEN does not hold a token") as refused:
        read_token("BOARD_TOKEN")
    assert refused.value.location == "--token-env" and "export BOARD_TOKEN=" in refused.value.fix
    assert f"at least {LEAST_TOKEN} " in refused.value.problem


def test_a_token_is_taken_as_it_is(monkeypatch):
    monkeypatch.setenv("BOARD_TOKEN", GOOD)
    assert read_token("BOARD_TOKEN") == GOOD and len(GOOD) == LEAST_TOKEN == 16


def test_a_folder_that_is_named_has_to_be_there(tmp_path):
    (tmp_path / "file").touch()
    for name in ("none", "file"):
        words = ["board", str(tmp_path), str(tmp_path / name), "--port", "0", "--no-browser"]
        with pytest.raises(UserError, match="no such folder") as refused:
            group.main(words, "agentlite", standalone_mode=False)
        assert refused.value.location == str(tmp_path / name)


@pytest.fixture
def opened(monkeypatch):
    """What the server is given, and the addresses that a browser was to open."""
    given, addresses = [], []

    class Server:
        url = "http://127.0.0.1:1/#token"

        def __init__(self, paths, port, **rest):
            given.append(([*map(str, paths)], port, rest["token"], rest["read_only"]))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def serve_forever(self):
            number = signal.default_int_handler
            assert {signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)} == {number}
            raise KeyboardInterrupt

    monkeypatch.setattr("agentlite.deploy.board.board_server.BoardServer", Server)
    monkeypatch.setattr("agentlite.deploy.board.workspaces.defaults", lambda: None)
    monkeypatch.setattr("agentlite.cli.run_listing.load_key_figures", lambda: None)
    monkeypatch.setattr(command, "open_in_browser", addresses.append)
    monkeypatch.delenv("AGENTLITE_RUN", raising=False)
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    for number, _ in before:
        signal.signal(number, signal.SIG_IGN)  # as where a script starts it in the background
    yield given, addresses
    for number, handler in before:
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("words", "variable", "folder"),
    [([], None, "runs"), ([], "", "runs"), ([], "r", "r"), (["."], "r", ".")],
)
@pytest.mark.parametrize("option", ["", "--no-browser", "--json", "--read-only"])
def test_a_board_looks_at_the_folders_that_are_named_or_at_the_usual_one(
    opened, monkeypatch, capsys, words, variable, folder, option
):
    if variable is not None:
        monkeypatch.setenv("AGENTLITE_RUN", variable)
    monkeypatch.setenv("BOARD_TOKEN", GOOD)
    more = ["--port", "0", "--token-env", "BOARD_TOKEN", *filter(None, [option])]
    group.main(["board", *words, *more], "agentlite", standalone_mode=False)
    given, addresses = opened
    assert given == [([folder], 0, GOOD, option == "--read-only")]
    assert bool(addresses) is (option not in ("--no-browser", "--json"))
    out, err = capsys.readouterr()
    address = "http://127.0.0.1:1/#token"
    if option == "--json":
        assert json.loads(out) == {"url": address, "folders": [folder]}
    else:
        assert address in out
    assert "board: stopped" in err


def test_a_token_of_its_own_is_another_each_time(opened):
    for _ in range(2):
        group.main(["board", "--no-browser"], "agentlite", standalone_mode=False)
    (one, other) = [token for _, _, token, _ in opened[0]]
    assert one != other and min(len(one), len(other)) > LEAST_TOKEN
    assert opened[0][0][1] == 8001
