"""A world that is an environment of an OpenEnv server: a session for each rollout."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentlite.core.call_results import no_tool
from agentlite.environments.gold_calls import gold_calls
from agentlite.environments.inside import LostWorldError
from agentlite.environments.openenv_client import OpenEnvClient


class OpenEnvWorld:
    """Observations are the results of calls; the sum of all rewards is the score `env`."""

    def reset(
        self,
        server: str,
        reset: Mapping[str, Any],
        prompted: bool,
        user_turns: Sequence[str],
        gold: Sequence[Mapping[str, Any]] | None,
    ) -> str:
        """`server`: a URL. `reset`: what its reset takes. `prompted`: whether the task has words of
        the user's. `user_turns`: those behind the first. `gold`: the right calls, if known.
        """
        self.user, self.gold = iter(user_turns), gold
        self.made: list[Mapping[str, Any]] = []
        self.rewards: list[float] = []
        self.client = OpenEnvClient(server)
        first = self.client.reset(reset)
        self.done = first.done
        self.offered = self.client.tools()
        if not self.offered:
            raise LostWorldError("the environment has no tools")
        if not first.text and not prompted:
            raise LostWorldError("the task has no prompt, and the reset returned no text")
        return f"\n\n{first.text}" if first.text and prompted else first.text

    def tools(self) -> list[dict[str, Any]]:
        return self.offered

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        self.made.append({"name": name, "arguments": arguments})
        names = [one["function"]["name"] for one in self.offered]
        if name not in names:
            return no_tool(name, names)
        if self.done:
            return "Error: the episode is done."
        seen = self.client.step(name, arguments)
        self.done = seen.done
        if seen.reward is not None:
            self.rewards.append(seen.reward)
        return seen.text

    def is_done(self) -> bool:
        return self.done

    def next_user(self, words: str) -> str | None:
        return next(self.user, None)

    def get_scores(self) -> dict[str, float]:
        earned = {"env": sum(self.rewards)} if self.rewards else {}
        return {**gold_calls(self.gold, self.made), **earned}

    def close(self) -> None:
        self.client.close()
