"""A world that is an MCP server: its tools, a session for each rollout, and the task's user.

A client of servers over stdio or streamable HTTP. It runs in a world's process. Nothing here has a
time limit of its own: that of the world holds.
"""

import contextlib
import json
import os
import shlex
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from agentlite.core.records import Call, call_key, to_json
from agentlite.core.tool_results import no_tool_result, says_error
from agentlite.core.user_code import one_line
from agentlite.environments.world_process import LostWorldError

VERSION = "2025-06-18"  # of the protocol; the server names the one that both use
ENDING = 2.0  # seconds that a server may take to end once its input is closed
LAST_WORDS = 1 << 16  # bytes at the end of a server's stderr in which its last line is looked for
# all that a server over stdio sees of the environment: keys are none of its business
PASSED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "LANG", "LC_ALL"),
    *("PYTHONPATH", "VIRTUAL_ENV"),
)
UNSEEN = {"image": "image", "audio": "sound"}  # content that a text cannot hold
JsonRpc = dict[str, Any]


class McpWorld:
    """The results of tools come from the server; the user's next messages, from the task."""

    def reset(
        self,
        server: str,
        user_turns: Sequence[str],
        reset_calls: Sequence[Mapping[str, Any]],
        gold: Sequence[Mapping[str, Any]] | None,
        env_keep: Sequence[str] = (),
    ) -> None:
        """`server`: a command or a URL. `user_turns`: those behind the first. `reset_calls`: made
        before the task begins; their tools are not on offer. `gold`: the right calls, if known.
        `env_keep`: further variables of the environment for a command.
        """
        self.user, self.gold = iter(user_turns), gold
        self.made: list[Mapping[str, Any]] = []
        self.client = McpClient(server, env_keep)
        self.hidden = {call["name"] for call in reset_calls}
        for call in reset_calls:
            result = self.client.call(call["name"], call["arguments"])
            if says_error(result):
                raise LostWorldError(f"{call['name']} returned {result}")

    def tools(self) -> list[dict[str, Any]]:
        offered = [tool for tool in self.client.tools() if tool.get("name") not in self.hidden]
        self.names = [str(tool.get("name")) for tool in offered]
        return offered

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        self.made.append({"name": name, "arguments": arguments})
        if name not in self.names:
            return no_tool_result(name, self.names)
        return self.client.call(name, arguments)

    def next_user(self, words: str) -> str | None:
        return next(self.user, None)

    def get_scores(self) -> dict[str, float]:
        return {} if self.gold is None else {"gold_calls": gold_share(self.gold, self.made)}

    def close(self) -> None:
        self.client.transport.close()


def gold_share(gold: Iterable[Mapping[str, Any]], made: Iterable[Mapping[str, Any]]) -> float:
    """The share of the right calls that were made, in any order; none is made twice by one call.
    Where no call is right: whether none was made.
    """
    due, done = (Counter(call_key(Call(**call)) for call in calls) for calls in (gold, made))
    return (due & done).total() / due.total() if due else float(not done)


class McpClient:
    """A session with a server. `server`: a command, which sees `env_keep`, or a URL."""

    def __init__(self, server: str, env_keep: Sequence[str] = ()):
        # The handshake: we name a version, the server names the one that both use, and it takes
        # requests once it is told that we are ready. Over HTTP each of them carries the version.
        self.numbers = count(1)  # the ids of our requests
        self.transport = Http(server) if is_url(server) else Stdio(server, env_keep)
        about = {"name": "agentlite", "version": "0"}
        ours = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": about}
        theirs = self._ask("initialize", ours)
        if isinstance(self.transport, Http):
            self.transport.headers["mcp-protocol-version"] = str(theirs.get("protocolVersion"))
        self.transport.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def tools(self) -> list[dict[str, Any]]:
        """Those of all pages. Raises LostWorldError for two of one name."""
        listed: list[dict[str, Any]] = []
        place: dict[str, Any] | None = {}
        while place is not None:
            page = self._ask("tools/list", place)
            listed += page.get("tools") or ()
            place = {"cursor": page["nextCursor"]} if page.get("nextCursor") else None
        for name, number in Counter(str(tool.get("name")) for tool in listed).most_common(1):
            if number > 1:
                raise LostWorldError(f"the server has {number} tools of the name {name}")
        return listed

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """The text of the result; it begins with `Error` if the call failed."""
        result = self._ask("tools/call", {"name": name, "arguments": arguments})
        text = result_text(result)
        failed = result.get("isError") is True and not text.startswith("Error")
        return f"Error: {text}" if failed else text

    def _ask(self, method: str, parameters: Mapping[str, Any]) -> JsonRpc:
        """The result. Of a call that the server refuses, that is the reason. Raises LostWorldError
        where there is none.
        """
        number = next(self.numbers)
        question = {"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}
        for message in self.transport.ask(question):
            match message:
                case {"method": "ping", "id": theirs}:
                    self.transport.send({"jsonrpc": "2.0", "id": theirs, "result": {}})
                case {"method": _, "id": theirs}:  # it asks for what only other clients have
                    # -32601: no such method
                    refusal = {"code": -32601, "message": "agentlite only uses tools"}
                    self.transport.send({"jsonrpc": "2.0", "id": theirs, "error": refusal})
                case {"method": _}:
                    pass  # a notification: it waits for no answer
                case {"id": ours, "result": dict(result)} if ours == number:
                    return result
                case {"id": ours, "error": {"message": why}} if ours == number and why:
                    if method == "tools/call":
                        return {"content": [{"type": "text", "text": f"Error: {why}"}]}
                    raise LostWorldError(f"the server refused {method}: {one_line(str(why))}")
                case {"id": ours} if ours == number:
                    raise LostWorldError(f"the server answered {method} without a result")
        raise LostWorldError(f"the server did not answer {method}")


def is_url(server: str) -> bool:
    return server.startswith(("http://", "https://"))


def result_text(result: JsonRpc) -> str:
    """What a model can read of a result: its texts; of anything else, what it is."""
    blocks = result["content"] if isinstance(result.get("content"), list) else []
    if not blocks and "structuredContent" in result:
        return to_json(result["structuredContent"])
    return "\n".join(map(_block_text, blocks))


def _block_text(block: Any) -> str:
    match block:
        case {"type": "text"}:
            return str(block.get("text", ""))
        case {"type": str(kind)} if kind in UNSEEN:
            return f"[{UNSEEN[kind]}: {block.get('mimeType')}]"
        case {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "resource", "resource": dict(linked)} | ({"type": "resource_link"} as linked):
            return f"[resource: {linked.get('uri')}]"
    return to_json(block)


def _messages(text: str | bytes) -> list[JsonRpc]:
    """That of a text; none where a server prints what it does."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [value] if isinstance(value, dict) and value.get("jsonrpc") == "2.0" else []


class Stdio:
    """A server that is a process: a line of JSON for each message."""

    def __init__(self, command: str, env_keep: Sequence[str]):
        # A server logs to stderr, which is not shown: there is one for each rollout. A file takes
        # any number of lines; a pipe that nobody reads would fill up, and the server would wait.
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 (open for as long as the server)
        try:
            self.process: Any = subprocess.Popen(
                shlex.split(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                env={k: value for k, value in os.environ.items() if k in {*PASSED, *env_keep}},
            )
        except (OSError, ValueError) as error:
            raise LostWorldError(f"the server cannot be started: {error}") from error

    def send(self, message: JsonRpc) -> None:
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise self._lost_error() from error

    def ask(self, message: JsonRpc) -> Iterator[JsonRpc]:
        self.send(message)
        while line := self.process.stdout.readline():
            yield from _messages(line)
        raise self._lost_error()

    def close(self) -> None:
        """Most servers end with their input. What one has started itself ends with the world."""
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(ENDING)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def _lost_error(self) -> LostWorldError:
        try:
            ended = f"ended with exit code {self.process.wait(ENDING)}"
        except subprocess.TimeoutExpired:
            ended = "closed its output"
        self.log.seek(max(0, self.log.seek(0, 2) - LAST_WORDS))
        last = one_line(self.log.read().decode("utf-8", "replace").rstrip().rpartition("\n")[2])
        return LostWorldError(f"the server {ended}{f': {last}' if last else ''}")


class Http:
    """A server at a URL: a POST for each message, answered with JSON or with a stream of events."""

    def __init__(self, url: str):
        import httpx

        self.url, self.errors = url, (httpx.HTTPError, httpx.InvalidURL)
        self.client = httpx.Client(timeout=None)
        self.headers = {"accept": "application/json, text/event-stream"}

    def send(self, message: JsonRpc) -> None:
        for _ in self.ask(message):
            pass  # a notification is answered with 202 and no content

    def ask(self, message: JsonRpc) -> Iterator[JsonRpc]:
        try:
            with self.client.stream(
                "POST", self.url, json=message, headers=self.headers
            ) as response:
                if session := response.headers.get("mcp-session-id"):
                    self.headers["mcp-session-id"] = session
                kind = response.headers.get("content-type", "").partition(";")[0].strip()
                if response.is_success and kind == "text/event-stream":
                    for event in _events(response.iter_bytes()):
                        yield from _messages(event)
                    return
                content = response.read()
        except self.errors as error:
            why = one_line(str(error)) or type(error).__name__
            raise LostWorldError(f"the server cannot be reached: {why}") from error
        # an error of JSON-RPC may come with a status of HTTP's
        messages = _messages(content)
        if not messages and not response.is_success:
            raise LostWorldError(f"the server answered {response.status_code}")
        yield from messages

    def close(self) -> None:
        with contextlib.suppress(*self.errors):
            if "mcp-session-id" in self.headers:
                self.client.delete(self.url, headers=self.headers)
        self.client.close()


def _events(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The data of each event, as `{"id": 1}` of `data: {"id": 1}`; a blank line ends one. Lines are
    cut here: JSON may hold line ends of Unicode, by which httpx would cut.
    """
    waiting, data = b"", list[bytes]()
    for piece in pieces:
        *lines, waiting = (waiting + piece).split(b"\n")
        for line in lines:
            field, _, value = line.rstrip(b"\r").partition(b":")
            if field == b"data":
                data.append(value.removeprefix(b" "))
            elif not field and data:
                yield b"\n".join(data)
                data = []
