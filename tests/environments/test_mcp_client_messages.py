"""What a client of MCP makes of a server's messages, whatever brings them."""

import json
from functools import partial
from itertools import count
from typing import Any

import httpx
import pytest

from agentlite.environments import mcp_client
from agentlite.environments.inside import LostWorldError
from agentlite.environments.mcp_client import (
    Http,
    McpClient,
    _events,
    _lines,
)


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


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_the_data_of_an_event_is_all_its_lines_however_they_are_cut(size):
    stream = (
        b': hello\r\nevent: message\r\ndata: {"a":\r\ndata:1}\r\n\r\n\n\ndata:  two\n\nid: 3\n\n'
    )
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [*_events(_lines(pieces))] == [b'{"a":\n1}', b" two"]


ONE, TWO = {"jsonrpc": "2.0", "id": 1, "result": {}}, {"jsonrpc": "2.0", "method": "ping"}
JSON, STREAM = "application/json", "text/event-stream"
EVENTS = f"data: {json.dumps(TWO)}\n\nevent: message\ndata: {json.dumps(ONE)}\n\n"


@pytest.fixture
def over_http(monkeypatch):
    """A client whose server is a function: a request -> a response."""
    client = httpx.Client

    def made(answer) -> Http:
        transport = httpx.MockTransport(answer)
        monkeypatch.setattr(httpx, "Client", partial(client, transport=transport))
        return Http("http://localhost/mcp")

    return made


@pytest.mark.parametrize(
    ("status", "kind", "body", "messages", "problem"),
    [
        (200, JSON, json.dumps(ONE), [ONE], ""),
        (200, STREAM, EVENTS, [TWO, ONE], ""),
        (200, f"{STREAM};charset=utf-8", EVENTS, [TWO, ONE], ""),
        (202, "", "", [], ""),
        (400, JSON, json.dumps(ONE), [ONE], ""),  # an error of JSON-RPC
        (404, JSON, '{"detail": "not found"}', [], "the server answered 404"),
        (503, STREAM, EVENTS, [], "the server answered 503"),
        (200, "text/html", "<html>", [], ""),
    ],
)
def test_an_answer_over_http_is_json_or_events_or_its_problem(
    status, kind, body, messages, problem, over_http
):
    headers = {"content-type": kind} if kind else {}
    one = over_http(lambda request: httpx.Response(status, headers=headers, content=body.encode()))
    if not problem:
        assert [*one.ask(ONE)] == messages
        return one.send(ONE)
    for act in (one.send, lambda message: [*one.ask(message)]):
        with pytest.raises(LostWorldError) as lost:
            act(ONE)
        assert str(lost.value) == problem


@pytest.mark.parametrize("given", [("", ""), ("a", ""), ("a", "b"), ("", "b")])
def test_a_session_is_the_one_that_the_server_named_last_and_ends_with_the_client(given, over_http):
    asked: list[tuple[str, str | None]] = []

    def answer(request):
        asked.append((request.method, request.headers.get("mcp-session-id")))
        if request.method == "POST":
            assert json.loads(request.content) == ONE
            assert JSON in request.headers["accept"] and STREAM in request.headers["accept"]
        name = given[len(asked) - 1] if len(asked) <= len(given) else ""
        return httpx.Response(202, headers={"mcp-session-id": name} if name else {})

    one = over_http(answer)
    assert one.client.timeout == httpx.Timeout(None)  # that of its world holds
    for _ in range(3):
        one.send(ONE)
    one.close()
    first, second = given[0] or None, given[1] or given[0] or None
    posts = [("POST", None), ("POST", first), ("POST", second)]
    assert asked == posts + ([("DELETE", second)] if second else []) and one.client.is_closed
