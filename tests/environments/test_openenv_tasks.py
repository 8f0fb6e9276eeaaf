"""What a task of an OpenEnv server says, and the line of one that says it wrongly."""

import json

import pytest

from agentlite.core.errors import UserError
from agentlite.environments.openenv_tasks import openenv_tasks


def written(folder, **columns):
    (folder / "tasks.jsonl").write_text(json.dumps(columns) + "\n")
    return openenv_tasks("http://host", folder / "tasks.jsonl")


def test_the_world_gets_what_its_reset_takes_the_user_and_the_right_calls(tmp_path):
    guess, again = ({"name": "step", "arguments": {"number": number}} for number in (4, 5))
    columns = {"prompt": "Guess.", "reset": {"seed": 3}, "user_turns": ["Again."]}
    (task,) = written(tmp_path, **columns, gold=[[guess], [again]], level=3)
    assert task.row == {
        "server": "http://host",
        "reset": {"seed": 3},
        "prompted": True,
        "user_turns": ["Again."],
        "gold": [guess, again],
    }
    (bare,) = written(tmp_path, reset={"seed": 3})
    assert bare.row["prompted"] is False and bare.row["gold"] is None and bare.messages == ()


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"reset": 3}, "reset is not an object"),
        ({"prompt": "Guess.", "user_turns": [2]}, "user_turns is not a list of texts"),
        ({"prompt": "Guess.", "gold": "step"}, "gold is not a list"),
    ],
)
def test_a_task_that_cannot_be_read_is_named_by_its_line(tmp_path, columns, problem):
    with pytest.raises(UserError) as found:
        list(written(tmp_path, **columns))
    assert found.value.problem.startswith(problem)
    assert found.value.location.endswith("tasks.jsonl:1") and found.value.exit_code == 2
