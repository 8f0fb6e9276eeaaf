"""The tools and calls of a server, over stdio and HTTP: a fault is a result, or the world's end."""

import contextlib

import pytest
from support.mcp_servers import command, served

from agentlite.environments.mcp_world import ENV_KEEP, McpClient, _events
from agentlite.environments.world_process import LostWorldError

pytestmark = pytest.mark.long  # a process for each server


@contextlib.contextmanager
def session(kind: str, over: str):
    with contextlib.ExitStack() as stack:
        server = command(kind) if over == "stdio" else stack.enter_context(served(kind))
        client = McpClient(server)
        stack.callback(client.transport.close)
        yield client


@pytest.mark.parametrize("over", ["stdio", "http"])
def test_a_server_of_the_package_lists_its_tools_and_carries_out_calls(over):
    pytest.importorskip("mcp")
    with session("shop", over) as client:
        tools = {tool["name"]: tool for tool in client.tools()}
        assert [*tools] == ["buy", "process", "stock"]
        assert tools["buy"]["description"] == "Puts items into the cart."
        assert tools["buy"]["inputSchema"]["required"] == ["item"]
        assert client.call("buy", {"item": "apple", "count": 2}) == "2 in the cart"
        assert client.call("buy", {"item": "pear"}) == "3 in the cart"
        assert client.call("buy", {"item": "melon"}).startswith("Error")
        assert client.call("buy", {}).startswith("Error")
        assert client.call("sell", {}).startswith("Error: Unknown tool")
        assert client.call("buy", {"item": "fig"}) == "4 in the cart"


def test_a_server_sees_no_key_that_it_is_not_given(monkeypatch):
    for name in ("OPENAI_API_KEY", "SHOP_TOKEN", "HOME"):
        monkeypatch.setenv(name, "secret-of-mine")
    for keep in ([], ["SHOP_TOKEN"]):
        client = McpClient(command("environment"), keep)
        seen = client.call("buy", {}).split()
        client.transport.close()
        assert {"PATH", "HOME", *keep} <= {*seen} <= {*ENV_KEEP, *keep, "LC_CTYPE"}


def test_two_tools_of_one_name_are_said():
    with (
        session("two of a name", "stdio") as client,
        pytest.raises(LostWorldError, match="2 tools of the name buy"),
    ):
        client.tools()


RESULTS = {
    "well": "bought",
    "noise": "bought",
    "asks": "{} -32601",
    "refuses": "Error: Unknown item",
    "is error": "Error: out of apples",
    "structured": '{"left": 2}',
    "images": "two parts\n[image: image/png]\n[sound: audio/wav]\n[resource: file:///a.txt]\n"
    'of b\n[resource: file:///c.bin]\n{"type": "hologram"}',
}


@pytest.mark.parametrize("fault", RESULTS)
def test_what_a_server_answers_is_text(fault):
    with session(fault, "stdio") as client:
        assert [client.call("buy", {"item": "apple"}) for _ in range(2)] == [RESULTS[fault]] * 2


@pytest.mark.parametrize("fault", ["well", "events", "400"])
def test_what_a_server_answers_over_http_is_the_same_text(fault):
    expected = RESULTS["refuses" if fault == "400" else "well"]
    with session(fault, "http") as client:
        assert [client.call("buy", {"item": "apple"}) for _ in range(2)] == [expected] * 2


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("no session", "the server refused initialize: closed today"),
        ("dies", "the server ended with exit code 3: out of apples"),
        ("no result", "the server answered tools/call without a result"),
    ],
)
def test_a_server_that_breaks_says_why(fault, reason):
    with pytest.raises(LostWorldError, match=reason), session(fault, "stdio") as client:
        client.call("buy", {"item": "apple"})


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("no session", "the server refused initialize: closed today"),
        ("drops", "the server cannot be reached: "),
        ("no result", "the server answered tools/call without a result"),
    ],
)
def test_a_server_that_breaks_over_http_says_why(fault, reason):
    with pytest.raises(LostWorldError, match=reason), session(fault, "http") as client:
        client.call("buy", {"item": "apple"})


@pytest.mark.parametrize("size", [1, 7, 100])
def test_the_data_of_an_event_is_all_its_lines_however_they_are_cut(size):
    stream = (
        b': hello\r\nevent: message\r\ndata: {"a":\r\ndata:1}\r\n\r\n\n\ndata:  two\n\nid: 3\n\n'
    )
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [*_events(pieces)] == [b'{"a":\n1}', b" two"]
