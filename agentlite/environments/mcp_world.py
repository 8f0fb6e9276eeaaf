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

PROTOCOL_VERSION = "2025-06-18"  # the server names the one that both use
END_SECONDS = 2.0  # seconds that a server may take to end once its input is closed
LOG_TAIL = 1 << 16  # bytes at the end of a server's stderr in which its last line is looked for
# all that a server over stdio sees of the environment: keys are none of its business
ENV_KEEP = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "LANG", "LC_ALL"),
    *("PYTHONPATH", "VIRTUAL_ENV"),
)
MEDIA = {"image": "image", "audio": "sound"}  # content that a text cannot hold
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
        self.user_turns, self.gold = iter(user_turns), gold
        self.calls: list[Mapping[str, Any]] = []
        self.client = McpClient(server, env_keep)
        self.hidden_names = {call["name"] for call in reset_calls}
        for call in reset_calls:
            result = self.client.call(call["name"], call["arguments"])
            if says_error(result):
                raise LostWorldError(f"{call['name']} returned {result}")

    def tools(self) -> list[dict[str, Any]]:
        tools = [tool for tool in self.client.tools() if tool.get("name") not in self.hidden_names]
        self.tool_names = [str(tool.get("name")) for tool in tools]
        return tools

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        self.calls.append({"name": name, "arguments": arguments})
        if name not in self.tool_names:
            return no_tool_result(name, self.tool_names)
        return self.client.call(name, arguments)

    def next_user(self, answer: str) -> str | None:
        return next(self.user_turns, None)

    def get_scores(self) -> dict[str, float]:
        return {} if self.gold is None else {"gold_calls": gold_share(self.gold, self.calls)}

    def close(self) -> None:
        self.client.transport.close()


def gold_share(gold: Iterable[Mapping[str, Any]], calls: Iterable[Mapping[str, Any]]) -> float:
    """The share of the right calls that were made, in any order; none is made twice by one call.
    Where no call is right: whether none was made.
    """
    expected, made = (Counter(call_key(Call(**c)) for c in group) for group in (gold, calls))
    return (expected & made).total() / expected.total() if expected else float(not made)


class McpClient:
    """A session with a server. `server`: a command, which sees `env_keep`, or a URL."""

    def __init__(self, server: str, env_keep: Sequence[str] = ()):
        # The handshake: we name a version, the server names the one that both use, and it takes
        # requests once it is told that we are ready. Over HTTP each of them carries the version.
        self.ids = count(1)  # the ids of our requests
        self.transport = Http(server) if is_url(server) else Stdio(server, env_keep)
        client = {"name": "agentlite", "version": "0"}
        parameters = {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": client}
        result = self._ask("initialize", parameters)
        if isinstance(self.transport, Http):
            self.transport.headers["mcp-protocol-version"] = str(result.get("protocolVersion"))
        self.transport.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def tools(self) -> list[dict[str, Any]]:
        """Those of all pages. Raises LostWorldError for two of one name."""
        tools: list[dict[str, Any]] = []
        parameters: dict[str, Any] | None = {}
        while parameters is not None:
            page = self._ask("tools/list", parameters)
            tools += page.get("tools") or ()
            parameters = {"cursor": page["nextCursor"]} if page.get("nextCursor") else None
        for name, times in Counter(str(tool.get("name")) for tool in tools).most_common(1):
            if times > 1:
                raise LostWorldError(f"the server has {times} tools of the name {name}")
        return tools

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
        request_id = next(self.ids)
        request = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": parameters}
        for message in self.transport.ask(request):
            match message:
                case {"method": "ping", "id": id}:
                    self.transport.send({"jsonrpc": "2.0", "id": id, "result": {}})
                case {"method": _, "id": id}:  # it asks for what only other clients have
                    # -32601: no such method
                    refusal = {"code": -32601, "message": "agentlite only uses tools"}
                    self.transport.send({"jsonrpc": "2.0", "id": id, "error": refusal})
                case {"method": _}:
                    pass  # a notification: it waits for no answer
                case {"id": id, "result": dict(result)} if id == request_id:
                    return result
                case {"id": id, "error": {"message": reason}} if id == request_id and reason:
                    if method == "tools/call":
                        return {"content": [{"type": "text", "text": f"Error: {reason}"}]}
                    raise LostWorldError(f"the server refused {method}: {one_line(str(reason))}")
                case {"id": id} if id == request_id:
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
        case {"type": str(kind)} if kind in MEDIA:
            return f"[{MEDIA[kind]}: {block.get('mimeType')}]"
        case {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "resource", "resource": dict(link)} | ({"type": "resource_link"} as link):
            return f"[resource: {link.get('uri')}]"
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
                env={k: value for k, value in os.environ.items() if k in {*ENV_KEEP, *env_keep}},
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
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def _lost_error(self) -> LostWorldError:
        try:
            cause = f"ended with exit code {self.process.wait(END_SECONDS)}"
        except subprocess.TimeoutExpired:
            cause = "closed its output"
        self.log.seek(max(0, self.log.seek(0, 2) - LOG_TAIL))
        log = self.log.read().decode("utf-8", "replace").rstrip()
        last_line = one_line(log.rpartition("\n")[2])
        return LostWorldError(f"the server {cause}{f': {last_line}' if last_line else ''}")


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
                content_type = response.headers.get("content-type", "").partition(";")[0].strip()
                if response.is_success and content_type == "text/event-stream":
                    for event in _events(response.iter_bytes()):
                        yield from _messages(event)
                    return
                content = response.read()
        except self.errors as error:
            reason = one_line(str(error)) or type(error).__name__
            raise LostWorldError(f"the server cannot be reached: {reason}") from error
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


def _events(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The data of each event, as `{"id": 1}` of `data: {"id": 1}`; a blank line ends one. Lines are
    cut here: JSON may hold line ends of Unicode, by which httpx would cut.
    """
    unfinished, data = b"", list[bytes]()
    for chunk in chunks:
        *lines, unfinished = (unfinished + chunk).split(b"\n")
        for line in lines:
            field, _, value = line.rstrip(b"\r").partition(b":")
            if field == b"data":
                data.append(value.removeprefix(b" "))
            elif not field and data:
                yield b"\n".join(data)
                data = []
