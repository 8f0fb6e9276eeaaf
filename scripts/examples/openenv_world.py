"""A world that is an environment of an OpenEnv server, by the client of the package `openenv`.

    pip install openenv
    agentlite rollout --env scripts/examples/openenv_world.py:OpenEnvWorld --tasks tasks.jsonl

A task is {"prompt": "...", "server": "http://localhost:8000", "parameters": {...}}: what its user
asks, and what the environment's reset takes. The server must have room for as many sessions as
rollouts go on together. An environment whose actions are not calls of tools needs another `tools`
and `call`.
"""

import json
from typing import Any


class OpenEnvWorld:
    """A session of its own for each rollout. `get_reward` is the sum of all rewards."""

    def reset(self, server: str, parameters: dict[str, Any] | None = None, **task: Any) -> str:
        """The text is added to the prompt."""
        from openenv.core import GenericEnvClient

        self.client = GenericEnvClient(base_url=server).sync()
        first = self.client.reset(**(parameters or {}))
        self.reward, self.done = float(first.reward or 0), bool(first.done)
        return f"\n\n{json.dumps(first.observation)}" if first.observation else ""

    def tools(self) -> list[dict[str, Any]]:
        tools = self.client.step({"type": "list_tools"}).observation["tools"]
        return [{**tool, "parameters": tool["input_schema"]} for tool in tools]

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        action = {"type": "call_tool", "tool_name": name, "arguments": arguments}
        result = self.client.step(action)
        self.reward, self.done = self.reward + float(result.reward or 0), bool(result.done)
        error, value = result.observation.get("error"), result.observation.get("result")
        return f"Error: {error['message']}" if error else json.dumps(value)

    def is_done(self) -> bool:
        return self.done

    def get_reward(self) -> float:
        return self.reward

    def close(self) -> None:
        self.client.close()
