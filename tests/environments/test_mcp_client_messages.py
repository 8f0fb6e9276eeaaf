"""What a client of MCP makes of a server's messages, whatever brings them."""

from itertools import count
from typing import Any

import pytest

from agentlite.environments import mcp_client
from agentlite.environments.inside import LostWorldError
from agentlite.environments.mcp_client import McpClient, _events, _lines, _messages, openai_tool


class Transport:
    """`sent`: messages without an answer; `asked`: those with one. Each is answered by the next of
    `answers`: messages, of which a result gets the number of its question.
    """

    def __init__(self, *answers: list[dict[str, Any]]):
        self.sent: list[Any] = []
        self.asked: list[Any] = []
        self.answers = [*answers]

    def send(self, message):
        self.sent.append(message)

    def ask(self, message):
        self.asked.append(message)
        for one in self.answers.pop(0):
            yield {"id": message["id"], **one} if "method" not in one else one

    def close(self):
        self.sent.append("closed")


def client(*answers) -> McpClient:
    one = McpClient.__new__(McpClient)
    one.numbers, one.transport = count(1), Transport(*answers)
    return one


def text(words: str, **more: Any) -> list[dict[str, Any]]:
    return [{"result": {"content": [{"type": "text", "text": words}], **more}}]


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (text("bought"), "bought"),
        (text("bought", isError=False), "bought"),
        *((text("bought", isError=odd), "bought") for odd in (None, 0, "false", [], {"a": 1})),
        (text("no apples", isError=True), "Error: no apples"),
        (text("Error: no apples", isError=True), "Error: no apples"),  # not said twice
        (text("bought", structuredContent={"left": 2}), "bought"),
        ([{"result": {"content": [], "structuredContent": {"left": 2}}}], '{"left": 2}'),
        ([{"id": 99, "result": {}}, *text("bought")], "bought"),  # the answer to another one
        ([{"error": {"code": -32602, "message": "no apples"}}], "Error: no apples"),
    ],
)
def test_a_result_is_text_and_says_once_that_a_call_failed(answer, result):
    one = client(answer)
    assert one.call("buy", {"item": "fig"}) == result
    (asked,) = one.transport.asked
    assert asked == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "buy", "arguments": {"item": "fig"}},
    }


def test_a_server_that_asks_is_answered_by_the_number_of_its_question():
    asks = [{"id": 71, "method": "ping"}, {"id": 72, "method": "sampling/createMessage"}]
    one = client([*asks, {"method": "notifications/progress"}, *text("bought")])
    assert one.call("buy", {}) == "bought"
    ping, other = one.transport.sent
    assert (ping["id"], ping["result"]) == (71, {})
    assert (other["id"], other["error"]["code"]) == (72, -32601) and "result" not in other


def test_only_a_call_may_be_refused():
    refused = [{"error": {"message": "not today"}}]
    with pytest.raises(LostWorldError, match="the server refused tools/list: not today"):
        client(refused).tools()
    with pytest.raises(LostWorldError, match="did not answer tools/list"):
        client([]).tools()


def test_all_pages_of_tools_are_asked_for():
    pages = [
        [{"result": {"tools": [{"name": f"t{n}"}], **({"nextCursor": f"c{n}"} if n < 2 else {})}}]
        for n in range(3)
    ]
    one = client(*pages)
    assert [tool["function"]["name"] for tool in one.tools()] == ["t0", "t1", "t2"]
    assert [asked["params"] for asked in one.transport.asked] == [
        {},
        {"cursor": "c0"},
        {"cursor": "c1"},
    ]
    assert [asked["id"] for asked in one.transport.asked] == [1, 2, 3]


def test_a_session_goes_on_in_the_servers_version_once_it_is_said_to_have_begun(monkeypatch):
    made = []

    class Http(Transport):
        def __init__(self, url):
            super().__init__([{"result": {"protocolVersion": "2024-11-05"}}])
            self.headers = {}
            self.sent_with = []
            made.append(self)

        def send(self, message):
            self.sent_with.append({**self.headers})
            super().send(message)

        def ask(self, message):
            self.sent_with.append({**self.headers})
            return super().ask(message)

    monkeypatch.setattr(mcp_client, "Http", Http)
    McpClient("http://localhost/mcp").close()
    (transport,) = made
    assert transport.asked[0]["method"] == "initialize"
    assert transport.asked[0]["params"]["protocolVersion"] == mcp_client.VERSION
    # every message behind the first names the version
    assert transport.sent_with == [{}, {"mcp-protocol-version": "2024-11-05"}]
    begun, closed = transport.sent
    assert begun["method"] == "notifications/initialized" and closed == "closed"


@pytest.mark.parametrize(
    ("tool", "function"),
    [
        ({"name": "a"}, {"name": "a", "description": ""}),
        ({"name": "a", "description": None}, {"name": "a", "description": ""}),
        (
            {"name": "a", "description": "A.", "inputSchema": {"type": "object"}},
            {"name": "a", "description": "A.", "parameters": {"type": "object"}},
        ),
        (
            {"name": "a", "input_schema": {"type": "object"}},
            {"name": "a", "description": "", "parameters": {"type": "object"}},
        ),
        (3, 3),
    ],
)
def test_a_tool_is_written_as_openai_does(tool, function):
    assert openai_tool(tool)["function"] == function


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_the_data_of_an_event_is_all_its_lines_however_they_are_cut(size):
    stream = (
        b': hello\r\nevent: message\r\ndata: {"a":\r\ndata:1}\r\n\r\n\n\ndata:  two\n\nid: 3\n\n'
    )
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [*_events(_lines(pieces))] == [b'{"a":\n1}', b" two"]


def test_an_answer_has_an_end_in_all_its_pieces(monkeypatch):
    monkeypatch.setattr(mcp_client, "LONGEST_ANSWER", 10)
    assert [*_lines([b"12345", b"6789\n"])] == [b"123456789", b""]
    with pytest.raises(LostWorldError, match="answered with more than"):
        list(_lines([b"12345", b"6789\n", b"x"]))


@pytest.mark.parametrize(
    ("written", "count"),
    [
        ('{"jsonrpc": "2.0", "id": 1}', 1),
        ('[{"jsonrpc": "2.0"}, {"jsonrpc": "2.0"}, 3]', 2),
        ('{"level": "info"}', 0),
        ("Listening ...", 0),
        ("[" * 99_999, 0),
        ("", 0),
    ],
)
def test_what_is_no_message_is_passed_over(written, count):
    assert len(_messages(written)) == count
