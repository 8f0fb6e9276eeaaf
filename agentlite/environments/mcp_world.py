"""A world that is an MCP server: its tools, a session for each rollout, and the task's user."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentlite.core.call_results import no_tool, says_error
from agentlite.environments.gold_calls import gold_calls
from agentlite.environments.inside import LostWorldError
from agentlite.environments.mcp_client import McpClient


class McpWorld:
    """The results of tools come from the server; the user's next messages, from the task."""

    def reset(
        self,
        server: str,
        user_turns: Sequence[str],
        reset_calls: Sequence[Mapping[str, Any]],
        gold: Sequence[Mapping[str, Any]] | None,
    ) -> None:
        """`server`: a command or a URL. `user_turns`: those behind the first. `reset_calls`: made
        before the task begins; their tools are not on offer. `gold`: the right calls, if known.
        """
        self.user, self.gold = iter(user_turns), gold
        self.made: list[Mapping[str, Any]] = []
        self.client = McpClient(server)
        self.hidden = {call["name"] for call in reset_calls}
        for call in reset_calls:
            result = self.client.call(call["name"], call["arguments"])
            if says_error(result):
                raise LostWorldError(f"{call['name']} returned {result}")

    def tools(self) -> list[dict[str, Any]]:
        tools = self.client.tools()
        offered = [one for one in tools if one["function"]["name"] not in self.hidden]
        self.names = [one["function"]["name"] for one in offered]
        return offered

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        self.made.append({"name": name, "arguments": arguments})
        if name not in self.names:
            return no_tool(name, self.names)
        return self.client.call(name, arguments)

    def next_user(self, words: str) -> str | None:
        return next(self.user, None)

    def get_scores(self) -> dict[str, float]:
        return gold_calls(self.gold, self.made)

    def close(self) -> None:
        self.client.close()
