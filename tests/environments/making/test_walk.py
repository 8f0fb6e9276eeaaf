"""agentlite.environments.making.walk: what a walk holds, a fresh world returns again."""

from random import Random
from typing import Any

import pytest

from agentlite.core.records import Call, Tool
from agentlite.environments.making.walk import Walker
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.world import CallResult

NAMES = ("look", "peek", "gaze", "count", "jam", "break_off")
TASK = EnvironmentTask("t", (), {})


class HalfDone:
    """A world in which some calls fail and change it all the same. `harm`: those that do."""

    def __init__(self, harm: tuple[str, ...]):
        self.harm = harm
        self.tools = tuple(Tool(name, f"Does {name}.") for name in NAMES)

    def reset(self, row: dict[str, Any]) -> None:
        self.touched = 0

    def state(self) -> dict[str, int]:
        return {"touched": self.touched}

    def call(self, call: Call) -> CallResult:
        self.touched += call.name in self.harm or call.name == "count"
        if call.name in ("jam", "break_off"):
            return CallResult("Error: it is stuck", failed=True)
        return CallResult(f'{{"touched": {self.touched}}}', failed=False)


@pytest.mark.parametrize("harm", [(), ("jam",), ("break_off",), ("jam", "break_off")], ids=str)
@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_fresh_world_returns_what_a_walk_has_made_though_calls_fail_half_done(harm, length):
    walker = Walker.__new__(Walker)
    walker.world = HalfDone(harm)
    walks = [walker.walk(TASK, length, Random(seed)) for seed in range(40)]
    made = [walk for walk in walks if walk]
    assert made
    for walk in made:
        assert len({one.call.name for one in walk}) == len(walk) == length  # none twice
        results, _ = walker.carry_out(TASK, [one.call for one in walk])
        assert [result.text for result in results] == [one.result for one in walk]
