"""What a task of an MCP server says, and the line of one that says it wrongly."""

import json

import pytest

from agentlite.core.errors import UserError
from agentlite.environments.mcp_tasks import mcp_tasks


def written(folder, **columns):
    (folder / "tasks.jsonl").write_text(json.dumps(columns) + "\n")
    return mcp_tasks("python server.py", folder / "tasks.jsonl")


def test_the_world_gets_the_server_the_user_and_the_right_calls(tmp_path):
    buy = {"name": "buy", "arguments": '{"item": "fig"}'}
    read = {"name": "buy", "arguments": {"item": "fig"}}
    columns = {"prompt": "A fig.", "user_turns": ["Two."], "gold": [[buy], [], [buy]]}
    (task,) = written(tmp_path, **columns, reset_calls=[{"name": "open"}], level=3)
    assert task.row == {
        "server": "python server.py",
        "user_turns": ["Two."],
        "reset_calls": [{"name": "open", "arguments": {}}],
        "gold": [read, read],
    }
    assert task.messages[0].content == "A fig." and len(task.gold) == 3
    (bare,) = written(tmp_path, prompt="A fig.")
    nothing = {"user_turns": [], "reset_calls": [], "gold": None}
    assert bare.row == {"server": "python server.py", **nothing}


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"prompt": "A fig.", "user_turns": "Two."}, "user_turns is not a list of texts"),
        ({"prompt": "A fig.", "reset_calls": {}}, "reset_calls is not a list of calls"),
        ({"prompt": "A fig.", "reset_calls": [{}]}, "a call without a name"),
        ({"prompt": "A fig.", "gold": "buy"}, "gold is not a list"),
        ({"prompt": "A fig.", "user": {}, "user_turns": ["b"]}, "a task has user_turns or a user"),
    ],
)
def test_a_task_that_cannot_be_read_is_named_by_its_line(tmp_path, columns, problem):
    with pytest.raises(UserError) as found:
        list(written(tmp_path, **columns))
    assert found.value.problem.startswith(problem)
    assert found.value.location.endswith("tasks.jsonl:1") and found.value.exit_code == 2
