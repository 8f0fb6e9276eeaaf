"""A program that is an OpenEnv server written by hand: a shop, a game or a fault; no test.

python openenv_servers.py shop|guess|FAULT

Its messages are those of the package. With OPENENV_PYTHON, a Python that has `openenv`, the package
serves the shop and the game (support/openenv_package.py).
"""

import base64
import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

PACKAGE = os.environ.get("OPENENV_PYTHON", "")
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
METADATA = {
    "additionalProperties": True,
    "description": "Additional metadata for the action",
    "title": "Metadata",
    "type": "object",
}
CALL = {
    "additionalProperties": False,
    "description": "Call a specific tool via MCP.\n\nThis action triggers MCP's tools/call "
    "operation with the\nspecified tool name and arguments.",
    "properties": {
        "metadata": METADATA,
        "type": {
            "const": "call_tool",
            "default": "call_tool",
            "description": "Action type discriminator",
            "title": "Type",
            "type": "string",
        },
        "tool_name": {
            "description": "Name of the tool to call",
            "title": "Tool Name",
            "type": "string",
        },
        "arguments": {
            "additionalProperties": True,
            "description": "Arguments to pass to the tool",
            "title": "Arguments",
            "type": "object",
        },
    },
    "required": ["tool_name"],
    "title": "CallToolAction",
    "type": "object",
}
GUESS = {
    "additionalProperties": False,
    "description": "Guesses the number.",
    "properties": {
        "metadata": METADATA,
        "number": {"description": "Between 1 and 9", "title": "Number", "type": "integer"},
    },
    "required": ["number"],
    "title": "Guess",
    "type": "object",
}
BUY = {
    "additionalProperties": False,
    "properties": {"item": {"type": "string"}, "count": {"default": 1, "type": "integer"}},
    "required": ["item"],
    "type": "object",
}
TOTAL = {"additionalProperties": False, "properties": {}, "type": "object"}
TOOLS = [("buy", "Puts items into the cart.", BUY), ("total", "Counts the cart.", TOTAL)]


@contextlib.contextmanager
def served(kind: str) -> Iterator[str]:
    """The URL of a server. Ours finds a port by itself: one that is free before it starts may be
    another program's when it has started.
    """
    from support.processes import free_port, listens, waits_until

    program = [sys.executable, __file__, kind]
    is_package = bool(PACKAGE) and kind in ("shop", "guess")
    if is_package:
        port = free_port()
        script = str(Path(__file__).with_name("openenv_package.py"))
        program = [PACKAGE, script, kind, str(port)]
    stdout = subprocess.DEVNULL if is_package else subprocess.PIPE
    with subprocess.Popen(program, stdout=stdout, stderr=subprocess.DEVNULL) as process:
        try:
            if process.stdout:
                port = int(process.stdout.readline())
            else:
                assert waits_until(partial(listens, port), 300)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def seen(observation: Any, reward: float | None = None, done: bool = False) -> dict[str, Any]:
    observation = {"metadata": {}, **observation}
    return {
        "type": "observation",
        "data": {"observation": observation, "reward": reward, "done": done},
    }


def error(message: str, code: str = "EXECUTION_ERROR", **fields: Any) -> dict[str, Any]:
    return {"type": "error", "data": {"message": message, "code": code, **fields}}


def rpc(**answer: Any) -> dict[str, Any]:
    return {"type": "mcp", "data": {"jsonrpc": "2.0", "id": 1, **answer}}


class Shop:
    """Tools; the reward is 1 once the cart is what the reset said."""

    schema, sessions = CALL, 8

    def __init__(self) -> None:
        self.cart: list[str] = []
        self.wanted: list[str] = []

    def mcp(self, data: Any) -> dict[str, Any]:
        tools = [{"name": n, "description": d, "inputSchema": s} for n, d, s in TOOLS]
        return rpc(result={"tools": tools})

    def reset(self, data: Any) -> dict[str, Any]:
        self.cart, self.wanted = [], list(data.get("wanted", ()))
        return seen({"metadata": {"status": "ready"}}, 0.0)

    def step(self, data: Any) -> dict[str, Any]:
        if "tool_name" not in data:
            missing = {"loc": ["tool_name"], "msg": "Field required"}
            return error("Invalid message", "VALIDATION_ERROR", errors=[missing])
        name, arguments = data["tool_name"], data.get("arguments", {})
        failed, result = "", None
        if name not in [one for one, *_ in TOOLS]:
            failed = f"Unknown tool: '{name}'"
        elif name == "total":
            whole = {"items": len(self.cart)}
            result = self.result(json.dumps(whole, separators=(",", ":")), whole, whole)
        elif "item" not in arguments:
            failed = "1 validation error for call[buy]\nitem\n  Missing required argument"
        elif arguments["item"] == "melon":
            failed = "Error calling tool 'buy': no melon"
        else:
            self.cart += [arguments["item"]] * arguments.get("count", 1)
            text = f"{len(self.cart)} in the cart"
            result = self.result(text, {"result": text}, text)
        problem = {"error_type": "execution_error", "message": failed} if failed else None
        done = bool(self.wanted) and self.cart == self.wanted
        return seen({"tool_name": name, "result": result, "error": problem}, float(done), done)

    def result(self, text: str, structured: Any, data: Any) -> dict[str, Any]:
        block = {"type": "text", "text": text, "annotations": None, "meta": None}
        return {
            "content": [block],
            "structured_content": structured,
            "meta": None,
            "data": data,
            "is_error": False,
        }


class Guessing:
    """One action; a wrong guess costs a quarter, and the third one ends the game."""

    schema, sessions = GUESS, 1
    number = left = 0

    def mcp(self, data: Any) -> dict[str, Any]:
        return rpc(error={"code": -32603, "message": "Environment does not support MCP"})

    def reset(self, data: Any) -> dict[str, Any]:
        if "number" not in data:
            return error("which number?")
        self.number, self.left = data["number"], 3
        return self.hint("Guess a number between 1 and 9.")

    def step(self, data: Any) -> dict[str, Any]:
        if not isinstance(data.get("number"), int):
            missing = {"loc": ["number"], "msg": "Field required"}
            return error("Invalid message", "VALIDATION_ERROR", errors=[missing])
        self.left -= 1
        number = data["number"]
        if number == self.number:
            return self.hint("right", reward=1.0, done=True)
        if number > 9:
            return error("not below 10")
        said = "too high" if number > self.number else "too low"
        return self.hint(said, self.left, -0.25, self.left == 0)

    def hint(
        self, said: str, left: int | None = None, reward: float | None = None, done: bool = False
    ) -> dict[str, Any]:
        return seen({"said": said, "left": left, "legal": []}, reward, done)


class Faulty(Shop):
    """A shop that does what its fault says."""

    def __init__(self, fault: str):
        super().__init__()
        self.fault = fault

    def mcp(self, data: Any) -> dict[str, Any]:
        if self.fault == "no tools":
            return rpc(result={"tools": []})
        if self.fault == "steps alone":  # as an environment with an own action type for calls
            return rpc(error={"code": -32603, "message": "Environment does not support MCP"})
        return super().mcp(data)

    def reset(self, data: Any) -> dict[str, Any]:
        if self.fault == "does not reset":
            return error("out of apples")
        if self.fault == "some":  # have the fault of their task
            self.fault = data.get("fault", "")
        return super().reset(data)

    def step(self, data: Any) -> Any:
        if data.get("type") == "list_tools":
            tools = [{"name": n, "description": d, "input_schema": s} for n, d, s in TOOLS]
            return seen({"tools": tools}, 0.0)
        if self.fault == "hangs":
            time.sleep(600)
        if self.fault == "session error":
            return error("out of apples", "SESSION_ERROR")
        if self.fault == "odd":
            return {"type": "observation", "data": [1]}
        if self.fault == "rich":
            return seen({"tool_name": "buy", "tool_result": {"left": 2}, "error": "no melon"})
        if self.fault == "much":
            return seen({"text": "x" * 1_000_000})
        return super().step(data)


KINDS = {"shop": Shop, "guess": Guessing}


class Handler(BaseHTTPRequestHandler):
    kind = ""
    open, lock = 0, Lock()  # sessions of all threads

    def do_GET(self) -> None:
        if self.path == "/schema" and self.kind != "no schema":
            content = json.dumps({"action": self.session().schema}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        elif self.path != "/ws" or "websocket" not in self.headers.get("upgrade", ""):
            self.send_error(403)
        else:
            key = self.headers["sec-websocket-key"].encode()
            if self.kind == "no handshake":
                key = b"another"
            self.send_response_only(101)
            self.send_header("upgrade", "websocket")
            self.send_header("connection", "Upgrade")
            accepted = base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()
            self.send_header("sec-websocket-accept", accepted)
            self.end_headers()
            with contextlib.suppress(OSError, EOFError):
                self.talk()
            self.close_connection = True

    def session(self) -> Any:
        return KINDS[self.kind]() if self.kind in KINDS else Faulty(self.kind)

    def talk(self) -> None:
        session = self.session()
        with self.lock:
            is_full = Handler.open >= session.sessions
            Handler.open += not is_full
        if is_full:
            text = f"Server at capacity: {session.sessions}/{session.sessions} sessions active"
            self.out(error(text, "CAPACITY_REACHED"))
            self.frame(8, b"\x03\xe8")
            return
        try:
            while (message := self.message())["type"] != "close":
                self.answer(session, message)
        finally:
            time.sleep(0.05)  # an environment takes its time to end
            with self.lock:
                Handler.open -= 1
        self.frame(8, b"\x03\xe8")

    def answer(self, session: Any, message: Any) -> None:
        fault, kind = getattr(session, "fault", ""), message["type"]
        if kind == "step" and fault in ("dies", "closes", "endless", "not json", "pieces"):
            self.misbehave(fault, session, message)
        elif kind not in ("mcp", "reset", "step"):
            self.out(error(f"Unknown message type: {kind}", "UNKNOWN_TYPE"))
        else:
            self.out(getattr(session, kind)(message["data"]))

    def misbehave(self, fault: str, session: Any, message: Any) -> None:
        if fault == "dies":
            self.connection.shutdown(socket.SHUT_RDWR)
            raise EOFError
        if fault == "closes":
            self.frame(8, b"\x03\xf3out of apples")
        elif fault == "endless":
            self.wfile.write(bytes([0x81, 127]) + (1 << 40).to_bytes(8))
        elif fault == "not json":
            self.frame(1, b"<html>")
        else:
            text = json.dumps(session.step(message["data"])).encode()
            self.frame(9, b"are you there?")
            assert self.read()[0] & 0x0F == 10
            self.frame(1, text[:10], last=False)
            self.frame(10, b"")
            self.frame(0, text[10:])

    def message(self) -> Any:
        kind, payload = self.read()
        if kind & 0x0F == 8:
            raise EOFError
        return json.loads(payload)

    def read(self) -> tuple[int, bytes]:
        head = self.rfile.read(2)
        if len(head) < 2:
            raise EOFError
        assert head[1] & 0x80, "a client masks its frames"
        length = head[1] & 0x7F
        if length > 125:
            length = int.from_bytes(self.rfile.read(2 if length == 126 else 8))
        mask, payload = self.rfile.read(4), self.rfile.read(length)
        return head[0], bytes(byte ^ mask[n % 4] for n, byte in enumerate(payload))

    def out(self, message: Any) -> None:
        self.frame(1, json.dumps(message).encode())

    def frame(self, kind: int, payload: bytes, last: bool = True) -> None:
        size = len(payload)
        long = size >= 1 << 16
        length = bytes([size]) if size < 126 else bytes([127 if long else 126])
        if size >= 126:
            length += size.to_bytes(8 if long else 2)
        self.wfile.write(bytes([(0x80 if last else 0) | kind]) + length + payload)

    def log_message(self, *_: Any) -> None:
        pass


if __name__ == "__main__":
    Handler.kind = sys.argv[1]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
