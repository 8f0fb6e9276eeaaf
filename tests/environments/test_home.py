"""The home of `agentlite init`: the right calls do each task, a change more or less undoes it, and
the splits share nothing that could be learned by heart.
"""

import json
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from agentlite.cli.commands.init import fill
from agentlite.core.records import Call
from agentlite.core.user_code import UserFunction
from agentlite.environments.world import World

SPLITS = {"train": 300, "dev": 60, "test": 200}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `init` leaves it, with the tasks."""
    folder = tmp_path_factory.mktemp("home") / "home"
    fill(folder)
    subprocess.run([sys.executable, "home.py"], cwd=folder, check=True)
    return folder


@pytest.mark.long
@pytest.mark.parametrize("split", SPLITS)
def test_the_right_calls_do_a_task_and_a_change_more_or_less_does_not(folder, split):
    tasks = list(map(json.loads, (folder / f"{split}.jsonl").read_text().splitlines()))
    assert len({task["prompt"] for task in tasks}) == SPLITS[split]
    needless = Call("add", {"item": "sand", "amount": 1})
    wrong = Call("set", {"device": "timer", "value": "999"})
    with World(UserFunction(str(folder / "home.py"), "Home")) as world:

        def reward(task: dict[str, Any], calls: list[Call]) -> float:
            world.reset(task)
            assert [tool.name for tool in world.tools] == ["look", "set", "add"]
            assert not any(world.call(call).failed for call in calls)
            assert (world.next_user("How many?") or "") == task["answer"]
            assert world.next_user("And now?") is None
            return world.scores()["env"]

        for task in tasks:
            calls = [Call(**call) for turn in task["gold"] for call in turn]
            changes = [call for call in calls if call.name != "look"]
            assert len(calls) <= 4 and reward(task, calls) == reward(task, changes) == 1
            assert reward(task, [*calls, needless]) == reward(task, [wrong, *calls]) == 0
            for left in changes:
                assert reward(task, [call for call in changes if call is not left]) == 0


def test_splits_share_no_room_item_number_or_wording(folder):
    def leaves(value: Any, name: str = "") -> set[tuple[str, Any]]:
        if isinstance(value, dict):
            return set().union(*(leaves(inner, key) for key, inner in value.items()))
        return {(name, inner) for inner in value} if isinstance(value, list) else {(name, value)}

    words = json.loads((folder / "home_words.json").read_text())
    assert set(words) == set(SPLITS)
    assert not any(leaves(one) & leaves(other) for one, other in combinations(words.values(), 2))
