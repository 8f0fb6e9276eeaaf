"""BFCL's multi-turn dialogs as tasks: every function that BFCL offers, at the turn it offers it."""

import pytest
from bfcl_eval.utils import load_dataset_entry

from agentlite.core.errors import UserError
from agentlite.environments.registry import bfcl_tasks as tasks
from agentlite.scoring.metrics.bfcl import MULTI_TURN

pytestmark = pytest.mark.long


@pytest.mark.parametrize("category", MULTI_TURN)
def test_the_tasks_are_those_that_the_package_gives(category):
    theirs = {row["id"]: row for row in load_dataset_entry(category)}
    ours = list(tasks(category))
    assert [task.id for task in ours] == list(theirs) and len(ours) == 200
    for task in ours:
        row = theirs[task.id]
        assert names(task.row["tools"]) == [one["name"] for one in row["function"]]
        held_back = {turn: names(tools) for turn, tools in task.row["held_back"].items()}
        assert held_back == {
            turn: [one["name"] for one in functions]
            for turn, functions in row.get("missed_function", {}).items()
        }
        assert [message.content for message in task.messages] == [
            message["content"] for message in row["question"][0]
        ]


@pytest.mark.parametrize("category", MULTI_TURN)
@pytest.mark.parametrize("extra", [0, 4])
def test_with_few_extra_tools_those_of_the_gold_stay_on_offer_and_in_order(category, extra):
    for task, whole in zip(tasks(category, extra), tasks(category), strict=True):
        offered, every = names(task.row["tools"]), names(whole.row["tools"])
        called = {call.name for calls in task.gold for call in calls}
        held_back = {name for tools in task.row["held_back"].values() for name in names(tools)}
        assert called <= {*offered, *held_back}
        assert offered == [name for name in every if name in offered]
        assert len({*offered} - called) == min(extra, len({*every} - called))
        assert (task.gold, task.messages) == (whole.gold, whole.messages)
    assert names(next(tasks(category, extra)).row["tools"]) == names(
        next(tasks(category, extra)).row["tools"]
    )


def test_a_dialog_is_in_one_split_in_every_category():
    groups = [[task.group for task in tasks(category)] for category in MULTI_TURN]
    assert groups[0] == groups[1] == groups[2] == groups[3] and len({*groups[0]}) == 200


def names(tools):
    return [tool["function"]["name"] for tool in tools]


def test_without_the_package_there_is_a_way_to_install_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="bfcl-eval is not installed"):
        next(tasks("multi_turn_base"))
