"""A program that is an MCP server: a shop by the package `mcp`, or one with a fault; no test.

python mcp_servers.py shop [PORT]     # over stdio, or HTTP at a port
python mcp_servers.py FAULT [PORT]    # written by hand: what it does with a call is what FAULT says
"""

import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SCHEMA = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
BUY = {"name": "buy", "description": "Buys an item.", "inputSchema": SCHEMA}


def command(kind: str) -> str:
    """Of a server over stdio."""
    return shlex.join([sys.executable, __file__, kind])


@contextlib.contextmanager
def served(kind: str) -> Iterator[str]:
    """The URL of a server."""
    from support.processes import free_port, listens, waits_until

    port = free_port()
    program = [sys.executable, __file__, kind, str(port)]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout
    try:
        if kind != "shop":  # ours: its own word, since another program may have used that port
            assert process.stdout.readline()
        assert waits_until(partial(listens, port), 60)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def serve_shop(port: str = "") -> None:
    from mcp.server import MCPServer

    server = MCPServer("shop")
    cart: list[str] = []

    @server.tool()
    def buy(item: str, count: int = 1) -> str:
        """Puts items into the cart."""
        if item == "melon":
            raise ValueError("no melon")
        cart.extend([item] * count)
        return f"{len(cart)} in the cart"

    @server.tool()
    def process() -> int:
        """The id of this process."""
        return os.getpid()

    @server.tool()
    def stock(items: dict[str, int]) -> str:
        """Fills the shop: for tests alone."""
        if not items:
            raise ValueError("nothing to fill it with")
        return "filled"

    if port:
        server.run("streamable-http", port=int(port))
    else:
        server.run()


class Connection:
    """`out` sends a message to the client; `read` waits for one of its own, over stdio."""

    def __init__(self, out: Callable[[Any], None], read: Callable[[], Any] = lambda: None):
        self.out, self.read = out, read


def result(request: Any, **fields: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request["id"], "result": fields}


def error(request: Any, code: int, message: str) -> dict[str, Any]:
    wrong = {"code": code, "message": message}
    return {"jsonrpc": "2.0", "id": request["id"], "error": wrong}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


IMAGE = {"type": "image", "mimeType": "image/png", "data": "AAAA"}
BLOCKS = [
    text("two parts"),
    IMAGE,
    {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"},
    {"type": "resource_link", "uri": "file:///a.txt", "name": "a"},
    {"type": "resource", "resource": {"uri": "file:///b.txt", "text": "of b"}},
    {"type": "resource", "resource": {"uri": "file:///c.bin", "blob": "AAAA"}},
    {"type": "hologram"},
]


def answer_call(fault: str, request: Any, connection: Connection) -> None:
    """What a server with a fault does when it is called."""
    out = connection.out
    if fault == "dies":
        print("a log line\nout of apples\n\n", file=sys.stderr, flush=True)
        os._exit(3)
    elif fault == "no result":
        out({"jsonrpc": "2.0", "id": request["id"]})
    elif fault == "refuses":
        out(error(request, -32602, "Unknown item"))
    elif fault == "is error":
        out(result(request, content=[text("out of apples")], isError=True))
    elif fault == "images":
        out(result(request, content=BLOCKS))
    elif fault == "environment":
        out(result(request, content=[text(" ".join(sorted(os.environ)))]))
    elif fault == "structured":
        out(result(request, content=[], structuredContent={"left": 2}))
    elif fault == "asks":
        out({"jsonrpc": "2.0", "id": "a", "method": "ping"})
        pong = connection.read()
        out({"jsonrpc": "2.0", "id": "b", "method": "sampling/createMessage", "params": {}})
        refused = connection.read()
        words = f"{pong['result']} {refused['error']['code']}"
        out(result(request, content=[text(words)]))
    elif fault == "noise":
        for line in (b"Starting...", b"{}", b"[1, 2]", b"\xff\xfe", b"null", b""):
            os.write(1, line + b"\n")
        out({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "busy"}})
        out({"jsonrpc": "2.0", "id": 10**9, "result": {}})  # an answer to nobody
        out(result(request, content=[text("bought")]))
    else:
        out(result(request, content=[text("bought")]))


def answer(fault: str, request: Any, connection: Connection) -> None:
    method, out = request.get("method"), connection.out
    if "id" not in request:
        return
    if method == "initialize":
        if fault == "no session":
            out(error(request, -32000, "closed today"))
        else:
            about = {"name": "faulty", "version": "1"}
            tools = {"tools": {}}
            version = request["params"]["protocolVersion"]
            out(result(request, protocolVersion=version, capabilities=tools, serverInfo=about))
    elif method == "tools/list":
        out(result(request, tools=[BUY] * (2 if fault == "two of a name" else 1)))
    else:
        answer_call(fault, request, connection)


def serve_stdio(fault: str) -> None:
    def out(message: Any) -> None:
        os.write(1, json.dumps(message).encode() + b"\n")

    def read() -> Any:
        return json.loads(sys.stdin.readline())

    for line in sys.stdin:
        answer(fault, json.loads(line), Connection(out, read))
    if fault == "stays":  # its input is closed
        time.sleep(600)


def serve_http(fault: str, port: str) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            called = request.get("method") == "tools/call"
            if called and fault == "drops":
                self.connection.close()
            elif called and fault == "events":
                noise = b"event: message\nid: 1\ndata: noise\n\n: a comment\n\n"
                answered = json.dumps(result(request, content=[text("bought")]), indent=1)
                lines = "".join(f"data: {line}\r\n" for line in answered.splitlines()).encode()
                self.reply(200, "text/event-stream", noise + lines + b"\r\n")
            elif called and fault == "400":
                refusal = json.dumps(error(request, -32602, "Unknown item")).encode()
                self.reply(400, "application/json", refusal)
            elif "id" not in request:
                self.reply(202, "", b"")
            else:
                answer(fault, request, Connection(self.send_json))

        def send_json(self, message: Any) -> None:
            self.reply(200, "application/json", json.dumps(message).encode())

        def reply(self, status: int, kind: str, content: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", int(port)), Handler)
    print("listens", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    kind, *port = sys.argv[1:]
    if kind == "shop":
        serve_shop(*port)
    elif port:
        serve_http(kind, *port)
    else:
        serve_stdio(kind)
