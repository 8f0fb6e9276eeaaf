"""A client of OpenEnv servers: an environment for each session, its tools, and steps in it.

It runs in a world's process. Nothing here has a time limit of its own: that of the world holds.
"""

import contextlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from agentlite.core.records import plain
from agentlite.core.user_code import one_line
from agentlite.environments.inside import LostWorldError
from agentlite.environments.mcp_client import openai_tool, result_text
from agentlite.environments.websocket import WebSocket

STEP = "step"  # the tool of an environment that has actions of one type, and no tools
ENDED = ("CAPACITY_REACHED", "FACTORY_ERROR", "SESSION_ERROR")  # errors that end a session
TOO_MANY = (
    "Start it with a larger max_concurrent_envs, or let fewer rollouts go on together: "
    "--batch-size 1, or --concurrency 1 with --endpoint"
)
UNREAD = ("metadata", "tool_name")  # the first is for trainers; the model knows whom it called
EMPTY: tuple[object, ...] = (None, "", [], {})
Json = dict[str, Any]


class Observed(NamedTuple):
    """What came of a reset or a step. `reward`: None where the environment gives none."""

    text: str
    reward: float | None = None
    done: bool = False


class OpenEnvClient:
    """A session with a server. `url`: its address, without a path of an endpoint. All methods raise
    LostWorldError.
    """

    def __init__(self, url: str):
        self.url = url.rstrip("/")
        self.socket = WebSocket(f"{self.url}/ws")
        self.calls_tools = False

    def reset(self, parameters: Mapping[str, Any]) -> Observed:
        try:
            return _observed(self._ask("reset", parameters))
        except _ActionRefusedError as refused:
            raise LostWorldError(f"the server refused to reset: {refused}") from refused

    def tools(self) -> list[Json]:
        """In OpenAI's shape: the tools of the environment; or, where its actions are of a type of
        its own, one that takes the fields of an action.
        """
        schema = self._action_schema()
        fields = schema.get("properties", {})
        self.calls_tools = '"call_tool"' in json.dumps(schema) or not {*fields} - {"metadata"}
        if not self.calls_tools:
            return [_step(schema)]
        return [openai_tool(tool) for tool in self._listed()]

    def step(self, name: str, arguments: Mapping[str, Any]) -> Observed:
        """A call that the server refuses is text that begins with `Error`."""
        action = dict(arguments)
        if self.calls_tools:
            action = {"type": "call_tool", "tool_name": name, "arguments": arguments}
        try:
            return _observed(self._ask("step", action))
        except _ActionRefusedError as refused:
            return Observed(f"Error: {refused}")

    def close(self) -> None:
        """Waits until the server has ended the environment, so that another has its place."""
        with contextlib.suppress(LostWorldError):
            self._send("close")
            while True:
                self.socket.receive()
        self.socket.close()

    def _action_schema(self) -> Json:
        import httpx

        try:
            answer = httpx.get(f"{self.url}/schema", timeout=None)
            schema = answer.json()["action"]
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
            raise LostWorldError(
                f"the server has no schema of an action at {self.url}/schema"
            ) from error
        return schema if isinstance(schema, dict) else {}

    def _listed(self) -> list[Any]:
        """By MCP, which does not count as a step. Environments with an action type of their own for
        calls know the step alone.
        """
        question = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        try:
            found = self._ask("mcp", question).get("result")
            if not isinstance(found, dict):
                found = self._ask("step", {"type": "list_tools"}).get("observation")
        except _ActionRefusedError as refused:
            raise LostWorldError(f"the server does not list its tools: {refused}") from refused
        tools = found.get("tools") if isinstance(found, dict) else None
        return tools if isinstance(tools, list) else []

    def _send(self, kind: str, **fields: Any) -> None:
        self.socket.send(json.dumps({"type": kind, **fields}))

    def _ask(self, kind: str, data: Mapping[str, Any]) -> Json:
        """The data of the answer. Raises _ActionRefusedError for an error that ends no session."""
        self._send(kind, data=data)
        try:
            answer = json.loads(self.socket.receive())
        except (ValueError, RecursionError) as error:
            raise LostWorldError("the server answered with something else than JSON") from error
        found = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(found, dict):
            raise LostWorldError(f"the server answered {kind} without data")
        if answer.get("type") != "error":
            return found
        if found.get("code") in ENDED:
            fix = f". {TOO_MANY}" if found["code"] == ENDED[0] else ""
            raise LostWorldError(f"the server ended the session: {_problem(found)}{fix}")
        raise _ActionRefusedError(_problem(found))


class _ActionRefusedError(Exception):
    """The server says why it does not do something."""


def _problem(error: Json) -> str:
    """The message, with the fields of an action that were wrong."""
    wrong = [one for one in error.get("errors") or () if isinstance(one, dict)]
    fields = (f"{'.'.join(map(str, one.get('loc', ())))}: {one.get('msg')}" for one in wrong)
    return one_line("; ".join(fields) or str(error.get("message") or error.get("code")))


def _step(schema: Json) -> Json:
    """The tool that takes an action. `metadata` is of the protocol, and no field of an action."""
    fields = {name: one for name, one in schema["properties"].items() if name != "metadata"}
    kept = {key: one for key, one in schema.items() if key not in ("title", "description")}
    about = schema.get("description") or f"Takes an action: {schema.get('title')}."
    function = {"name": STEP, "description": about, "parameters": {**kept, "properties": fields}}
    return {"type": "function", "function": function}


def _observed(answer: Json) -> Observed:
    seen, reward = answer.get("observation"), answer.get("reward")
    seen = seen if isinstance(seen, dict) else {}
    known = float(reward) if isinstance(reward, int | float) else None
    return Observed(_words(seen), known, answer.get("done") is True)


def _words(seen: Json) -> str:
    """What a model reads of an observation: an error, and the result of a tool or all fields that
    are not empty.
    """
    fields = {name: one for name, one in seen.items() if name not in UNREAD and one not in EMPTY}
    error = fields.pop("error", "")
    message = error.get("message") if isinstance(error, dict) else error
    return "\n".join(([f"Error: {message}"] if error else []) + _texts(fields))


def _texts(fields: Json) -> list[str]:
    result = fields.get("result")
    if isinstance(result, dict) and isinstance(result.get("content"), list):
        text = result_text(result)
        failed = result.get("is_error") is True and not text.startswith("Error")
        return [f"Error: {text}" if failed else text]
    [*values] = fields.values()
    if len(values) == 1 and isinstance(values[0], str):
        return values
    return [plain(fields)] if fields else []
