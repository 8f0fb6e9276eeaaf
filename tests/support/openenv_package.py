"""A program that serves the shop and the game of openenv_servers.py by the package itself; no test.

python openenv_package.py shop|guess PORT
"""

import sys
from typing import Any

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field


class Shop(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        tools = FastMCP("shop")

        @tools.tool
        def buy(item: str, count: int = 1) -> str:
            """Puts items into the cart."""
            if item == "melon":
                raise ValueError("no melon")
            self.cart += [item] * count
            return f"{len(self.cart)} in the cart"

        @tools.tool
        def total() -> dict:
            """Counts the cart."""
            return {"items": len(self.cart)}

        super().__init__(tools)
        self.cart: list[str] = []
        self.wanted: list[str] = []

    def reset(self, seed=None, episode_id=None, wanted=(), **row) -> Observation:
        self.cart, self.wanted = [], list(wanted)
        return Observation(done=False, reward=0.0, metadata={"status": "ready"})

    def _step_impl(self, action, timeout_s=None, **options) -> Observation:
        raise NotImplementedError

    async def step_async(self, action, timeout_s=None, **options) -> Observation:
        seen = await super().step_async(action, timeout_s, **options)
        seen.done = bool(self.wanted) and self.cart == self.wanted
        seen.reward = float(seen.done)
        return seen

    @property
    def state(self) -> State:
        return State(episode_id="e")


class Guess(Action):
    """Guesses the number."""

    number: int = Field(description="Between 1 and 9")


class Hint(Observation):
    said: str = ""
    left: int | None = None
    legal: list[int] = Field(default_factory=list)


class Guessing(Environment):
    def reset(self, seed=None, episode_id=None, number=None, **row: Any) -> Hint:
        if number is None:
            raise ValueError("which number?")
        self.number, self.left = number, 3
        return Hint(said="Guess a number between 1 and 9.")

    def step(self, action: Guess, timeout_s=None, **options: Any) -> Hint:
        self.left -= 1
        if action.number == self.number:
            return Hint(said="right", done=True, reward=1.0)
        if action.number > 9:
            raise ValueError("not below 10")
        said = "too high" if action.number > self.number else "too low"
        return Hint(said=said, left=self.left, done=self.left == 0, reward=-0.25)

    @property
    def state(self) -> State:
        return State(episode_id="e")


if __name__ == "__main__":
    kind, port = sys.argv[1:]
    if kind == "shop":
        app = create_app(Shop, CallToolAction, CallToolObservation, max_concurrent_envs=8)
    else:
        app = create_app(Guessing, Guess, Hint)
    uvicorn.run(app, port=int(port), log_level="warning")
