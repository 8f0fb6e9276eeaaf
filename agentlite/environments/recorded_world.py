"""A world that is a recorded dialog: an equal call gets the recorded answer, any other an error."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentlite.core.call_results import no_tool
from agentlite.environments.gold_calls import call_key, gold_calls

NO_RESULT = "(no result was recorded)"


class RecordedWorld:
    """Nothing is carried out. A call that was made several times has its answers one after the
    other, and then the last one again.
    """

    def reset(
        self,
        tools: Sequence[dict[str, Any]],
        user_turns: Iterable[str],
        recorded: Iterable[Mapping[str, Any]],
        results: Iterable[str | None],
        gold: Sequence[Mapping[str, Any]] | None,
    ) -> None:
        """`user_turns`: those behind the first. `results`: of the recorded calls. `gold`: the right
        calls, if known.
        """
        self.offered, self.user, self.gold = list(tools), list(user_turns), gold
        self.results: dict[str, list[str]] = defaultdict(list)
        for call, result in zip(recorded, results, strict=True):
            self.results[call_key(call)].append(NO_RESULT if result is None else result)
        self.made: list[Mapping[str, Any]] = []
        self.answered: list[str] = []  # the keys of the calls that had an answer
        self.heard = 0  # turns of the user's behind the first

    def tools(self) -> list[dict[str, Any]]:
        return self.offered

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        call = {"name": name, "arguments": arguments}
        self.made.append(call)
        names = [tool["function"]["name"] for tool in self.offered]
        if name not in names:
            return no_tool(name, names)
        key = call_key(call)
        if key not in self.results:
            return f"Error: no answer is recorded for {name} with these arguments."
        results, times = self.results[key], self.answered.count(key)
        self.answered.append(key)
        return results[min(times, len(results) - 1)]

    def next_user(self, words: str) -> str | None:
        self.heard += 1
        return self.user[self.heard - 1] if self.heard <= len(self.user) else None

    def get_scores(self) -> dict[str, float]:
        return gold_calls(self.gold, self.made)

    def state(self) -> dict[str, Any]:
        """How far the user is, and which recorded calls were made."""
        return {"user": self.heard, "calls": sorted(self.answered)}
