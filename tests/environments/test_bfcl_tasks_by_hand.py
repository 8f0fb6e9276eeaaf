"""A multi-turn dialog of BFCL as a task, with functions and rows that are written here."""

import json
from pathlib import Path

import pytest

from agentlite.core.records import Call, Message
from agentlite.environments import bfcl_tasks
from agentlite.environments.bfcl_tasks import CATEGORIES, tasks

NUMBERS = range(12)
CALLS = [["fly(2, to='Oslo')", "f03()"], [], ["f05(n=1)"]]


def function(name, *parameters):
    properties = {parameter: {"type": "integer"} for parameter in parameters}
    schema = {"type": "dict", "properties": properties, "required": [*parameters[:1]]}
    response = {"type": "dict", "properties": {"done": {"type": "boolean"}}}
    return {"name": name, "description": name, "parameters": schema, "response": response}


def rows(category):
    for number in (7, 8):
        yield {
            "id": f"{category}_{number}",
            "involved_classes": ["TravelAPI", "MathAPI"],
            "question": [
                [{"role": "user", "content": "Fly."}],
                [{"role": "user", "content": "And now?"}],
                [{"role": "user", "content": "More."}],
            ],
            "missed_function": {"1": ["f05", "f06"]},
        }


@pytest.fixture(scope="module", autouse=True)
def package(tmp_path_factory):
    """A folder as the package has it."""
    folder = tmp_path_factory.mktemp("bfcl")
    documented = {
        "travel_booking": [
            function("fly", "count", "to"),
            *(function(f"f{n:02}") for n in NUMBERS),
        ],
        "math_api": [function("add", "a", "b")],
        "ticket_api": [function("none")],
    }
    for name, functions in documented.items():
        lines(folder / "multi_turn_func_doc" / f"{name}.json", functions)
    for category in CATEGORIES:
        found = [*rows(category)]
        answers = [{"id": row["id"], "ground_truth": CALLS} for row in found[::-1]]
        answers[0]["ground_truth"] = [["add(1, 2)"], [], []]  # of the second row
        lines(folder / f"BFCL_v4_{category}.json", found)
        lines(folder / "possible_answer" / f"BFCL_v4_{category}.json", answers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bfcl_tasks, "data_folder", lambda category: folder)
        yield


def lines(path: Path, values) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(value) + "\n" for value in values))


def names(tools):
    return [tool["function"]["name"] for tool in tools]


@pytest.mark.parametrize("category", CATEGORIES)
def test_a_task_has_its_question_its_gold_and_what_is_held_back_by_turn(category):
    one, other = tasks(category)
    assert (one.id, one.group, other.group) == (f"{category}_7", "7", "8")
    assert one.messages == (Message("user", "Fly."),)
    # positional arguments are those of the description, in its order
    fly = Call("fly", {"count": 2, "to": "Oslo"})
    assert one.gold == ((fly, Call("f03", {})), (), (Call("f05", {"n": 1}),))
    assert other.gold == ((Call("add", {"a": 1, "b": 2}),), (), ())
    assert one.row["ground_truth"] == CALLS and one.row["question"][2][0]["content"] == "More."
    assert names(one.row["held_back"]["1"]) == ["f05", "f06"] and len(one.row["held_back"]) == 1
    offered = [f"f{n:02}" for n in NUMBERS if n not in (5, 6)]
    assert names(one.row["tools"]) == ["fly", *offered, "add"]
    fly = one.row["tools"][0]["function"]
    assert fly["parameters"]["type"] == "object" and fly["parameters"]["required"] == ["count"]


@pytest.mark.parametrize("extra", range(13))
def test_extra_tools_are_chosen_by_task_and_fewer_are_some_of_more(extra):
    whole, few, more = (list(tasks(CATEGORIES[0], n)) for n in (None, extra, extra + 1))
    for task, smaller, larger in zip(whole, few, more, strict=True):
        called = {call.name for calls in task.gold for call in calls}
        every = names(task.row["tools"])
        small, large = names(smaller.row["tools"]), names(larger.row["tools"])
        assert small == [name for name in every if name in small]
        assert {*every} & called <= {*small} <= {*large}
        uncalled = {*every} - called
        assert len({*small} - called) == min(extra, len(uncalled))
        assert (smaller.gold, smaller.row["held_back"]) == (task.gold, task.row["held_back"])
    if 0 < extra < 8:  # neither the first ones, nor the same for all
        chosen = [{*names(task.row["tools"])} - {"fly", "add", "f03"} for task in few]
        assert chosen[0] != chosen[1]
